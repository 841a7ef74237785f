/* Attention of a few queries over a cache of keys and values: see decode.h. No state.
 *
 * Keys are in blocks of 16 positions. So the 16 scores of a block are one vector, and each score
 * is one chain of additions over the head's elements. Positions are processed in spans, with a
 * running maximum and sum (Milakov & Gimelshein, 2018). Spans begin at multiples of SPAN, and a span's
 * weights have 16 partial sums, by position. So the result of a query does not depend on the other
 * queries. */
#include "nn/cpu/decode.h"

#include <math.h>

#include "nn/cpu/decode_vector.h"

#define LOG2_E 1.44269504088896340736

enum {
    KEYS = EXO_DECODE_KEYS,
    QUERIES = EXO_DECODE_QUERIES,
    SPAN = 512, /* positions */
    KEY_VECTORS = KEYS / LANES,
    /* queries that share the loads of keys and values, as the registers allow: of whole tiles, and
     * of smaller ones */
    MOST = LANES == 16 ? QUERIES : LANES == 8 ? 2 : 1,
    FEWER = LANES == 16 ? 4 : MOST,
    /* blocks of keys that their scores take at a time, and the same for a single query */
    MOST_BLOCKS = 2,
    FEWER_BLOCKS = LANES == 16 ? 4 : 2,
    BLOCKS = 4
};

static size_t
values_pitch(size_t head_width)
{
    return (head_width + 15) / 16 * 16;
}

size_t
exo_decode_keys_size(size_t context, size_t head_width)
{
    return (context + KEYS - 1) / KEYS * KEYS * head_width;
}

size_t
exo_decode_values_size(size_t context, size_t head_width)
{
    return context * values_pitch(head_width);
}

void
exo_decode_cache_put(float *keys, float *values, size_t head_width, size_t position,
                     const float *key, const float *value)
{
    float *block = keys + position / KEYS * KEYS * head_width + position % KEYS;
    for (size_t d = 0; d < head_width; d++)
        block[d * KEYS] = key[d];
    memcpy(values + position * values_pitch(head_width), value, head_width * sizeof *value);
}

/* score[i][0 .. 16 blocks - 1]: the scores of `count` queries with `blocks` blocks of 16 keys. Their
 * independent chains overlap. */
ALWAYS_INLINE void
score_blocks(size_t count, size_t blocks, size_t width, const float *keys,
             const float *const *query, float (*score)[SPAN], size_t at)
{
    vec sum[MOST][BLOCKS * KEY_VECTORS];
#pragma GCC unroll 8
    for (size_t i = 0; i < count; i++)
#pragma GCC unroll 16
        for (size_t v = 0; v < blocks * KEY_VECTORS; v++)
            sum[i][v] = SPREAD(0.0f);
    for (size_t d = 0; d < width; d++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < count; i++) {
            vec value = SPREAD(query[i][d]);
#pragma GCC unroll 4
            for (size_t b = 0; b < blocks; b++)
#pragma GCC unroll 4
                for (size_t v = 0; v < KEY_VECTORS; v++)
                    sum[i][b * KEY_VECTORS + v] =
                        FMA(LOAD(keys + (b * width + d) * KEYS + v * LANES), value,
                            sum[i][b * KEY_VECTORS + v]);
        }
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < count; i++)
#pragma GCC unroll 16
        for (size_t v = 0; v < blocks * KEY_VECTORS; v++)
            STORE(score[i] + at + v * LANES, sum[i][v]);
}

struct sweep {
    const exo_decode_attention *a;
    float score[QUERIES][SPAN] __attribute__((aligned(64)));
    float out[QUERIES][EXO_DECODE_MAX_HEAD];
    float largest[QUERIES], sum[QUERIES];
};

/* The scores of the queries from `i` on with the positions first .. first + blocks * 16 - 1, `count`
 * queries and at most `most` blocks at a time. Returns the first query of those that are left. */
