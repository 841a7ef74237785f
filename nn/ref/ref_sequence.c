/* Plain kernels of language models' operations: see ref_sequence.h. */
#include "nn/ref/ref_sequence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

static const double root_2_pi = 0.79788456080286535588; /* sqrt(2 / pi) */

double
exo_ref_activation(exo_activation activation, double x)
{
    switch (activation) {
    case EXO_LINEAR:
        return x;
    case EXO_RELU:
        return x > 0 ? x : 0;
    case EXO_GELU:
        return x * 0.5 * erfc(-x / sqrt(2.0));
    case EXO_GELU_TANH:
        return 0.5 * x * (1 + tanh(root_2_pi * (x + 0.044715 * x * x * x)));
    case EXO_SILU:
        return x / (1 + exp(-x));
    }
    return NAN;
}

double
exo_ref_activation_slope(exo_activation activation, double x)
{
    double t, s;
    switch (activation) {
    case EXO_LINEAR:
        return 1;
    case EXO_RELU:
        return x > 0 ? 1 : 0;
    case EXO_GELU:
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-0.5 * x * x) * root_2_pi / 2;
    case EXO_GELU_TANH:
        t = tanh(root_2_pi * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_pi * (1 + 3 * 0.044715 * x * x);
    case EXO_SILU:
        s = 1 / (1 + exp(-x));
        return s * (1 + x * (1 - s));
    }
    return NAN;
}

static void
row_moments(size_t width, bool centered, float eps, const float *x, double *mean, double *inverse)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; centered && i < width; i++)
        sum += (double)x[i];
    *mean = sum / (double)width;
    for (size_t i = 0; i < width; i++)
        squares += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *inverse = 1 / sqrt(squares / (double)width + (double)eps);
}

void
exo_ref_row_norm_forward(size_t rows, size_t width, bool centered, float eps, const float *x,
                         const float *weight, const float *bias, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        double mean, inverse;
        row_moments(width, centered, eps, x + r * width, &mean, &inverse);
        for (size_t i = 0; i < width; i++)
            y[r * width + i] =
                (float)(((double)x[r * width + i] - mean) * inverse * (double)weight[i] +
                        (bias ? (double)bias[i] : 0));
    }
}

void
exo_ref_row_norm_backward(size_t rows, size_t width, bool centered, float eps, const float *x,
                          const float *weight, const float *dy, float *dx, float *dweight,
                          float *dbias)
{
    memset(dweight, 0, width * sizeof *dweight);
    memset(dbias, 0, width * sizeof *dbias);
    for (size_t r = 0; r < rows; r++) {
        const float *in = x + r * width, *d = dy + r * width;
        double mean, inverse, g = 0, gx = 0;
        row_moments(width, centered, eps, in, &mean, &inverse);
        for (size_t i = 0; i < width; i++) {
            g += (double)d[i] * (double)weight[i];
            gx += (double)d[i] * (double)weight[i] * ((double)in[i] - mean) * inverse;
        }
        g = centered ? g / (double)width : 0;
        gx /= (double)width;
        for (size_t i = 0; i < width; i++) {
            double hat = ((double)in[i] - mean) * inverse;
            dx[r * width + i] =
                (float)(inverse * ((double)d[i] * (double)weight[i] - g - hat * gx));
            dweight[i] += (float)((double)d[i] * hat);
            dbias[i] += d[i];
        }
    }
}

void
exo_ref_log_probs(size_t rows, size_t width, size_t vocabulary, float scale, const float *x,
                  const float *weight, const int32_t *targets, float *logp, const float *dlogp,
                  float *dx, float *dweight)
{
    double *logits = exo_calloc(vocabulary, sizeof *logits);
    double *sum_w = exo_calloc(dweight ? vocabulary * width : 1, sizeof *sum_w);
    for (size_t r = 0; logits && sum_w && r < rows; r++) {
        double max = -INFINITY, sum = 0;
        for (size_t v = 0; v < vocabulary; v++) {
            double dot = 0;
            for (size_t i = 0; i < width; i++)
                dot += (double)x[r * width + i] * (double)weight[v * width + i];
            logits[v] = dot * (double)scale;
            max = fmax(max, logits[v]);
        }
        for (size_t v = 0; v < vocabulary; v++)
            sum += exp(logits[v] - max);
        bool counts = targets[r] >= 0;
        logp[r] = counts ? (float)(logits[targets[r]] - max - log(sum)) : 0.0f;
        for (size_t i = 0; dx && i < width; i++)
            dx[r * width + i] = 0.0f;
        for (size_t v = 0; counts && v < vocabulary; v++) {
            double d = (double)dlogp[r] * (double)scale *
                       ((v == (size_t)targets[r]) - exp(logits[v] - max) / sum);
            for (size_t i = 0; i < width; i++) {
                if (dx)
                    dx[r * width + i] += (float)(d * (double)weight[v * width + i]);
                if (dweight)
                    sum_w[v * width + i] += d * (double)x[r * width + i];
            }
        }
    }
    for (size_t i = 0; dweight && sum_w && i < vocabulary * width; i++)
        dweight[i] = (float)sum_w[i];
    exo_free(logits);
    exo_free(sum_w);
}
