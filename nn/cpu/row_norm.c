/* Normalization of rows, vectorized: see row_norm.h. */
#include "nn/cpu/row_norm.h"

#include <math.h>

#include "nn/cpu/typed.h"

enum {
    LANES = 16
};

/* The sum of the lanes, by halves, as for a register. */
EXO_INLINED float
fold(const float lanes[LANES])
{
    float s[LANES];
    for (int l = 0; l < LANES; l++)
        s[l] = lanes[l];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            s[l] += s[l + half];
    return s[0];
}

EXO_INLINED float
row_sum(const float *restrict x, size_t width)
{
    float sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += x[i + (size_t)l];
    for (int l = 0; i < width; i++, l++)
        sum[l] += x[i];
    return fold(sum);
}

EXO_INLINED float
row_squares(const float *restrict x, size_t width, float around)
{
    float sum[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= width; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float d = x[i + (size_t)l] - around;
            sum[l] += d * d;
        }
    for (int l = 0; i < width; i++, l++)
        sum[l] += (x[i] - around) * (x[i] - around);
    return fold(sum);
}

EXO_INLINED void
forward(const exo_row_norm *n, size_t rows, const float *x, exo_dtype type, void *y, float *means,
        float *inverses)
{
    const size_t width = n->width;
    const float *restrict weight = n->weight, *restrict bias = n->bias;
    for (size_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * width;
        float mean = n->centered ? row_sum(in, width) / (float)width : 0.0f;
        float inverse = 1.0f / sqrtf(row_squares(in, width, mean) / (float)width + n->eps);
        if (n->centered)
            means[r] = mean;
        inverses[r] = inverse;
        if (type == EXO_BF16) {
            uint16_t *restrict out = (uint16_t *)y + r * width;
            for (size_t i = 0; i < width; i++)
                out[i] =
                    exo_to_bf16((in[i] - mean) * inverse * weight[i] + (bias ? bias[i] : 0.0f));
        } else {
            float *restrict out = (float *)y + r * width;
            for (size_t i = 0; i < width; i++)
                out[i] = (in[i] - mean) * inverse * weight[i] + (bias ? bias[i] : 0.0f);
        }
    }
}

void
exo_row_norm_forward(const exo_row_norm *norm, size_t rows, const float *x, exo_dtype type, void *y,
                     float *mean, float *inverse)
{
    if (type == EXO_BF16)
        forward(norm, rows, x, EXO_BF16, y, mean, inverse);
    else
        forward(norm, rows, x, EXO_F32, y, mean, inverse);
}

/* The means of g and of g x^ over a row. */
EXO_INLINED void
row_means(const exo_row_norm *n, const float *restrict x, float mean, float inverse, exo_dtype type,
          const void *restrict dy, float *mean_g, float *mean_gx)
{
    const float *restrict weight = n->weight;
    float g[LANES] = {0}, gx[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n->width; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float d = exo_load(type, dy, i + (size_t)l) * weight[i + (size_t)l];
            g[l] += d;
            gx[l] += d * ((x[i + (size_t)l] - mean) * inverse);
        }
    for (int l = 0; i < n->width; i++, l++) {
        float d = exo_load(type, dy, i) * weight[i];
        g[l] += d;
        gx[l] += d * ((x[i] - mean) * inverse);
    }
    *mean_g = n->centered ? fold(g) / (float)n->width : 0.0f;
    *mean_gx = fold(gx) / (float)n->width;
}

EXO_INLINED void
backward(const exo_row_norm *n, size_t rows, const float *x, const float *means,
         const float *inverses, exo_dtype type, const void *dy, float *dx, bool add, float *dweight,
         float *dbias)
{
    const size_t width = n->width, size = type == EXO_BF16 ? 2 : 4;
    const float *restrict weight = n->weight;
    for (size_t r = 0; r < rows; r++) {
        const float *restrict in = x + r * width;
        const void *restrict grad = (const char *)dy + r * width * size;
        float *restrict out = dx + r * width;
        float mean = n->centered ? means[r] : 0.0f, inverse = inverses[r], mean_g, mean_gx;
        row_means(n, in, mean, inverse, type, grad, &mean_g, &mean_gx);
        if (add)
            for (size_t i = 0; i < width; i++) {
                float hat = (in[i] - mean) * inverse;
                out[i] += inverse * (exo_load(type, grad, i) * weight[i] - mean_g - hat * mean_gx);
            }
        else
            for (size_t i = 0; i < width; i++) {
                float hat = (in[i] - mean) * inverse;
                out[i] = inverse * (exo_load(type, grad, i) * weight[i] - mean_g - hat * mean_gx);
            }
        if (dweight) {
            float *restrict dw = dweight;
            for (size_t i = 0; i < width; i++)
                dw[i] += exo_load(type, grad, i) * ((in[i] - mean) * inverse);
        }
        if (dbias) {
            float *restrict db = dbias;
            for (size_t i = 0; i < width; i++)
                db[i] += exo_load(type, grad, i);
        }
    }
}

void
exo_row_norm_backward(const exo_row_norm *norm, size_t rows, const float *x, const float *mean,
                      const float *inverse, exo_dtype type, const void *dy, float *dx, bool add,
                      float *dweight, float *dbias)
{
    if (type == EXO_BF16)
        backward(norm, rows, x, mean, inverse, EXO_BF16, dy, dx, add, dweight, dbias);
    else
        backward(norm, rows, x, mean, inverse, EXO_F32, dy, dx, add, dweight, dbias);
}
