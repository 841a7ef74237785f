/* Plain causal attention: one loop for each dimension, fp32 in and out, sums of a row in double.
 * It defines the results of the fast kernels. Only tests use it. No state. Read next: attention.c;
 * nn/cpu/attention_kernels.h. */
#ifndef EXO_REF_ATTENTION_H
#define EXO_REF_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/device/device_impl.h"

enum {
    EXO_REF_ATTENTION_WIDTH = 1024 /* the largest D */
};

/* x (N T, (H + 2 G) D) -> y (N T, H D). */
typedef struct exo_ref_attention {
    size_t sequences, tokens, heads, kv_heads, width; /* N, T, H, G, D */
    double scale;
    bool alibi;
    size_t turned;       /* elements of a head with rotary positions; 0: none */
    double theta;        /* the base of their frequencies */
    const float *scaled; /* (turned / 2): factors of the frequencies, or NULL */
    const uint8_t *keep; /* (N, H, T, T): the weights that dropout keeps; NULL: no dropout */
    double kept;         /* their expected share: kept weights are divided by it */
} exo_ref_attention;

void exo_ref_attention_forward(const exo_ref_attention *shape, const float *x, float *y);
/* Overwrites dx. */
void exo_ref_attention_backward(const exo_ref_attention *shape, const float *x, const float *dy,
                                float *dx);

/* The same of a shape with members (ring_attention.c), whose `others` may be NULL. Backward adds to dx
 * and to dothers. */
void exo_ref_ring_attention(const exo_attention_shape *s, const float *x, const float *others,
                            float *y, float *lse);
void exo_ref_ring_attention_backward(const exo_attention_shape *s,
                                     const exo_attention_backward_args *args, float *dx);

#endif
