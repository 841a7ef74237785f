/* Convolutions through oneDNN, in pieces.
 *
 * A batch is divided into pieces of EXO_CONV_PIECE samples; the last may be shorter. A piece is
 * one single-threaded call. Pieces run on any threads, at the same time. Images are channels-last.
 * The caller's weights are (O, I, R, S), fp32, row-major; inside they have oneDNN's order.
 *
 * Owner: the caller of exo_conv_new. Read next: conv.c, kernels.h. */
#ifndef EXO_CPU_CONV_H
#define EXO_CPU_CONV_H

#include "nn/device/device_impl.h"

enum {
    EXO_CONV_PIECE = 32 /* samples */
};

typedef struct exo_conv exo_conv;

exo_status exo_conv_new(exo_conv **out, const exo_conv_shape *shape, exo_err *err);
void exo_conv_free(exo_conv **conv);
size_t exo_conv_pieces(const exo_conv *conv);

/* Reorders the weights for forward and backward. Call it before the first piece of a pass, on one
 * thread. */
exo_status exo_conv_set_weights(exo_conv *conv, const float *weights, exo_err *err);
/* One piece of x (batch, H, W, I) and bias (O), fp32 or NULL -> y (batch, H', W', O). */
exo_status exo_conv_forward(exo_conv *conv, size_t piece, const void *x, const float *bias, void *y,
                            exo_err *err);
/* One piece of dy -> dx, which is overwritten. */
exo_status exo_conv_backward_data(exo_conv *conv, size_t piece, const void *dy, void *dx,
                                  exo_err *err);
/* One piece of x and dy -> its own partial gradients of weights and bias. */
exo_status exo_conv_backward_weights(exo_conv *conv, size_t piece, const void *x, const void *dy,
                                     exo_err *err);
/* Sums the partial gradients in the order of the pieces, and adds them to weight_grad (O, I, R, S)
 * and bias_grad (O), each of which may be NULL. Call it after all pieces, on one thread. */
exo_status exo_conv_add_weight_grads(exo_conv *conv, float *weight_grad, float *bias_grad,
                                     exo_err *err);

#endif
