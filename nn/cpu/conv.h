/* Convolutions through oneDNN, piece by piece.
 *
 * A batch is cut into pieces of EXO_CONV_PIECE samples (the last may be shorter); each piece is one single-threaded call, and
 * pieces run on any threads. Images are channels-last; weights (O, I, R, S) fp32 row-major outside, in oneDNN's order inside. */
#ifndef EXO_CPU_CONV_H
#define EXO_CPU_CONV_H

#include "nn/device/device_impl.h"

enum {
    EXO_CONV_PIECE = 32
};

typedef struct exo_conv exo_conv;

exo_status exo_conv_new(exo_conv **out, const exo_conv_shape *shape, exo_err *err);
void exo_conv_free(exo_conv **conv);
size_t exo_conv_pieces(const exo_conv *conv);

/* Brings the weights into the orders that forward and backward read; before the first piece of a pass. One thread. */
exo_status exo_conv_set_weights(exo_conv *conv, const float *weights, exo_err *err);
/* x (batch, H, W, I), bias (O) fp32 or NULL -> y (batch, H', W', O), of one piece. */
exo_status exo_conv_forward(exo_conv *conv, size_t piece, const void *x, const float *bias, void *y, exo_err *err);
/* dy -> dx, overwritten, of one piece. */
exo_status exo_conv_backward_data(exo_conv *conv, size_t piece, const void *dy, void *dx, exo_err *err);
/* x, dy -> the piece's own partial gradients of weights and bias. */
exo_status exo_conv_backward_weights(exo_conv *conv, size_t piece, const void *x, const void *dy, exo_err *err);
/* Sums the partial gradients in the order of the pieces and adds them to weight_grad (O, I, R, S) and bias_grad (O), each of
 * which may be NULL. One thread. */
exo_status exo_conv_add_weight_grads(exo_conv *conv, float *weight_grad, float *bias_grad, exo_err *err);

#endif
