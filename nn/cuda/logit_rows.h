/* Rows of a wide head's logits in bf16: their log-sums, and their gradients in their place. No
 * state. Read next: logit_rows.cu. */
#ifndef EXO_CUDA_LOGIT_ROWS_H
#define EXO_CUDA_LOGIT_ROWS_H

#include "nn/cuda/device.h"
#include "nn/cuda/grid.h"

/* For each row, with z[v] = scale logit[v]:
 *
 *     log_sum = log sum_v e^z[v]
 *     picked = z[target], if the target is not negative
 *     logit[v] = factor (e^(z[v] - log_sum) - [v = target]), rounded to bf16; 0 where the factor is
 *
 * scale is above 0. Rows of logits begin every `pitch` elements, each at a multiple of 16 bytes, and
 * have room for a multiple of 8 columns. */
typedef struct exo_cuda_logit_rows_args {
    size_t rows, columns, pitch;
    float scale;
    exo_cuda_bf16 *logits; /* (rows, pitch) */
    const int32_t *targets;
    const float *factor;     /* NULL: the logits stay */
    float *log_sum, *picked; /* (rows); picked may be NULL */
} exo_cuda_logit_rows_args;

void exo_cuda_logit_rows(exo_cuda_device *cuda, const exo_cuda_logit_rows_args *k);

#endif
