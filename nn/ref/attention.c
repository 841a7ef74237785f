/* Plain causal attention: see attention.h. No state. */
#include "nn/ref/attention.h"

#include <math.h>

/* The index of element d of a token's query, key or value. `head` counts the heads of queries,
 * then those of keys, then those of values. */
static size_t
place(const exo_ref_attention *s, size_t n, size_t t, size_t head, size_t d)
{
    return ((n * s->tokens + t) * (s->heads + 2 * s->kv_heads) + head) * s->width + d;
}

/* Rotary positions: element d becomes cosine * element d + sine * element *other. */
static void
turn(const exo_ref_attention *s, size_t t, size_t d, size_t *other, double *cosine, double *sine)
{
    size_t half = s->turned / 2, i = d < half ? d : d - half;
    *other = d;
    *cosine = 1;
    *sine = 0;
    if (d >= s->turned)
        return;
    double angle = (double)t * pow(s->theta, -2.0 * (double)i / (double)s->turned);
    if (s->scaled)
        angle *= (double)s->scaled[i];
    *other = d < half ? d + half : d - half;
    *cosine = cos(angle);
    *sine = d < half ? -sin(angle) : sin(angle);
}

static double
turned(const exo_ref_attention *s, const float *x, size_t n, size_t t, size_t head, size_t d)
{
    size_t other;
    double cosine, sine;
    turn(s, t, d, &other, &cosine, &sine);
    return cosine * (double)x[place(s, n, t, head, d)] +
           sine * (double)x[place(s, n, t, head, other)];
}

/* Adds `grad`, the gradient of element d after rotary positions, to the gradients of the elements
 * from which it was computed. */
static void
add_turned(const exo_ref_attention *s, float *dx, size_t n, size_t t, size_t head, size_t d,
           double grad)
{
    size_t other;
    double cosine, sine;
    turn(s, t, d, &other, &cosine, &sine);
    dx[place(s, n, t, head, d)] += (float)(cosine * grad);
    dx[place(s, n, t, head, other)] += (float)(sine * grad);
}

static double
slope(const exo_ref_attention *s, size_t head)
{
    size_t below = 1;
    if (!s->alibi)
        return 0;
    while (2 * below <= s->heads)
        below *= 2;
    if (head < below)
        return pow(pow(2, -8.0 / (double)below), (double)(head + 1));
    return pow(pow(2, -8.0 / (double)(2 * below)), (double)(2 * (head - below) + 1));
}

static double
score(const exo_ref_attention *s, const float *x, size_t n, size_t h, size_t i, size_t j)
{
    size_t key = s->heads + h / (s->heads / s->kv_heads);
    double sum = 0;
    for (size_t d = 0; d < s->width; d++)
        sum += turned(s, x, n, i, h, d) * turned(s, x, n, j, key, d);
    return s->scale * sum + slope(s, h) * ((double)j - (double)i);
}

/* *peak: the largest score of a row. *sum: the sum of exp(score - *peak) over the row. */
static void
normalizer(const exo_ref_attention *s, const float *x, size_t n, size_t h, size_t i, double *peak,
           double *sum)
{
    *peak = -INFINITY;
    *sum = 0;
    for (size_t j = 0; j <= i; j++)
        *peak = fmax(*peak, score(s, x, n, h, i, j));
    for (size_t j = 0; j <= i; j++)
        *sum += exp(score(s, x, n, h, i, j) - *peak);
}

static double
dropout(const exo_ref_attention *s, size_t n, size_t h, size_t i, size_t j)
{
    if (!s->keep)
        return 1;
    return s->keep[((n * s->heads + h) * s->tokens + i) * s->tokens + j] ? 1 / s->kept : 0;
}

static void
row_forward(const exo_ref_attention *s, const float *x, float *y, size_t n, size_t h, size_t i)
{
    size_t value = s->heads + s->kv_heads + h / (s->heads / s->kv_heads);
    double peak, sum, total[EXO_REF_ATTENTION_WIDTH] = {0};
    normalizer(s, x, n, h, i, &peak, &sum);
    for (size_t j = 0; j <= i; j++) {
        double weight = exp(score(s, x, n, h, i, j) - peak) / sum * dropout(s, n, h, i, j);
        for (size_t d = 0; d < s->width; d++)
            total[d] += weight * (double)x[place(s, n, j, value, d)];
    }
    for (size_t d = 0; d < s->width; d++)
        y[((n * s->tokens + i) * s->heads + h) * s->width + d] = (float)total[d];
}

void
exo_ref_attention_forward(const exo_ref_attention *s, const float *x, float *y)
{
    for (size_t n = 0; n < s->sequences; n++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t i = 0; i < s->tokens; i++)
                row_forward(s, x, y, n, h, i);
}

/* The gradient of weight (i, j) after dropout: the dot product of dy_i and value_j. */
static double
weight_grad(const exo_ref_attention *s, const float *x, const float *dy, size_t n, size_t h,
            size_t i, size_t j)
{
    size_t value = s->heads + s->kv_heads + h / (s->heads / s->kv_heads);
    double sum = 0;
    for (size_t d = 0; d < s->width; d++)
        sum += (double)dy[((n * s->tokens + i) * s->heads + h) * s->width + d] *
               (double)x[place(s, n, j, value, d)];
    return sum;
}

static void
row_backward(const exo_ref_attention *s, const float *x, const float *dy, float *dx, size_t n,
             size_t h, size_t i)
{
    size_t key = s->heads + h / (s->heads / s->kv_heads), value = key + s->kv_heads;
    double peak, sum, mean = 0;
    normalizer(s, x, n, h, i, &peak, &sum);
    for (size_t j = 0; j <= i; j++)
        mean += exp(score(s, x, n, h, i, j) - peak) / sum * dropout(s, n, h, i, j) *
                weight_grad(s, x, dy, n, h, i, j);
    for (size_t j = 0; j <= i; j++) {
        double weight = exp(score(s, x, n, h, i, j) - peak) / sum, kept = dropout(s, n, h, i, j);
        double dscore = s->scale * weight * (kept * weight_grad(s, x, dy, n, h, i, j) - mean);
        for (size_t d = 0; d < s->width; d++) {
            double dout = (double)dy[((n * s->tokens + i) * s->heads + h) * s->width + d];
            dx[place(s, n, j, value, d)] += (float)(weight * kept * dout);
            add_turned(s, dx, n, i, h, d, dscore * turned(s, x, n, j, key, d));
            add_turned(s, dx, n, j, key, d, dscore * turned(s, x, n, i, h, d));
        }
    }
}

void
exo_ref_attention_backward(const exo_ref_attention *s, const float *x, const float *dy, float *dx)
{
    for (size_t k = 0; k < s->sequences * s->tokens * (s->heads + 2 * s->kv_heads) * s->width; k++)
        dx[k] = 0;
    for (size_t n = 0; n < s->sequences; n++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t i = 0; i < s->tokens; i++)
                row_backward(s, x, dy, dx, n, h, i);
}
