/* Softmax over parts of rows, for a head whose logits are never in memory as a whole. Sums over a
 * row have 16 partial sums, in a fixed order. No state. Read next: softmax.c. */
#ifndef EXO_CPU_SOFTMAX_H
#define EXO_CPU_SOFTMAX_H

#include <math.h>

#include <exogym/tensor.h>

/* For each row of x (rows, columns), rows `stride` elements apart: max is the largest scale x, and
 * sum the sum of e^(scale x - max). */
void exo_softmax_part(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                      float *max, float *sum);
/* A sum of exponentials under way: max + log(sum) is the logarithm of the terms so far. It begins
 * as EXO_NO_TERMS. */
typedef struct exo_log_sum {
    float max;
    double sum;
} exo_log_sum;
#define EXO_NO_TERMS ((exo_log_sum){.max = -INFINITY})
/* Adds the terms of a part, of which `max` and `sum` are those of exo_softmax_part. The bits depend
 * on the order of the parts. */
void exo_log_sum_add(exo_log_sum *all, float max, float sum);
double exo_log_sum_value(const exo_log_sum *all);
/* log sum_v e^(scale x[v]) of one row, in parts of EXO_LOG_SUM_PART columns, in their order. So
 * log-probabilities of tokens have the same bits in a pass and in generation. */
enum {
    EXO_LOG_SUM_PART = 256
};
double exo_softmax_log_sum(const float *x, size_t columns, float scale);
/* y (rows, columns) of `type` = factor[row] * e^(scale x - log_sum[row]). */
void exo_softmax_scaled(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                        const float *log_sum, const float *factor, exo_dtype type, void *y);
/* For each row: top is the largest x, sum the sum of e^-d, and margin that of d e^-d, where d =
 * scale (top - x). A difference of logits has no error of their size, as scale x has. */
void exo_softmax_margins(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                         float *top, float *sum, float *margin);
/* y (rows, columns) of `type` = factor[row] * p (log p + entropy[row]), where log p = scale x -
 * log_sum[row]. */
void exo_softmax_entropy(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                         const float *log_sum, const float *entropy, const float *factor,
                         exo_dtype type, void *y);

#endif
