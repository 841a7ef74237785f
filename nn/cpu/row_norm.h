/* Normalization of rows: layer norm (centered) and RMS norm.
 *
 *     x^ = (x - mean) / sqrt(variance + eps)
 *     y  = x^ weight + bias
 *     dx = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + eps), g = dy weight
 *
 * RMS norm has mean = 0, variance = mean(x^2), and no term mean(g).
 *
 * Sums over a row have 16 partial sums, in a fixed order: the same bits on every machine. No state.
 * Read next: row_norm.c. */
#ifndef EXO_CPU_ROW_NORM_H
#define EXO_CPU_ROW_NORM_H

#include <exogym/tensor.h>

typedef struct exo_row_norm {
    size_t width;
    bool centered;
    float eps;
    const float *weight, *bias; /* (width); bias may be NULL */
} exo_row_norm;

/* x (rows, width) fp32 -> y of `type`. For backward it writes mean (rows), only if centered, and
 * inverse (rows), 1 / sqrt(variance + eps). */
void exo_row_norm_forward(const exo_row_norm *norm, size_t rows, const float *x, exo_dtype type,
                          void *y, float *mean, float *inverse);
/* dx (rows, width) from dy of `type`, added to dx if `add`. Adds to dweight and dbias (width),
 * each of which may be NULL. */
void exo_row_norm_backward(const exo_row_norm *norm, size_t rows, const float *x, const float *mean,
                           const float *inverse, exo_dtype type, const void *dy, float *dx,
                           bool add, float *dweight, float *dbias);

#endif
