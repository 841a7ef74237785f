/* A head over a large vocabulary: logits, their softmax's sums, and gradients, a part of the logits at a time.
 *
 *     log_sum[r] = log sum_v e^(scale logit[r, v]), logits = x weight^T
 *     d logit[r, v] = factor[r] (softmax[r, v] - [v = target[r]])
 *
 * or, in place of targets, of the entropy of each row's softmax, with log_p = scale logit - log_sum:
 *
 *     entropy[r] = -sum_v e^log_p[r, v] log_p[r, v]
 *     d logit[r, v] = factor[r] e^log_p[r, v] (log_p[r, v] + entropy[r])
 *
 * Rows are cut into chunks, the vocabulary into blocks, which are shared out to lanes: by shapes only, so that sums have one order. Logits are
 * either there for a chunk and the whole vocabulary, and gradients come with them, or for a chunk and a block, and are computed again for
 * gradients. */
#ifndef EXO_OPS_HEAD_H
#define EXO_OPS_HEAD_H

#include <exogym/tensor.h>

#include "nn/cpu/gemm.h"
#include "nn/ops/pieces.h"

enum {
    EXO_HEAD_LANES = 8
};

/* Plain numbers: compared byte by byte. */
typedef struct exo_head_shape {
    size_t rows, width, vocabulary;
    size_t dtype;     /* of x and of products                                     */
    size_t gradients; /* 0 or 1: wanted                                           */
    size_t wide;      /* 0 or 1: logits of a chunk and the whole vocabulary stay */
} exo_head_shape;

/* The products of one plan; [whole chunk or the last][whole block or the last]. */
typedef struct exo_head_plan {
    exo_head_shape shape;
    size_t chunk, block;   /* rows, and elements of the vocabulary                                               */
    size_t chunks, blocks; /* how many                                                                           */
    size_t span;           /* chunks for which gradients are computed at a time: parts of dx take memory for each */
    exo_gemm *logits[2][2], *grad_x[2][2], *grad_w[2][2];
} exo_head_plan;

exo_status exo_head_plan_init(exo_head_plan *plan, const exo_head_shape *shape, exo_err *err);
void exo_head_plan_release(exo_head_plan *plan);

/* What one pass over the rows works with. */
typedef struct exo_head {
    exo_head_plan *plan;
    const void *x;          /* (rows, width) of dtype                                                     */
    const float *weight;    /* (vocabulary, width)                                                        */
    const void *cast;       /* the same of dtype; NULL: `weight` is, or its blocks are cast one at a time */
    const int32_t *targets; /* NULL: for the entropy */
    float scale;
    /* results, (rows): */
    float *log_sum, *picked; /* picked: scale logit[r, target[r]]; where the target is negative nothing */
    float *entropy;          /* without targets; for gradients what forward gave                        */
    /* for gradients: */
    const float *factor; /* (rows), with `scale` in it; 0 where the target is negative; NULL: no gradients        */
    float *dx, *dweight; /* added to; dx may be NULL, dweight too                                                 */
    exo_tensor *open;    /* in place of dweight: a parameter that takes whole rows (exo_tape_give_rows); NULL: none */
    exo_tape *tape;
    /* from the tape; of each runner but for partials: */
    float *buffer;    /* chunk x block: the logits; wide: chunk x vocabulary, one for all     */
    float *sums;      /* blocks x rows (wide: chunk) x 2, for entropies x 3, one for all      */
    char *gradients;  /* chunk x block of dtype                                               */
    char *block_cast; /* block x width of dtype                                               */
    float *rows;      /* block x width: the gradient of weights of an open parameter          */
    float *partials;  /* lanes x span x chunk x width: parts of dx                            */
} exo_head;

/* Takes the buffers from the tape; false: recorded there. */
bool exo_head_open(exo_head *head, exo_tape *tape);
void exo_head_close(exo_head *head);
/* All log_sum and picked; a wide head computes gradients with them if there are factors. */
exo_status exo_head_forward(exo_head *head, exo_err *err);
/* The gradients of a head that is not wide, after its forward: from x, weight, log_sum and factor. An open parameter needs one span. */
exo_status exo_head_backward(exo_head *head, exo_err *err);

#endif
