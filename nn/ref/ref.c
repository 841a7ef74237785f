/* Plain kernels: see ref.h. No state. */
#include "nn/ref/ref.h"

#include <math.h>
#include <string.h>

void
exo_ref_conv_plan(exo_ref_conv *s)
{
    s->out_height = (s->height + 2 * s->padding - s->kernel_height) / s->stride + 1;
    s->out_width = (s->width + 2 * s->padding - s->kernel_width) / s->stride + 1;
}

/* The row and column of x under tap (r, t) of the window at (h, w). False: they are in the
 * padding. */
static bool
tap(const exo_ref_conv *s, size_t h, size_t w, size_t r, size_t t, size_t *row, size_t *column)
{
    *row = h * s->stride + r - s->padding; /* a negative value wraps around, and is too large */
    *column = w * s->stride + t - s->padding;
    return *row < s->height && *column < s->width;
}

void
exo_ref_conv_forward(const exo_ref_conv *s, const float *x, const float *weight, const float *bias,
                     float *y)
{
    size_t row, column;
    for (size_t n = 0; n < s->batch; n++)
        for (size_t o = 0; o < s->out_channels; o++)
            for (size_t h = 0; h < s->out_height; h++)
                for (size_t w = 0; w < s->out_width; w++) {
                    double sum = bias ? (double)bias[o] : 0;
                    for (size_t c = 0; c < s->in_channels; c++)
                        for (size_t r = 0; r < s->kernel_height; r++)
                            for (size_t t = 0; t < s->kernel_width; t++)
                                if (tap(s, h, w, r, t, &row, &column))
                                    sum += (double)x[((n * s->in_channels + c) * s->height + row) *
                                                         s->width +
                                                     column] *
                                           (double)
                                               weight[((o * s->in_channels + c) * s->kernel_height +
                                                       r) *
                                                          s->kernel_width +
                                                      t];
                    y[((n * s->out_channels + o) * s->out_height + h) * s->out_width + w] =
                        (float)sum;
                }
}

/* Adds the share of one output element to the gradients. */
static void
conv_backward_at(const exo_ref_conv *s, size_t n, size_t o, size_t h, size_t w, const float *x,
                 const float *weight, float dy, float *dx, float *dweight)
{
    size_t row, column;
    for (size_t c = 0; c < s->in_channels; c++)
        for (size_t r = 0; r < s->kernel_height; r++)
            for (size_t t = 0; t < s->kernel_width; t++) {
                if (!tap(s, h, w, r, t, &row, &column))
                    continue;
                size_t xi = ((n * s->in_channels + c) * s->height + row) * s->width + column;
                size_t wi = ((o * s->in_channels + c) * s->kernel_height + r) * s->kernel_width + t;
                if (dx)
                    dx[xi] += dy * weight[wi];
                if (dweight)
                    dweight[wi] += dy * x[xi];
            }
}

void
exo_ref_conv_backward(const exo_ref_conv *s, const float *x, const float *weight, const float *dy,
                      float *dx, float *dweight, float *dbias)
{
    if (dx)
        memset(dx, 0, s->batch * s->in_channels * s->height * s->width * sizeof *dx);
    if (dweight)
        memset(dweight, 0,
               s->out_channels * s->in_channels * s->kernel_height * s->kernel_width *
                   sizeof *dweight);
    if (dbias)
        memset(dbias, 0, s->out_channels * sizeof *dbias);
    for (size_t n = 0; n < s->batch; n++)
        for (size_t o = 0; o < s->out_channels; o++)
            for (size_t h = 0; h < s->out_height; h++)
                for (size_t w = 0; w < s->out_width; w++) {
                    float g =
                        dy[((n * s->out_channels + o) * s->out_height + h) * s->out_width + w];
                    if (dbias)
                        dbias[o] += g;
                    conv_backward_at(s, n, o, h, w, x, weight, g, dx, dweight);
                }
}

/* The mean and the variance of a channel over the batch. */
static void
channel_statistics(size_t batch, size_t channels, size_t area, const float *x, size_t c,
                   double *mean, double *variance)
{
    double sum = 0, squares = 0, count = (double)batch * (double)area;
    for (size_t n = 0; n < batch; n++)
        for (size_t i = 0; i < area; i++)
            sum += (double)x[(n * channels + c) * area + i];
    *mean = sum / count;
    for (size_t n = 0; n < batch; n++)
        for (size_t i = 0; i < area; i++) {
            double d = (double)x[(n * channels + c) * area + i] - *mean;
            squares += d * d;
        }
    *variance = squares / count;
}

void
exo_ref_batch_norm_forward(size_t batch, size_t channels, size_t area, const float *x,
                           const float *gamma, const float *beta, float *running_mean,
                           float *running_var, float eps, float momentum, bool train, float *y)
{
    double count = (double)batch * (double)area;
    for (size_t c = 0; c < channels; c++) {
        double mean = (double)running_mean[c], variance = (double)running_var[c];
        if (train) {
            channel_statistics(batch, channels, area, x, c, &mean, &variance);
            double unbiased = count > 1 ? variance * count / (count - 1) : variance;
            running_mean[c] = (1 - momentum) * running_mean[c] + momentum * (float)mean;
            running_var[c] = (1 - momentum) * running_var[c] + momentum * (float)unbiased;
        }
        double inverse = 1.0 / sqrt(variance + (double)eps);
        for (size_t n = 0; n < batch; n++)
            for (size_t i = 0; i < area; i++) {
                size_t at = (n * channels + c) * area + i;
                y[at] =
                    (float)(((double)x[at] - mean) * inverse * (double)gamma[c] + (double)beta[c]);
            }
    }
}

