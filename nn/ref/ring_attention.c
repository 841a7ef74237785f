/* Plain attention of a member to its own keys, or to those of another member: see
 * exo_attention_shape.members. Sums in double. No state. Read next: attention.c. */
#include "nn/ref/attention.h"

#include <math.h>

/* A head of a sequence. */
struct head {
    const exo_attention_shape *s;
    const float *x, *others; /* others: NULL: the keys of x */
    float *dx, *dothers;
    size_t n, h, group;
};

static size_t
query_at(const struct head *k, size_t i)
{
    const exo_attention_shape *s = k->s;
    return ((k->n * s->tokens + i) * (s->heads + 2 * s->kv_heads) + k->h) * s->width;
}

/* The place of a key, or of a value, in `others` or x. */
static size_t
key_at(const struct head *k, size_t j, bool value)
{
    const exo_attention_shape *s = k->s;
    size_t heads = 2 * s->kv_heads + (k->others ? 0 : s->heads);
    size_t head = k->group + (value ? s->kv_heads : 0) + (k->others ? 0 : s->heads);
    return ((k->n * s->tokens + j) * heads + head) * s->width;
}

static bool
sees(const struct head *k, size_t i, size_t j)
{
    size_t first, keys;
    exo_attention_seen(k->s, &first, &keys);
    return k->others ? i >= first && j < keys : j <= i;
}

/* Rotary positions: element d becomes cosine * element d + sine * element *other. */
static void
turn(const exo_attention_shape *s, size_t position, size_t d, size_t *other, double *cosine,
     double *sine)
{
    size_t half = s->turned / 2, i = d < half ? d : d - half;
    *other = d;
    *cosine = 1;
    *sine = 0;
    if (d >= s->turned)
        return;
    double angle = (double)position * pow(s->theta, -2.0 * (double)i / (double)s->turned);
    if (s->scaled)
        angle *= (double)s->factors[i];
    *other = d < half ? d + half : d - half;
    *cosine = cos(angle);
    *sine = d < half ? -sin(angle) : sin(angle);
}

static double
turned(const exo_attention_shape *s, const float *row, size_t position, size_t d)
{
    size_t other;
    double cosine, sine;
    turn(s, position, d, &other, &cosine, &sine);
    return cosine * (double)row[d] + sine * (double)row[other];
}

static void
add_turned(const exo_attention_shape *s, float *row, size_t position, size_t d, double grad)
{
    size_t other;
    double cosine, sine;
    turn(s, position, d, &other, &cosine, &sine);
    row[d] += (float)(cosine * grad);
    row[other] += (float)(sine * grad);
}

static const float *
keys_of(const struct head *k)
{
    return k->others ? k->others : k->x;
}

static double
score(const struct head *k, size_t i, size_t j)
{
    const exo_attention_shape *s = k->s;
    const float *query = k->x + query_at(k, i), *key = keys_of(k) + key_at(k, j, false);
    double sum = 0;
    for (size_t d = 0; d < s->width; d++)
        sum += turned(s, query, exo_attention_position(s, s->rank, i), d) *
               turned(s, key, exo_attention_position(s, s->from, j), d);
    return s->scale * sum;
}

static void
row_forward(const struct head *k, size_t i, float *y, float *lse)
{
    const exo_attention_shape *s = k->s;
    double before = k->others ? (double)*lse * M_LN2 : -INFINITY, peak = before, sum = 0;
    for (size_t j = 0; j < s->tokens; j++)
        if (sees(k, i, j))
            peak = fmax(peak, score(k, i, j));
    for (size_t j = 0; j < s->tokens; j++)
        sum += sees(k, i, j) ? exp(score(k, i, j) - peak) : 0;
    sum += exp(before - peak);
    for (size_t d = 0; d < s->width; d++) {
        double total = k->others ? exp(before - peak) * (double)y[d] : 0;
        for (size_t j = 0; j < s->tokens; j++)
            if (sees(k, i, j))
                total += exp(score(k, i, j) - peak) * (double)keys_of(k)[key_at(k, j, true) + d];
        y[d] = (float)(total / sum);
    }
    *lse = (float)((peak + log(sum)) / M_LN2);
}

static void
row_backward(const struct head *k, size_t i, const float *y, const float *dy, double lse)
{
    const exo_attention_shape *s = k->s;
    const float *query = k->x + query_at(k, i);
    float *dkeys = k->others ? k->dothers : k->dx;
    const size_t at = exo_attention_position(s, s->rank, i);
    double mean = 0;
    for (size_t d = 0; d < s->width; d++)
        mean += (double)y[d] * (double)dy[d];
    for (size_t j = 0; j < s->tokens; j++) {
        if (!sees(k, i, j))
            continue;
        const float *key = keys_of(k) + key_at(k, j, false);
        const size_t key_place = exo_attention_position(s, s->from, j);
        double weight = exp(score(k, i, j) - lse * M_LN2), dot = 0;
        for (size_t d = 0; d < s->width; d++)
            dot += (double)dy[d] * (double)keys_of(k)[key_at(k, j, true) + d];
        double dscore = s->scale * weight * (dot - mean);
        for (size_t d = 0; d < s->width; d++) {
            dkeys[key_at(k, j, true) + d] += (float)(weight * (double)dy[d]);
            add_turned(s, k->dx + query_at(k, i), at, d, dscore * turned(s, key, key_place, d));
            add_turned(s, dkeys + key_at(k, j, false), key_place, d,
                       dscore * turned(s, query, at, d));
        }
    }
}

/* The i-th row of one of all heads, and its place in y and lse. */
static struct head
open_head(const exo_attention_shape *s, size_t index, size_t i, size_t *row, size_t *sum)
{
    struct head k = {.s = s, .n = index / s->heads, .h = index % s->heads};
    k.group = k.h / (s->heads / s->kv_heads);
    *row = ((k.n * s->tokens + i) * s->heads + k.h) * s->width;
    *sum = index * s->tokens + i;
    return k;
}

void
exo_ref_ring_attention(const exo_attention_shape *s, const float *x, const float *others, float *y,
                       float *lse)
{
    size_t row, sum;
    for (size_t index = 0; index < s->sequences * s->heads; index++)
        for (size_t i = 0; i < s->tokens; i++) {
            struct head k = open_head(s, index, i, &row, &sum);
            k.x = x;
            k.others = others;
            row_forward(&k, i, y + row, lse + sum);
        }
}

void
exo_ref_ring_attention_backward(const exo_attention_shape *s,
                                const exo_attention_backward_args *args, float *dx)
{
    size_t row, sum;
    for (size_t index = 0; index < s->sequences * s->heads; index++)
        for (size_t i = 0; i < s->tokens; i++) {
            struct head k = open_head(s, index, i, &row, &sum);
            k.x = args->x;
            k.others = args->others;
            k.dx = dx;
            k.dothers = args->dothers;
            row_backward(&k, i, (const float *)args->y + row, (const float *)args->dy + row,
                         (double)args->lse[sum]);
        }
}
