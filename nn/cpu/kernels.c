/* Vectorized kernels: see kernels.h. kernels_typed.h has their bodies. This file includes the
 * bodies for fp32 and for bf16, and chooses by type. No state. */
#include "nn/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"

enum {
    STRIP = 64,     /* channels whose sums fit into registers */
    SUM_BLOCK = 128 /* rows that are summed in fp32 */
};

/* For a loop whose output may be one of its inputs, element by element: no iteration reads the
 * output of another. */
#if defined(__clang__)
#define IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IN_PLACE _Pragma("GCC ivdep")
#endif

/* An integer key in the order of the numbers. NaN has the largest key, so that the maximum with a
 * NaN is NaN, as in PyTorch. */
static inline int32_t
order_key(float x)
{
    float positive = x + 0.0f; /* makes -0 equal to 0, so that the first of them wins */
    int32_t bits;
    memcpy(&bits, &positive, sizeof bits);
    int32_t key = bits ^ (bits >> 31 & INT32_MAX);
    return (bits & INT32_MAX) > 0x7F800000 ? INT32_MAX : key;
}

static inline float
key_value(int32_t key)
{
    int32_t bits = key ^ (key >> 31 & INT32_MAX);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define T        float
#define LOAD(x)  (x)
#define STORE(x) (x)
#define NAME(f)  f##_f32
#include "nn/cpu/kernels_typed.h"

#define T        uint16_t
#define LOAD(x)  exo_from_bf16(x)
#define STORE(x) exo_to_bf16(x)
#define NAME(f)  f##_bf16
#include "nn/cpu/kernels_typed.h"

#define CHOOSE(type, f, ...)                                                                       \
    do {                                                                                           \
        if ((type) == EXO_BF16)                                                                    \
            f##_bf16(__VA_ARGS__);                                                                 \
        else                                                                                       \
            f##_f32(__VA_ARGS__);                                                                  \
    } while (0)

void
exo_bn_sums(exo_dtype type, const void *x, size_t rows, size_t channels, const float *shift,
            double *sum, double *squares)
{
    CHOOSE(type, bn_sums, x, rows, channels, shift, sum, squares);
}

void
exo_bn_apply(exo_dtype type, const void *x, void *y, size_t rows, size_t channels,
             const float *scale, const float *shift, bool relu)
{
    CHOOSE(type, bn_apply, x, y, rows, channels, scale, shift, relu);
}

void
exo_bn_grad_sums(exo_dtype type, const void *x, const void *dy, size_t rows, size_t channels,
                 const float *mean, const float *scale, const float *shift, bool relu,
                 double *sum_dy, double *sum_dyx)
{
    CHOOSE(type, bn_grad_sums, x, dy, rows, channels, mean, scale, shift, relu, sum_dy, sum_dyx);
}

void
exo_bn_grad_apply(exo_dtype type, const void *x, const void *dy, void *dx, size_t rows,
                  size_t channels, const float *scale, const float *shift, bool relu,
                  const float *k_dy, const float *k_x, const float *k_1, bool add)
{
    CHOOSE(type, bn_grad_apply, x, dy, dx, rows, channels, scale, shift, relu, k_dy, k_x, k_1, add);
}

void
exo_relu_forward(exo_dtype type, const void *x, void *y, size_t count)
{
    CHOOSE(type, relu_forward, x, y, count);
}

void
exo_relu_backward(exo_dtype type, const void *y, const void *dy, void *dx, size_t count, bool add)
{
    CHOOSE(type, relu_backward, y, dy, dx, count, add);
}

void
exo_max_pool_forward(exo_dtype type, const void *x, void *y, uint8_t *winner, size_t height,
                     size_t width, size_t channels, size_t size)
{
    CHOOSE(type, max_pool_forward, x, y, winner, height, width, channels, size);
}

void
exo_max_pool_backward(exo_dtype type, const void *dy, const uint8_t *winner, void *dx,
                      size_t height, size_t width, size_t channels, size_t size, bool add)
{
    CHOOSE(type, max_pool_backward, dy, winner, dx, height, width, channels, size, add);
}

void
exo_mask_scale(exo_dtype type, const void *x, void *y, const uint8_t *keep, size_t count,
               float factor, bool add)
{
    CHOOSE(type, mask_scale, x, y, keep, count, factor, add);
}

void
exo_channel_scale(exo_dtype type, const void *x, void *y, const float *factor, size_t rows,
                  size_t channels, bool add)
{
    CHOOSE(type, channel_scale, x, y, factor, rows, channels, add);
}

void
exo_cast(exo_dtype from, const void *x, exo_dtype to, void *y, size_t count)
{
    if (from == to) {
        memcpy(y, x, count * exo_dtype_size(to));
    } else if (to == EXO_BF16) {
        const float *restrict in = x;
        uint16_t *restrict out = y;
        for (size_t i = 0; i < count; i++)
            out[i] = exo_to_bf16(in[i]);
    } else {
        const uint16_t *restrict in = x;
        float *restrict out = y;
        for (size_t i = 0; i < count; i++)
            out[i] = exo_from_bf16(in[i]);
    }
}

void
exo_accumulate(exo_dtype type, const void *x, void *y, size_t count)
{
    CHOOSE(type, accumulate, x, y, count);
}

void
exo_column_sums(exo_dtype type, const void *x, size_t rows, size_t stride, size_t columns,
                double *sum)
{
    CHOOSE(type, column_sums, x, rows, stride, columns, sum);
}

void
exo_transpose(exo_dtype type, const void *x, void *y, size_t rows, size_t columns, bool add)
{
    CHOOSE(type, transpose, x, y, rows, columns, add);
}