void
exo_ref_batch_norm_backward(size_t batch, size_t channels, size_t area, const float *x,
                            const float *gamma, const float *running_mean, const float *running_var,
                            const float *dy, float eps, bool train, float *dx, float *dgamma,
                            float *dbeta)
{
    double count = (double)batch * (double)area;
    for (size_t c = 0; c < channels; c++) {
        double mean = (double)running_mean[c], variance = (double)running_var[c], sum = 0,
               product = 0;
        if (train)
            channel_statistics(batch, channels, area, x, c, &mean, &variance);
        double inverse = 1.0 / sqrt(variance + (double)eps);
        for (size_t n = 0; n < batch; n++)
            for (size_t i = 0; i < area; i++) {
                size_t at = (n * channels + c) * area + i;
                sum += (double)dy[at];
                product += (double)dy[at] * ((double)x[at] - mean) * inverse;
            }
        dgamma[c] = (float)product;
        dbeta[c] = (float)sum;
        for (size_t n = 0; n < batch; n++)
            for (size_t i = 0; i < area; i++) {
                size_t at = (n * channels + c) * area + i;
                double g = (double)dy[at];
                if (train)
                    g -= sum / count + ((double)x[at] - mean) * inverse * product / count;
                dx[at] = (float)(g * (double)gamma[c] * inverse);
            }
    }
}

void
exo_ref_relu_forward(size_t count, const float *x, float *y)
{
    for (size_t i = 0; i < count; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
}

void
exo_ref_relu_backward(size_t count, const float *x, const float *dy, float *dx)
{
    for (size_t i = 0; i < count; i++)
        dx[i] = x[i] > 0 ? dy[i] : 0;
}

/* The index, in its plane, of the first largest element of a window. */
static size_t
window_winner(const float *plane, size_t width, size_t size, size_t h, size_t w)
{
    size_t best = h * size * width + w * size;
    for (size_t r = 0; r < size; r++)
        for (size_t t = 0; t < size; t++) {
            size_t at = (h * size + r) * width + w * size + t;
            if (plane[at] > plane[best])
                best = at;
        }
    return best;
}

void
exo_ref_max_pool_forward(size_t planes, size_t height, size_t width, size_t size, const float *x,
                         float *y)
{
    size_t rows = height / size, columns = width / size;
    for (size_t p = 0; p < planes; p++)
        for (size_t h = 0; h < rows; h++)
            for (size_t w = 0; w < columns; w++) {
                const float *plane = x + p * height * width;
                y[(p * rows + h) * columns + w] = plane[window_winner(plane, width, size, h, w)];
            }
}

void
exo_ref_max_pool_backward(size_t planes, size_t height, size_t width, size_t size, const float *x,
                          const float *dy, float *dx)
{
    size_t rows = height / size, columns = width / size;
    memset(dx, 0, planes * height * width * sizeof *dx);
    for (size_t p = 0; p < planes; p++)
        for (size_t h = 0; h < rows; h++)
            for (size_t w = 0; w < columns; w++) {
                size_t at = window_winner(x + p * height * width, width, size, h, w);
                dx[p * height * width + at] += dy[(p * rows + h) * columns + w];
            }
}

void
exo_ref_linear_forward(size_t batch, size_t in, size_t out, const float *x, const float *weight,
                       const float *bias, float *y)
{
    for (size_t n = 0; n < batch; n++)
        for (size_t o = 0; o < out; o++) {
            double sum = bias ? (double)bias[o] : 0;
            for (size_t d = 0; d < in; d++)
                sum += (double)x[n * in + d] * (double)weight[o * in + d];
            y[n * out + o] = (float)sum;
        }
}

void
exo_ref_linear_backward(size_t batch, size_t in, size_t out, const float *x, const float *weight,
                        const float *dy, float *dx, float *dweight, float *dbias)
{
    for (size_t n = 0; n < batch; n++)
        for (size_t d = 0; d < in; d++) {
            double sum = 0;
            for (size_t o = 0; o < out; o++)
                sum += (double)dy[n * out + o] * (double)weight[o * in + d];
            dx[n * in + d] = (float)sum;
        }
    for (size_t o = 0; o < out; o++) {
        double bias = 0;
        for (size_t n = 0; n < batch; n++)
            bias += (double)dy[n * out + o];
        dbias[o] = (float)bias;
        for (size_t d = 0; d < in; d++) {
            double sum = 0;
            for (size_t n = 0; n < batch; n++)
                sum += (double)dy[n * out + o] * (double)x[n * in + d];
            dweight[o * in + d] = (float)sum;
        }
    }
}

double
exo_ref_cross_entropy(size_t batch, size_t classes, const float *logits, const int32_t *labels,
                      float *dlogits)
{
    double loss = 0;
    for (size_t n = 0; n < batch; n++) {
        const float *row = logits + n * classes;
        double max = (double)row[0], sum = 0;
        for (size_t k = 1; k < classes; k++)
            max = fmax(max, (double)row[k]);
        for (size_t k = 0; k < classes; k++)
            sum += exp((double)row[k] - max);
        loss += log(sum) - ((double)row[labels[n]] - max);
        for (size_t k = 0; k < classes; k++)
            dlogits[n * classes + k] =
                (float)((exp((double)row[k] - max) / sum - (k == (size_t)labels[n] ? 1.0 : 0.0)) /
                        (double)batch);
    }
    return loss / (double)batch;
}

void
exo_ref_dropout(size_t entries, size_t area, float p, const uint8_t *keep, const float *x, float *y)
{
    for (size_t e = 0; e < entries; e++)
        for (size_t i = 0; i < area; i++)
            y[e * area + i] = keep[e] ? x[e * area + i] / (1 - p) : 0;
}
