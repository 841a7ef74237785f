/* Plain kernels: one loop for each dimension, fp32 in and out, row-major (N, C, H, W). They define
 * the results of the fast kernels. Only tests use them.
 *
 * Sums are in double, except the gradients of convolutions, which accumulate in fp32. Backward
 * kernels overwrite their outputs. No state. Read next: ref.c; ref_device.h. */
#ifndef EXO_REF_H
#define EXO_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exo_ref_conv {
    size_t batch, in_channels, height, width;         /* x (N, C, H, W)      */
    size_t out_channels, kernel_height, kernel_width; /* weight (O, C, R, S) */
    size_t stride, padding;
    size_t out_height, out_width; /* y (N, O, H', W')    */
} exo_ref_conv;

/* Fills in out_height and out_width. */
void exo_ref_conv_plan(exo_ref_conv *shape);
/* y = the convolution of x. bias (O) may be NULL. */
void exo_ref_conv_forward(const exo_ref_conv *shape, const float *x, const float *weight,
                          const float *bias, float *y);
/* The gradients of x, weight and bias, each of which may be NULL. */
void exo_ref_conv_backward(const exo_ref_conv *shape, const float *x, const float *weight,
                           const float *dy, float *dx, float *dweight, float *dbias);

/* x (N, C, area) -> y. In training the statistics are those of the batch, and update the running
 * ones. Otherwise they are the running ones. */
void exo_ref_batch_norm_forward(size_t batch, size_t channels, size_t area, const float *x,
                                const float *gamma, const float *beta, float *running_mean,
                                float *running_var, float eps, float momentum, bool train,
                                float *y);
/* running_mean and running_var are read only outside training. */
void exo_ref_batch_norm_backward(size_t batch, size_t channels, size_t area, const float *x,
                                 const float *gamma, const float *running_mean,
                                 const float *running_var, const float *dy, float eps, bool train,
                                 float *dx, float *dgamma, float *dbeta);

void exo_ref_relu_forward(size_t count, const float *x, float *y);
void exo_ref_relu_backward(size_t count, const float *x, const float *dy, float *dx);

/* x (planes, height, width) -> y (planes, height / size, width / size). */
void exo_ref_max_pool_forward(size_t planes, size_t height, size_t width, size_t size,
                              const float *x, float *y);
void exo_ref_max_pool_backward(size_t planes, size_t height, size_t width, size_t size,
                               const float *x, const float *dy, float *dx);

/* x (N, D), weight (O, D), bias (O) or NULL -> y (N, O). */
void exo_ref_linear_forward(size_t batch, size_t in, size_t out, const float *x,
                            const float *weight, const float *bias, float *y);
void exo_ref_linear_backward(size_t batch, size_t in, size_t out, const float *x,
                             const float *weight, const float *dy, float *dx, float *dweight,
                             float *dbias);

/* Returns the mean loss over the batch; dlogits (N, K) is its gradient. */
double exo_ref_cross_entropy(size_t batch, size_t classes, const float *logits,
                             const int32_t *labels, float *dlogits);

/* y = keep ? x / (1 - p) : 0. keep (entries); x and y (entries, area): `area` elements share an
 * entry of keep. */
void exo_ref_dropout(size_t entries, size_t area, float p, const uint8_t *keep, const float *x,
                     float *y);

#endif
