/* Vectorized kernels over ranges of plain memory, for operations that oneDNN lacks, or that run
 * faster in one pass.
 *
 * A call computes one piece; callers run many pieces at the same time. Images are channels-last,
 * so a row is the channels of one pixel. `type`, EXO_F32 or EXO_BF16, is the type of images and
 * their gradients; statistics and parameters are fp32. With `add` a kernel adds to its output
 * instead of overwriting it. Sums have one order, that of the rows. No state. Read next:
 * kernels_typed.h. */
#ifndef EXO_CPU_KERNELS_H
#define EXO_CPU_KERNELS_H

#include <exogym/tensor.h>

/* sum (channels) += x - shift; squares (channels) += (x - shift)^2, over `rows` rows. */
void exo_bn_sums(exo_dtype type, const void *x, size_t rows, size_t channels, const float *shift,
                 double *sum, double *squares);
/* y = scale * x + shift, and max(y, 0) if relu. */
void exo_bn_apply(exo_dtype type, const void *x, void *y, size_t rows, size_t channels,
                  const float *scale, const float *shift, bool relu);
/* sum_dy += dy; sum_dyx += dy * (x - mean). With relu, dy counts as 0 where scale * x + shift is
 * at most 0. */
void exo_bn_grad_sums(exo_dtype type, const void *x, const void *dy, size_t rows, size_t channels,
                      const float *mean, const float *scale, const float *shift, bool relu,
                      double *sum_dy, double *sum_dyx);
/* dx = k_dy * dy + k_x * x + k_1, with the same rule for dy; dx may be dy. */
void exo_bn_grad_apply(exo_dtype type, const void *x, const void *dy, void *dx, size_t rows,
                       size_t channels, const float *scale, const float *shift, bool relu,
                       const float *k_dy, const float *k_x, const float *k_1, bool add);

void exo_relu_forward(exo_dtype type, const void *x, void *y, size_t count);
/* dx = dy where y > 0, else 0; dx may be dy. */
void exo_relu_backward(exo_dtype type, const void *y, const void *dy, void *dx, size_t count,
                       bool add);

/* One sample: x (height, width, channels) -> y (height / size, width / size, channels), and
 * winner, of y's shape: the number of the window's largest element, 0 .. size * size - 1. */
void exo_max_pool_forward(exo_dtype type, const void *x, void *y, uint8_t *winner, size_t height,
                          size_t width, size_t channels, size_t size);
void exo_max_pool_backward(exo_dtype type, const void *dy, const uint8_t *winner, void *dx,
                           size_t height, size_t width, size_t channels, size_t size, bool add);

/* y = keep ? x * factor : 0; y may be x. */
void exo_mask_scale(exo_dtype type, const void *x, void *y, const uint8_t *keep, size_t count,
                    float factor, bool add);
/* y (rows, channels) = x * factor (channels); y may be x. */
void exo_channel_scale(exo_dtype type, const void *x, void *y, const float *factor, size_t rows,
                       size_t channels, bool add);

/* y = x in another type. */
void exo_cast(exo_dtype from, const void *x, exo_dtype to, void *y, size_t count);
/* Writes x[0] + x[1] + ..., in this order, to each y; each is (count). y may be x, in any order of
 * the arrays; otherwise they do not overlap. divisor: the sum is divided by it; 0: it is not. */
void exo_sum_fp32(const float *const *x, size_t num_x, float *const *y, size_t num_y, float divisor,
                  size_t count);
/* The same of integers of `size` bytes (1, 4 or 8), which wrap. */
void exo_sum_integers(size_t size, const void *const *x, size_t num_x, void *const *y, size_t num_y,
                      size_t count);
/* y += x. */
void exo_accumulate(exo_dtype type, const void *x, void *y, size_t count);
/* sum (columns) += each row of x. The rows are `stride` elements apart. */
void exo_column_sums(exo_dtype type, const void *x, size_t rows, size_t stride, size_t columns,
                     double *sum);
/* Transposes x (rows, columns) to y (columns, rows). */
void exo_transpose(exo_dtype type, const void *x, void *y, size_t rows, size_t columns, bool add);

#endif
