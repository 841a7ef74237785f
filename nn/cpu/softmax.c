/* Softmax over parts of rows, vectorized: see softmax.h. */
#include "nn/cpu/softmax.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/typed.h"
#include "nn/cpu/vector_math.h"

enum {
    LANES = 16
};

static float
row_max(const float *restrict x, size_t columns, float scale)
{
    float max[LANES];
    for (int l = 0; l < LANES; l++)
        max[l] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= columns; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float v = x[i + (size_t)l] * scale;
            max[l] = v > max[l] ? v : max[l];
        }
    for (int l = 0; i < columns; i++, l++)
        max[l] = x[i] * scale > max[l] ? x[i] * scale : max[l];
    for (int l = 1; l < LANES; l++)
        max[0] = max[l] > max[0] ? max[l] : max[0];
    return max[0];
}

static float
row_sum(const float *restrict x, size_t columns, float scale, float max)
{
    float sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= columns; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += exo_vexp(x[i + (size_t)l] * scale - max);
    for (int l = 0; i < columns; i++, l++)
        sum[l] += exo_vexp(x[i] * scale - max);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

void
exo_softmax_part(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                 float *max, float *sum)
{
    for (size_t r = 0; r < rows; r++) {
        max[r] = row_max(x + r * stride, columns, scale);
        sum[r] = row_sum(x + r * stride, columns, scale, max[r]);
    }
}

void
exo_log_sum_add(exo_log_sum *all, float max, float sum)
{
    if (max > all->max) {
        all->sum = all->sum * exp((double)(all->max - max)) + (double)sum;
        all->max = max;
    } else if (max > -INFINITY) { /* else all terms of the part are 0 */
        all->sum += (double)sum * exp((double)(max - all->max));
    }
}

double
exo_log_sum_value(const exo_log_sum *all)
{
    return (double)all->max + log(all->sum);
}

double
exo_softmax_log_sum(const float *x, size_t columns, float scale)
{
    exo_log_sum all = EXO_NO_TERMS;
    for (size_t first = 0; first < columns; first += EXO_LOG_SUM_PART) {
        size_t left = columns - first, count = left < EXO_LOG_SUM_PART ? left : EXO_LOG_SUM_PART;
        float max, sum;
        exo_softmax_part(x + first, 1, count, count, scale, &max, &sum);
        exo_log_sum_add(&all, max, sum);
    }
    return exo_log_sum_value(&all);
}

EXO_INLINED void
scaled(const float *x, size_t rows, size_t stride, size_t columns, float scale,
       const float *log_sum, const float *factor, exo_dtype type, void *y)
{
    for (size_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * stride;
        void *restrict out = (char *)y + r * columns * (type == EXO_BF16 ? 2 : 4);
        const float off = log_sum[r], by = factor[r];
        if (by == 0.0f) { /* a row without a target, whose logits may be infinite */
            memset(out, 0, columns * (type == EXO_BF16 ? 2 : 4));
            continue;
        }
        for (size_t i = 0; i < columns; i++)
            exo_store(type, out, i, by * exo_vexp(in[i] * scale - off));
    }
}

void
exo_softmax_scaled(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                   const float *log_sum, const float *factor, exo_dtype type, void *y)
{
    if (type == EXO_BF16)
        scaled(x, rows, stride, columns, scale, log_sum, factor, EXO_BF16, y);
    else
        scaled(x, rows, stride, columns, scale, log_sum, factor, EXO_F32, y);
}

/* The sums of one row; see exo_softmax_margins. Columns after the last are logits of -infinity. */
static void
row_margins(const float *restrict x, size_t columns, float scale, float top, float *sum,
            float *margin)
{
    float sums[LANES] = {0}, last[LANES];
    double margins[LANES] = {0};
    for (size_t i = 0; i < columns; i += LANES) {
        const float *restrict in = x + i;
        if (columns - i < LANES) {
            for (size_t l = 0; l < LANES; l++)
                last[l] = i + l < columns ? x[i + l] : -INFINITY;
            in = last;
        }
        for (int l = 0; l < LANES; l++) {
            float below = (top - in[l]) * scale, e = exo_vexp(-below);
            below = e > 0.0f ? below : 0.0f; /* not infinity times 0 */
            sums[l] += e;
            margins[l] += (double)(below * e);
        }
    }
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) {
            sums[l] += sums[l + half];
            margins[l] += margins[l + half];
        }
    *sum = sums[0];
    *margin = (float)margins[0];
}

void
exo_softmax_margins(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                    float *top, float *sum, float *margin)
{
    for (size_t r = 0; r < rows; r++) {
        top[r] = row_max(x + r * stride, columns, 1.0f);
        row_margins(x + r * stride, columns, scale, top[r], &sum[r], &margin[r]);
    }
}

EXO_INLINED void
entropy_gradient(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                 const float *log_sum, const float *entropy, const float *factor, exo_dtype type,
                 void *y)
{
    for (size_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * stride;
        void *restrict out = (char *)y + r * columns * (type == EXO_BF16 ? 2 : 4);
        for (size_t i = 0; i < columns; i++) {
            float log_p = in[i] * scale - log_sum[r], p = exo_vexp(log_p);
            exo_store(type, out, i, p > 0.0f ? factor[r] * p * (log_p + entropy[r]) : 0.0f);
        }
    }
}

void
exo_softmax_entropy(const float *x, size_t rows, size_t stride, size_t columns, float scale,
                    const float *log_sum, const float *entropy, const float *factor, exo_dtype type,
                    void *y)
{
    if (type == EXO_BF16)
        entropy_gradient(x, rows, stride, columns, scale, log_sum, entropy, factor, EXO_BF16, y);
    else
        entropy_gradient(x, rows, stride, columns, scale, log_sum, entropy, factor, EXO_F32, y);
}
