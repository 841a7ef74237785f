/* Attention of a few queries over a cache of keys and values: see decode.h. No state.
 *
 * Keys are in blocks of 16 positions. So the 16 scores of a block are one vector, and each score
 * is one chain of additions over the head's elements. Positions are processed in spans, with a
 * running maximum and sum (Milakov & Gimelshein, 2018). Spans begin at multiples of SPAN, so the
 * result of a query does not depend on the other queries. */
#include "nn/cpu/decode.h"

#include <math.h>

#include "nn/cpu/decode_vector.h"

#define LOG2_E 1.44269504088896340736

enum {
    KEYS = EXO_DECODE_KEYS,
    QUERIES = EXO_DECODE_QUERIES,
    SPAN = 512, /* positions */
    KEY_VECTORS = KEYS / LANES,
    /* queries that share the loads of keys and values, as the registers allow */
    GROUPED = LANES == 16 ? 4 : LANES == 8 ? 2 : 1,
    GROUP_BLOCKS = LANES == 16 ? 4 : 2, /* of keys, that their scores take at a time */
    BLOCKS = 4                          /* the same for a single query */
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
    vec sum[GROUPED][BLOCKS * KEY_VECTORS];
    for (size_t i = 0; i < count; i++)
        for (size_t v = 0; v < blocks * KEY_VECTORS; v++)
            sum[i][v] = SPREAD(0.0f);
    for (size_t d = 0; d < width; d++) {
#pragma GCC unroll 4
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
    for (size_t i = 0; i < count; i++)
        for (size_t v = 0; v < blocks * KEY_VECTORS; v++)
            STORE(score[i] + at + v * LANES, sum[i][v]);
}

struct sweep {
    const exo_decode_attention *a;
    float score[QUERIES][SPAN];
    float out[QUERIES][EXO_DECODE_MAX_HEAD];
    float largest[QUERIES], sum[QUERIES];
};

/* The scores of all queries with the positions first .. first + blocks * 16 - 1. */
static void
score_span(struct sweep *s, size_t first, size_t blocks)
{
    const exo_decode_attention *a = s->a;
    size_t width = a->head_width, i = 0;
    const float *keys = a->keys + first * width;
    for (; i + GROUPED <= a->queries && GROUPED > 1; i += GROUPED) {
        size_t b = 0;
        for (; b + GROUP_BLOCKS <= blocks; b += GROUP_BLOCKS)
            score_blocks(GROUPED, GROUP_BLOCKS, width, keys + b * KEYS * width, a->query + i,
                         s->score + i, b * KEYS);
        for (; b < blocks; b++)
            score_blocks(GROUPED, 1, width, keys + b * KEYS * width, a->query + i, s->score + i,
                         b * KEYS);
    }
    for (; i < a->queries; i++) {
        size_t b = 0;
        for (; b + BLOCKS <= blocks; b += BLOCKS)
            score_blocks(1, BLOCKS, width, keys + b * KEYS * width, a->query + i, s->score + i,
                         b * KEYS);
        for (; b < blocks; b++)
            score_blocks(1, 1, width, keys + b * KEYS * width, a->query + i, s->score + i,
                         b * KEYS);
    }
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
    float distance = (float)first - (float)a->position[i], slope = a->slope[i], scale = a->scale;
    for (size_t j = 0; j < seen; j++)
        w[j] = w[j] * scale + slope * (distance + (float)j);
    float largest = exo_decode_max(w, seen, NULL);
    largest = largest < s->largest[i] ? s->largest[i] : largest;
    float back = decode_exp(s->largest[i] - largest); /* 0 at first */
    double sum = exo_decode_exp_sum(w, seen, largest, w);
    memset(w + seen, 0, (count - seen) * sizeof *w);
    s->sum[i] = s->sum[i] * back + (float)sum;
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
    vec sum[GROUPED][64 / LANES];
    for (size_t k = 0; k < count; k++)
        for (size_t v = 0; v < vectors; v++)
            sum[k][v] = LOAD(s->out[i + k] + from + v * LANES);
    for (size_t j = 0; j < positions; j++) {
#pragma GCC unroll 4
        for (size_t k = 0; k < count; k++) {
            vec weight = SPREAD(s->score[i + k][j]);
#pragma GCC unroll 16
            for (size_t v = 0; v < vectors; v++)
                sum[k][v] = FMA(LOAD(values + j * pitch + from + v * LANES), weight, sum[k][v]);
        }
    }
    for (size_t k = 0; k < count; k++)
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
    size_t pitch = values_pitch(s->a->head_width), i = 0;
    const float *values = s->a->values + first * pitch;
    while (i < s->a->queries) {
        size_t count = s->a->queries - i >= GROUPED ? GROUPED : 1, from = 0;
        if (count == 1) {
            MIX(1, 64 / LANES);
            MIX(1, 16 / LANES);
        } else {
            MIX(GROUPED, 4);
            MIX(GROUPED, 2);
            MIX(GROUPED, 1);
        }
        i += count;
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
