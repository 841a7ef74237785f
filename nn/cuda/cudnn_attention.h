/* Causal attention by cuDNN, where the environment asks for it (EXOGYM_CUDNN, cudnn.h): passes in bf16
 * without ALiBi, dropout and members, of shapes that cuDNN takes. Else attention.cu computes them.
 *
 * Layers of one shape share the plans, which take long to make. The lse is that of attention.cu, so
 * either may compute the backward of what the other has computed.
 *
 * State: exo_cuda_cudnn_attention, of one device. Read next: cudnn_attention.cu, cudnn_graph.h. */
#ifndef EXO_CUDA_CUDNN_ATTENTION_H
#define EXO_CUDA_CUDNN_ATTENTION_H

#include "nn/cuda/cudnn.h"

/* The plans of a shape. *out is NULL if cuDNN is not asked for it. Errors: NOMEM, FAILED. */
exo_status exo_cuda_cudnn_attention_hold(exo_cuda_cudnn_attention **out, exo_cuda_device *cuda,
                                         const exo_attention_shape *shape, exo_err *err);
void exo_cuda_cudnn_attention_drop(exo_cuda_cudnn_attention *attention); /* accepts NULL */

/* The arrays of a call in bf16. Tokens of queries and keys are `pitch` elements apart, (H + G) D with
 * rotary positions, else (H + 2 G) D; those of values and of gradients (H + 2 G) D, of y and dy H D. */
typedef struct exo_cuda_cudnn_heads {
    const void *queries, *keys, *values;
} exo_cuda_cudnn_heads;

/* Whether there is a plan for one of the passes. */
bool exo_cuda_cudnn_attends_some(const exo_cuda_cudnn_attention *attention);
/* Whether cuDNN computes the pass from these arrays and others, which may be NULL: it wants multiples of
 * 16 bytes. */
bool exo_cuda_cudnn_attends(const exo_cuda_cudnn_attention *attention, bool backward,
                            const exo_cuda_cudnn_heads *heads, const void *const others[4]);

/* Ask on the device's stream for y (N T, H D) and lse (N, H, T), which may be NULL; and for the
 * gradients, which are overwritten: dx (N T, (H + 2 G) D), where queries and keys are turned. */
exo_status exo_cuda_cudnn_attend(exo_cuda_cudnn_attention *attention,
                                 const exo_cuda_cudnn_heads *heads, void *y, float *lse,
                                 exo_err *err);
exo_status exo_cuda_cudnn_attend_backward(exo_cuda_cudnn_attention *attention,
                                          const exo_cuda_cudnn_heads *heads, const void *y,
                                          const void *dy, const float *lse, void *dx, exo_err *err);

#endif