ALWAYS_INLINE size_t
score_queries(size_t count, size_t most, struct sweep *s, size_t i, size_t first, size_t blocks)
{
    const exo_decode_attention *a = s->a;
    size_t width = a->head_width;
    const float *keys = a->keys + first * width;
    for (; i + count <= a->queries; i += count) {
        size_t b = 0;
        for (; b + most <= blocks; b += most)
            score_blocks(count, most, width, keys + b * KEYS * width, a->query + i, s->score + i,
                         b * KEYS);
        for (; b < blocks; b++)
            score_blocks(count, 1, width, keys + b * KEYS * width, a->query + i, s->score + i,
                         b * KEYS);
    }
    return i;
}

static void
score_span(struct sweep *s, size_t first, size_t blocks)
{
    size_t i = 0;
    if (MOST > FEWER)
        i = score_queries(MOST, MOST_BLOCKS, s, i, first, blocks);
    if (FEWER > 1)
        i = score_queries(FEWER, FEWER_BLOCKS, s, i, first, blocks);
    score_queries(1, BLOCKS, s, i, first, blocks);
}

/* The largest of `count` scores, a multiple of 16. NaN are passed over: they reach the sum. */
static float
largest_of(const float *w, size_t count)
{
    vec most[KEY_VECTORS];
    float lanes[KEYS];
    for (size_t v = 0; v < KEY_VECTORS; v++)
        most[v] = SPREAD(-INFINITY);
    for (size_t j = 0; j < count; j += KEYS)
        for (size_t v = 0; v < KEY_VECTORS; v++)
            most[v] = MAX(LOAD(w + j + v * LANES), most[v]);
    for (size_t v = 0; v < KEY_VECTORS; v++)
        STORE(lanes + v * LANES, most[v]);
    for (size_t half = KEYS / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lanes[k] = lanes[k + half] > lanes[k] ? lanes[k + half] : lanes[k];
    return lanes[0];
}

/* The sum of `count` weights, a multiple of 16: 16 partial sums, which are added in pairs. */
static float
sum_of(const float *w, size_t count)
{
    vec part[KEY_VECTORS];
    float lanes[KEYS];
    for (size_t v = 0; v < KEY_VECTORS; v++)
        part[v] = SPREAD(0.0f);
    for (size_t j = 0; j < count; j += KEYS)
        for (size_t v = 0; v < KEY_VECTORS; v++)
            part[v] += LOAD(w + j + v * LANES);
    for (size_t v = 0; v < KEY_VECTORS; v++)
        STORE(lanes + v * LANES, part[v]);
    for (size_t half = KEYS / 2; half > 0; half /= 2)
        for (size_t k = 0; k < half; k++)
            lanes[k] += lanes[k + half];
    return lanes[0];
}

/* Turns the scores of query i into weights relative to the running maximum, and rescales the sum
 * and the output so far to this maximum. Positions that the query does not see get the weight 0. */
static void
weigh_span(struct sweep *s, size_t i, size_t first, size_t count)
{
    const exo_decode_attention *a = s->a;
    float *restrict w = s->score[i];
    size_t seen = a->position[i] < first ? 0 : a->position[i] - first + 1;
    seen = seen < count ? seen : count;
    if (seen == 0) {
        memset(w, 0, count * sizeof *w);
        return;
    }
    size_t padded = (seen + KEYS - 1) / KEYS * KEYS;
    int32_t distance = (int32_t)first - (int32_t)a->position[i];
    float slope = a->slope[i], scale = a->scale;
    if (slope == 0)
        for (size_t j = 0; j < padded; j++)
            w[j] *= scale;
    else
        for (int32_t j = 0; j < (int32_t)padded; j++)
            w[j] = w[j] * scale + slope * (float)(distance + j);
    for (size_t j = seen; j < padded; j++)
        w[j] = -INFINITY; /* of weight 0 */
    float largest = largest_of(w, padded);
    largest = largest < s->largest[i] ? s->largest[i] : largest;
    float back = decode_exp(s->largest[i] - largest); /* 0 at first */
    for (size_t j = 0; j < padded; j++)
        w[j] = decode_exp(w[j] - largest);
    float sum = sum_of(w, padded);
    if (count > padded)
        memset(w + padded, 0, (count - padded) * sizeof *w);
    s->sum[i] = s->sum[i] * back + sum;
    s->largest[i] = largest;
    if (first > 0)
        for (size_t d = 0; d < a->head_width; d++)
            s->out[i][d] *= back;
}

/* Adds the weighted values of the positions to the outputs of `count` queries, for the `vectors`
 * vectors of the head's elements that begin at element `from`. */
ALWAYS_INLINE void
mix(size_t count, struct sweep *s, size_t i, const float *values, size_t pitch, size_t positions,
    size_t from, size_t vectors)
{
    vec sum[MOST][64 / LANES];
#pragma GCC unroll 8
    for (size_t k = 0; k < count; k++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            sum[k][v] = LOAD(s->out[i + k] + from + v * LANES);
    for (size_t j = 0; j < positions; j++) {
#pragma GCC unroll 8
        for (size_t k = 0; k < count; k++) {
            vec weight = SPREAD(s->score[i + k][j]);
#pragma GCC unroll 16
            for (size_t v = 0; v < vectors; v++)
                sum[k][v] = FMA(LOAD(values + j * pitch + from + v * LANES), weight, sum[k][v]);
        }
    }
#pragma GCC unroll 8
    for (size_t k = 0; k < count; k++)
#pragma GCC unroll 16
        for (size_t v = 0; v < vectors; v++)
            STORE(s->out[i + k] + from + v * LANES, sum[k][v]);
}

/* Mixes as many vectors at a time as fit the registers. */
#define MIX(count, vectors)                                                                        \
    for (; from + (vectors)*LANES <= pitch; from += (vectors)*LANES)                               \
    mix(count, s, i, values, pitch, positions, from, vectors)

static void
mix_span(struct sweep *s, size_t first, size_t positions)
{
    size_t pitch = values_pitch(s->a->head_width), i = 0, count;
    const float *values = s->a->values + first * pitch;
    for (; i < s->a->queries; i += count) {
        size_t left = s->a->queries - i, from = 0;
        count = left >= MOST ? MOST : left >= FEWER ? FEWER : 1;
        if (MOST > FEWER && count == MOST) {
            MIX(MOST, 2);
            MIX(MOST, 1);
        } else if (FEWER > 1 && count == FEWER) {
            MIX(FEWER, 4);
            MIX(FEWER, 2);
            MIX(FEWER, 1);
        } else {
            MIX(1, 64 / LANES);
            MIX(1, 16 / LANES);
        }
    }
}

void
exo_decode_attend(const exo_decode_attention *a)
{
    struct sweep s;
    size_t last = 0, pitch = values_pitch(a->head_width);
    s.a = a;
    for (size_t i = 0; i < a->queries; i++) {
        last = a->position[i] > last ? a->position[i] : last;
        s.largest[i] = -INFINITY;
        s.sum[i] = 0;
        memset(s.out[i], 0, pitch * sizeof s.out[i][0]);
    }
    for (size_t first = 0; first <= last; first += SPAN) {
        size_t positions = last + 1 - first < SPAN ? last + 1 - first : SPAN;
        score_span(&s, first, (positions + KEYS - 1) / KEYS);
        for (size_t i = 0; i < a->queries; i++)
            weigh_span(&s, i, first, positions);
        mix_span(&s, first, positions);
    }
    for (size_t i = 0; i < a->queries; i++) {
        for (size_t d = 0; d < a->head_width; d++)
            a->out[i][d] = s.out[i][d] / s.sum[i];
        if (a->lse)
            a->lse[i] = (float)((double)s.largest[i] * LOG2_E + log2((double)s.sum[i]));
    }
}
