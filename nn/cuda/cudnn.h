/* Convolutions by cuDNN, where the environment asks for it: EXOGYM_CUDNN is `on`, or `tf32`, which
 * also lets cuDNN compute fp32 as tf32. Else conv.cu computes them. Attention is asked for by the same
 * variable (cudnn_attention.h).
 *
 * Images are (N, H, W, C) and weights (O, R, S, I): the layout of the table, which is also that of
 * the tensor cores. Each pass is a graph of one operation. Its engine is the first one that cuDNN's
 * heuristic advises among those whose bits are the same in each run and whose sums are of fp32, so it
 * depends on the shape, the GPU and the version of cuDNN alone. A shape for which there is none is left
 * to conv.cu.
 *
 * Workspaces come from the pool, so no graph may record a convolution (graphs.h).
 *
 * State: exo_cuda_cudnn, of one device. Read next: cudnn.cu, cudnn_graph.h. */
#ifndef EXO_CUDA_CUDNN_H
#define EXO_CUDA_CUDNN_H

#include "nn/cuda/device.h"

typedef struct exo_cuda_cudnn_conv exo_cuda_cudnn_conv;           /* the plans of a shape */
typedef struct exo_cuda_cudnn_attention exo_cuda_cudnn_attention; /* those of an attention */

/* *out is NULL if the environment does not ask for cuDNN. Errors: UNSUPPORTED (there is no cuDNN),
 * INVAL (an impossible EXOGYM_CUDNN), NOMEM, FAILED. */
exo_status exo_cuda_cudnn_new(exo_cuda_cudnn **out, exo_cuda_device *cuda, exo_err *err);
void exo_cuda_cudnn_free(exo_cuda_cudnn *cudnn); /* accepts NULL */

/* *out is NULL if cuDNN does not compute the shape, or the device has no cuDNN. */
exo_status exo_cuda_cudnn_conv_new(exo_cuda_cudnn_conv **out, exo_cuda_device *cuda,
                                   const exo_conv_shape *shape, exo_err *err);
void exo_cuda_cudnn_conv_free(exo_cuda_cudnn_conv *conv); /* accepts NULL */

/* Ask on the device's stream for y = x * weights; for dx, which is overwritten; and for the gradient
 * (O, R, S, I) of the weights, which is overwritten, too. All arrays have the shape's type, and begin at a multiple of 16 bytes. */
exo_status exo_cuda_cudnn_forward(exo_cuda_cudnn_conv *conv, const void *x, const void *weights,
                                  void *y, exo_err *err);
exo_status exo_cuda_cudnn_backward_data(exo_cuda_cudnn_conv *conv, const void *weights,
                                        const void *dy, void *dx, exo_err *err);
exo_status exo_cuda_cudnn_backward_filter(exo_cuda_cudnn_conv *conv, const void *x, const void *dy,
                                          void *gradient, exo_err *err);

#endif
