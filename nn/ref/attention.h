/* Plain causal attention: one loop a dimension, fp32 in and out, sums in double. Defines what the fast one must compute; tests only. */
#ifndef EXO_REF_ATTENTION_H
#define EXO_REF_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXO_REF_ATTENTION_WIDTH = 1024 /* D at most */
};

/* x (N T, (H + 2 G) D) -> y (N T, H D). */
typedef struct exo_ref_attention {
    size_t sequences, tokens, heads, kv_heads, width; /* N, T, H, G, D */
    double scale;
    bool alibi;
    size_t turned;       /* elements of a head with rotary positions; 0: none */
    double theta;        /* of them */
    const float *scaled; /* (turned / 2), or NULL */
    const uint8_t *keep; /* (N, H, T, T) of dropout, or NULL */
    double kept;         /* the share of weights that dropout keeps: the others grow by 1 / kept */
} exo_ref_attention;

void exo_ref_attention_forward(const exo_ref_attention *shape, const float *x, float *y);
/* Overwrites dx. */
void exo_ref_attention_backward(const exo_ref_attention *shape, const float *x, const float *dy,
                                float *dx);

#endif
