/* A head over a large vocabulary, a chunk of rows at a time: logits, their softmax's sums, and gradients.
 *
 *     log_sum[r] = log sum_v e^(scale logit[r, v]), logits = x weight^T
 *     d logit[r, v] = factor[r] (softmax[r, v] - [v = target[r]])
 *
 * Within a chunk the vocabulary is cut into blocks, blocks are shared out to lanes: by shapes only, so that sums have one order. */
#ifndef EXO_OPS_HEAD_H
#define EXO_OPS_HEAD_H

#include <exogym/tensor.h>

#include "gemm.h"
#include "pieces.h"

enum {
    EXO_HEAD_LANES = 8
};

/* Plain numbers: compared byte by byte. */
typedef struct exo_head_shape {
    size_t rows, width, vocabulary;
    size_t dtype;     /* of x and weight */
    size_t gradients; /* 0 or 1: wanted  */
} exo_head_shape;

/* The products of one plan; [whole chunk or the last][whole block or the last]. */
typedef struct exo_head_plan {
    exo_head_shape shape;
    size_t chunk, block;   /* rows, and elements of the vocabulary */
    size_t chunks, blocks; /* how many                             */
    exo_gemm *logits[2][2], *grad_x[2][2], *grad_w[2][2];
} exo_head_plan;

exo_status exo_head_plan_init(exo_head_plan *plan, const exo_head_shape *shape, exo_err *err);
void exo_head_plan_release(exo_head_plan *plan);

/* What one pass over the rows works with. */
typedef struct exo_head {
    exo_head_plan *plan;
    const void *x, *weight; /* of dtype */
    const int32_t *targets;
    float scale;
    /* results, (rows): */
    float *log_sum, *picked; /* picked: scale logit[r, target[r]]; where the target is negative nothing */
    /* for gradients: */
    const float *factor; /* (rows), with `scale` in it; 0 where the target is negative */
    float *dx, *dweight; /* added to; dx may be NULL, dweight too  */
    /* from the tape: */
    float *buffer;   /* chunk x vocabulary: the logits                              */
    float *sums;     /* blocks x chunk x 2                                          */
    char *blocks;    /* lanes x chunk x block of dtype; NULL without gradients      */
    float *partials; /* lanes x chunk x width: parts of dx; NULL without gradients  */
} exo_head;

/* Takes the buffers from the tape; false: recorded there. */
bool exo_head_open(exo_head *head, exo_tape *tape);
void exo_head_close(exo_head *head, exo_tape *tape);
/* The logits of a chunk, its log_sum and picked. */
exo_status exo_head_logits(exo_head *head, size_t chunk, exo_err *err);
/* After exo_head_logits of the same chunk, with `factor` set for its rows. */
exo_status exo_head_gradients(exo_head *head, size_t chunk, exo_err *err);

#endif
