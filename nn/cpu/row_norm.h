/* Normalization of rows: layer norm (centered) and RMS norm.
 *
 *     x^ = (x - mean) / sqrt(variance + eps), y = x^ weight + bias        without centering mean = 0, variance = mean(x^2), no bias
 *     dx = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + eps), g = dy weight
 *
 * Sums over a row go by lanes of 16 in a fixed order: the same bits on every machine. */
#ifndef EXO_CPU_ROW_NORM_H
#define EXO_CPU_ROW_NORM_H

#include <exogym/tensor.h>

typedef struct exo_row_norm {
    size_t width;
    bool centered;
    float eps;
    const float *weight, *bias; /* (width); bias may be NULL */
} exo_row_norm;

/* x (rows, width) fp32 -> y of `type`; mean (rows; not without centering) and inverse (rows), 1 / sqrt(variance + eps), are kept for
 * backward. */
void exo_row_norm_forward(const exo_row_norm *norm, size_t rows, const float *x, exo_dtype type,
                          void *y, float *mean, float *inverse);
/* dx (rows, width) from dy of `type`; adds to dweight and dbias (width), each of which may be NULL. */
void exo_row_norm_backward(const exo_row_norm *norm, size_t rows, const float *x, const float *mean,
                           const float *inverse, exo_dtype type, const void *dy, float *dx,
                           bool add, float *dweight, float *dbias);

#endif
