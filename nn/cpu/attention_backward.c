/* Attention backward: each span of keys is combined with every block of queries that sees it. The
 * scores are computed again (Dao et al., 2022).
 *
 * A piece is a range of the keys of one key-value head, or of a few. It sums the gradients of its
 * keys and values. Its part in the queries' gradient is the whole gradient if it has all keys in
 * one span. Otherwise the pieces leave partial sums, which are then added in the order of the
 * keys.
 *
 * With the weights P of a block's scores S, out = P V, and delta_i = dout_i . out_i:
 *
 *   dP = dout V^T    dS = P (dP - delta)    dQ = dS K scale    dK = dS^T Q scale    dV = P^T dout
 *
 * State: a piece's scratch, which one thread owns. The interface is in attention_kernels.h. Read
 * next: attention_block.h. */
#include "nn/cpu/attention_kernels.h"

#include <string.h>

#include "nn/cpu/attention_block.h"

enum {
    WANTED_PIECES = 8,    /* the least number of pieces, if there are enough tokens */
    MAX_RANGES = 4,       /* ranges of a head's keys, at most */
    MIN_RANGE_BLOCKS = 4, /* blocks of keys in a range, at least */
    /* Floats of a span's keys. Keys, values and both gradients fit into the second-level cache. */
    SPAN_FLOATS = 64 * 1024
};

/* A block of queries, with the inputs of their gradients. Lanes are queries. */
struct queries {
    float *across, *dout_across; /* (units, 64) */
    float *along, *dout_along;   /* (64, padded), or (32, padded) pairs */
    float *delta, *lse;          /* (64); lse negated */
    float *grads;                /* (padded, 64) */
    size_t first, columns;
};

struct backward {
    const exo_attention_plan *plan;
    size_t sequence, head, padded, units;
    float scale; /* of scores, times log2(e): weights are powers of two */
    float kept;  /* 1 / (1 - the probability of dropout) */

    /* Of a span. */
    float *keys, *values;           /* (keys, units) */
    float *key_pairs;               /* (keys / 2, padded) pairs */
    float *key_grads, *value_grads; /* (keys, padded) */

    /* Of a block. */
    float *scores, *grads; /* (64, 64); in fp32 also the weights and dS */
    /* Of pairs: (64, 32), (64, 32), (32, 64). */
    float *weights, *score_grads, *score_grads_pairs;
    float *rows;    /* (64, padded): rows during packing and unpacking */
    uint32_t *keep; /* (64, 64), or NULL */
    struct queries queries;
};

/* --- Pieces and scratch ----------------------------------------------------------------------- */

/* Blocks of keys; blocks of queries. */
static size_t
num_blocks(const exo_attention_plan *plan)
{
    return ((plan->seen ? plan->seen : plan->tokens) + BLOCK - 1) / BLOCK;
}

static size_t
query_blocks(const exo_attention_plan *plan)
{
    return (plan->tokens - plan->first_query + BLOCK - 1) / BLOCK;
}

/* The number of ranges into which the keys of a head are divided. */
static size_t
num_ranges(const exo_attention_plan *plan)
{
    size_t heads = plan->sequences * plan->kv_heads, blocks = num_blocks(plan);
    size_t wanted = (WANTED_PIECES + heads - 1) / heads, most = blocks / MIN_RANGE_BLOCKS;
    wanted = wanted < MAX_RANGES ? wanted : MAX_RANGES;
    wanted = wanted < most ? wanted : most;
    return wanted ? wanted : 1;
}

/* The first block of keys in range `index`. All ranges have about the same number of visible pairs
 * of queries and keys. */
static size_t
range_start(const exo_attention_plan *plan, size_t index)
{
    size_t ranges = num_ranges(plan), blocks = num_blocks(plan), at = 0;
    if (plan->seen > 0)
        return blocks * index / ranges;
    /* The keys from block b on have (blocks - b) (blocks - b + 1) / 2 visible blocks of pairs. */
    while (at < blocks &&
           (blocks - at) * (blocks - at + 1) * ranges > blocks * (blocks + 1) * (ranges - index))
        at++;
    return at;
}

static size_t
span_keys(const exo_attention_plan *plan)
{
    size_t fit = SPAN_FLOATS / exo_padded_width(plan) / BLOCK, all = num_blocks(plan);
    fit = fit ? fit : 1;
    return (fit < all ? fit : all) * BLOCK;
}

size_t
exo_attention_partials(const exo_attention_plan *plan)
{
    if (num_ranges(plan) == 1 && span_keys(plan) >= num_blocks(plan) * BLOCK)
        return 0;
    return num_ranges(plan) * plan->sequences * plan->heads * plan->tokens *
           exo_padded_width(plan) * sizeof(float);
}

static size_t
groups_of_piece(const exo_attention_plan *plan)
{
    return exo_heads_of_piece(plan->kv_heads, plan->sequences * num_ranges(plan));
}

size_t
exo_attention_backward_pieces(const exo_attention_plan *plan)
{
    return num_ranges(plan) * plan->sequences * (plan->kv_heads / groups_of_piece(plan));
}

/* Allocates the next `count` floats of the scratch. A NULL scratch: only counts them. */
static float *
cut(float *scratch, size_t *used, size_t count)
{
    float *at = scratch ? scratch + *used : NULL;
    *used += count;
    return at;
}

static size_t
lay_out(struct backward *b, const exo_attention_plan *plan, float *scratch)
{
    bool pairs = exo_in_pairs(plan);
    size_t used = 0, padded = exo_padded_width(plan), units = pairs ? padded / 2 : padded,
           keys = span_keys(plan);
    const size_t square = (size_t)BLOCK * BLOCK;
    *b = (struct backward){.plan = plan, .padded = padded, .units = units};
    b->scores = cut(scratch, &used, square);
    b->grads = cut(scratch, &used, square);
    b->weights = pairs ? cut(scratch, &used, square / 2) : b->scores;
    b->score_grads = pairs ? cut(scratch, &used, square / 2) : b->grads;
    b->score_grads_pairs = pairs ? cut(scratch, &used, square / 2) : b->grads;
    b->queries.across = cut(scratch, &used, units * BLOCK);
    b->queries.dout_across = cut(scratch, &used, units * BLOCK);
    b->queries.along = cut(scratch, &used, units * BLOCK);
    b->queries.dout_along = cut(scratch, &used, units * BLOCK);
    b->queries.grads = cut(scratch, &used, padded * BLOCK);
    b->queries.delta = cut(scratch, &used, BLOCK);
    b->queries.lse = cut(scratch, &used, BLOCK);
    b->rows = cut(scratch, &used, padded * BLOCK);
    b->keep = plan->dropped ? (uint32_t *)(void *)cut(scratch, &used, square) : NULL;
    b->keys = cut(scratch, &used, keys * units);
    b->values = cut(scratch, &used, keys * units);
    b->key_pairs = pairs ? cut(scratch, &used, keys * units) : b->keys;
    b->key_grads = cut(scratch, &used, keys * padded);
    b->value_grads = cut(scratch, &used, keys * padded);
    return used;
}

size_t
exo_attention_backward_scratch(const exo_attention_plan *plan)
{
    struct backward b;
    return lay_out(&b, plan, NULL) * sizeof(float);
}

/* --- A block ---------------------------------------------------------------------------------- */

/* For a vector of queries and the keys from `from` to `to`: turns scores into weights, and the
 * gradients of weights into those of scores, without the scale. `band`: the last band of a block
 * on the diagonal, where keys after a query have no weight. */
INLINE void
column_grads(const struct backward *b, bool pairs, bool dropped, bool band, size_t from, size_t to,
             size_t c)
{
    const struct queries *q = &b->queries;
    vec scale = vec_splat(b->scale), shift = vec_load(q->lse + c), delta = vec_load(q->delta + c),
        kept = vec_splat(b->kept);
    ivec query = vec_lanes() + (int32_t)c;
    (void)pairs; /* always false without PAIRS_RUN */
    for (size_t j = from; j < to; j += 2) {
        vec w[2], ds[2];
#pragma GCC unroll 2
        for (size_t k = 0; k < 2; k++) {
            size_t at = (j + k) * BLOCK + c;
            vec dw = vec_load(b->grads + at);
            w[k] = vec_exp2(vec_multiply_add(vec_load(b->scores + at), scale, shift));
            if (band)
                w[k] = vec_select(query < (int32_t)(j + k), (vec){0}, w[k]);
            if (dropped)
                dw = (vec)((ivec)(dw * kept) & *(const ivec *)(b->keep + at));
            ds[k] = w[k] * (dw - delta);
            if (dropped)
                w[k] = (vec)((ivec)w[k] & *(const ivec *)(b->keep + at));
#if PAIRS_RUN
            if (pairs) {
                vec_store_bf16((uint16_t *)(void *)b->weights + at, w[k]);
                vec_store_bf16((uint16_t *)(void *)b->score_grads + at, ds[k]);
                continue;
            }
#endif
            vec_store(b->weights + at, w[k]);
            vec_store(b->score_grads + at, ds[k]);
        }
#if PAIRS_RUN
        if (pairs)
            vec_store(b->score_grads_pairs + j / 2 * BLOCK + c, vec_pair(ds[0], ds[1]));
#endif
    }
}

INLINE void
block_grads(const struct backward *b, bool pairs, bool dropped, bool diagonal)
{
    for (size_t c = 0; c < b->queries.columns; c += LANES) {
        size_t band = diagonal ? c / BAND * BAND : BLOCK;
        column_grads(b, pairs, dropped, false, 0, band, c);
        if (diagonal)
            column_grads(b, pairs, dropped, true, band, band + BAND, c);
    }
}

/* out (keys, padded) += a b: a sum over queries for each key. a (keys, queries) are weights or
 * gradients of scores; b is (queries, padded). Units are queries, or pairs of queries. */
INLINE void
key_product(const struct backward *s, bool pairs, bool diagonal, const float *a, const float *b,
            float *out)
{
    size_t each = pairs ? 2 : 1;
    for (size_t g = 0; g < num_bands(diagonal, s->queries.columns); g++) {
        size_t row = g * BAND, skipped = g * BAND / each;
        product_run((product){.rows = band_rows(diagonal),
                              .columns = s->padded,
                              .inner = s->queries.columns / each - skipped,
                              .a = a + row * (BLOCK / each) + skipped,
                              .a_row = BLOCK / each,
                              .a_step = 1,
                              .b = b + skipped * s->padded,
                              .b_row = s->padded,
                              .c = out + row * s->padded,
                              .c_row = s->padded},
                    pairs, true);
    }
}

/* Runs a block of keys with the block of queries. The block's first key is `span` + `key`; `span`
 * is the span's first key. */
INLINE void
run_block(const struct backward *b, bool pairs, size_t span, size_t key)
{
    const exo_attention_plan *plan = b->plan;
    const struct queries *q = &b->queries;
    bool diagonal = plan->seen == 0 && span + key == q->first;
    score_product(pairs, diagonal, q->columns, b->units, b->keys + key * b->units, q->across,
                  b->scores);
    score_product(pairs, diagonal, q->columns, b->units, b->values + key * b->units, q->dout_across,
                  b->grads);
    if (plan->slopes)
        add_bias(diagonal, q->columns, plan->slopes[b->head] / plan->scale, q->first, span + key,
                 b->scores);
    if (plan->seen > 0 && plan->seen - span - key < BLOCK)
        hide_absent_keys(q->columns, plan->seen - span - key, NO_SCORE, b->scores);
    if (b->keep) {
        exo_attention_keep(plan, b->sequence, b->head, q->first, span + key, b->keep);
        block_grads(b, pairs, true, diagonal);
    } else {
        block_grads(b, pairs, false, diagonal);
    }
    key_product(b, pairs, diagonal, b->weights, q->dout_along, b->value_grads + key * b->padded);
    key_product(b, pairs, diagonal, b->score_grads, q->along, b->key_grads + key * b->padded);
    query_product(pairs, diagonal, q->columns, b->padded, b->key_pairs + key * b->units,
                  b->score_grads_pairs, NULL, q->grads);
}

static void
run_block_fp32(const struct backward *b, size_t span, size_t key)
{
    run_block(b, false, span, key);
}

static void
run_block_pairs(const struct backward *b, size_t span, size_t key)
{
#if PAIRS_RUN
    run_block(b, true, span, key);
#else
    run_block_fp32(b, span, key);
#endif
}

/* --- A block of queries ----------------------------------------------------------------------- */

/* Packs a block of rows in both forms: (units, 64), and (64, padded) or (32, padded) pairs. */
static void
pack_both(const struct backward *b, const exo_head_rows *rows, size_t first, float *across,
          float *along)
{
    bool pairs = exo_in_pairs(b->plan);
    float *straight = pairs ? b->rows : along;
    exo_pack_rows(rows, first, BLOCK, b->padded, pairs, straight);
    exo_transpose_units(straight, b->units, BLOCK, b->units, across, BLOCK);
    if (pairs)
        exo_pack_row_pairs(rows, first, BLOCK, b->padded, along);
}

static void
start_queries(struct backward *b, const exo_attention_grads *grads, size_t first)
{
    const exo_attention_plan *plan = b->plan;
    struct queries *q = &b->queries;
    exo_head_rows queries = exo_input_rows(plan, EXO_QUERIES, grads->x, b->sequence, b->head);
    exo_head_rows out = exo_output_rows(plan, grads->out, b->sequence, b->head);
    exo_head_rows dout = exo_output_rows(plan, grads->dout, b->sequence, b->head);
    const float *lse = grads->lse + (b->sequence * plan->heads + b->head) * plan->tokens;
    q->first = first;
    q->columns = block_columns(plan->tokens, first);
    pack_both(b, &queries, first, q->across, q->along);
    pack_both(b, &dout, first, q->dout_across, q->dout_along);
    exo_row_products(&dout, &out, first, BLOCK, q->delta);
    for (size_t i = 0; i < BLOCK; i++)
        q->lse[i] = first + i < plan->tokens ? -lse[first + i] : 0.0f;
    memset(q->grads, 0, b->padded * BLOCK * sizeof *q->grads);
}

/* Writes the queries' gradient, or adds this span's part to the partial sum of range `range`. */
static void
finish_queries(struct backward *b, const exo_attention_grads *grads, size_t range, bool first_span)
{
    const exo_attention_plan *plan = b->plan;
    const struct queries *q = &b->queries;
    exo_transpose_units(q->grads, BLOCK, b->padded, BLOCK, b->rows, b->padded);
    if (exo_attention_partials(plan) == 0) {
        exo_head_rows rows = exo_input_rows(plan, EXO_QUERIES, grads->dx, b->sequence, b->head);
        exo_unpack_rows(&rows, q->first, BLOCK, b->padded, b->rows, plan->scale, grads->add);
        return;
    }
    size_t head = (range * plan->sequences + b->sequence) * plan->heads + b->head,
           left = plan->tokens - q->first;
    size_t count = (left < BLOCK ? left : BLOCK) * b->padded;
    float *restrict out = grads->partials + (head * plan->tokens + q->first) * b->padded;
    for (size_t i = 0; i < count; i++)
        out[i] = first_span ? b->rows[i] : out[i] + b->rows[i];
}

/* --- A piece ---------------------------------------------------------------------------------- */

/* The keys of a piece, and the key-value head under way. */
struct range {
    size_t index, first, end;
    size_t group, groups_end;
    exo_head_rows keys, values, key_grads, value_grads;
};

static void
start_group(const struct backward *b, const exo_attention_grads *grads, struct range *r)
{
    const exo_attention_plan *plan = b->plan;
    const void *x = grads->x, *others = plan->others;
    const size_t n = b->sequence;
    r->keys = exo_key_rows(plan, EXO_KEYS, x, others, n, r->group);
    r->values = exo_key_rows(plan, EXO_VALUES, x, others, n, r->group);
    r->key_grads = exo_key_rows(plan, EXO_KEYS, grads->dx, grads->dothers, n, r->group);
    r->value_grads = exo_key_rows(plan, EXO_VALUES, grads->dx, grads->dothers, n, r->group);
}

static void
start_span(struct backward *b, const struct range *r, size_t first, size_t count)
{
    bool pairs = exo_in_pairs(b->plan);
    exo_pack_rows(&r->keys, first, count, b->padded, pairs, b->keys);
    exo_pack_rows(&r->values, first, count, b->padded, pairs, b->values);
    if (pairs)
        exo_pack_row_pairs(&r->keys, first, count, b->padded, b->key_pairs);
    memset(b->key_grads, 0, count * b->padded * sizeof *b->key_grads);
    memset(b->value_grads, 0, count * b->padded * sizeof *b->value_grads);
}

/* Prefetches the data that follow the block of queries at `query`: the next block, or the first
 * block and the keys of the next head. */
static void
fetch_ahead(const struct backward *b, const exo_attention_grads *grads, const struct range *r,
            size_t query)
{
    const exo_attention_plan *plan = b->plan;
    size_t shared = plan->heads / plan->kv_heads, end = r->groups_end * shared;
    size_t head = query + BLOCK < plan->tokens ? b->head : b->head + 1;
    size_t first = query + BLOCK < plan->tokens ? query + BLOCK : r->first;
    if (!grads->partials) {
        exo_head_rows query_grads =
            exo_input_rows(plan, EXO_QUERIES, grads->dx, b->sequence, b->head);
        exo_prefetch_rows_to_write(&query_grads, query, BLOCK);
    }
    if (head < end) {
        exo_head_rows queries = exo_input_rows(plan, EXO_QUERIES, grads->x, b->sequence, head);
        exo_head_rows out = exo_output_rows(plan, grads->out, b->sequence, head);
        exo_head_rows dout = exo_output_rows(plan, grads->dout, b->sequence, head);
        exo_prefetch_rows(&queries, first, BLOCK);
        exo_prefetch_rows(&out, first, BLOCK);
        exo_prefetch_rows(&dout, first, BLOCK);
    }
    if ((b->head + 1) % shared == 0 && r->group + 1 < r->groups_end && query < r->end) {
        exo_head_rows keys =
            exo_key_rows(plan, EXO_KEYS, grads->x, plan->others, b->sequence, r->group + 1);
        exo_head_rows values =
            exo_key_rows(plan, EXO_VALUES, grads->x, plan->others, b->sequence, r->group + 1);
        exo_prefetch_rows(&keys, query, BLOCK);
        exo_prefetch_rows(&values, query, BLOCK);
    }
}

/* Runs the keys [span, span + count) with all queries that see them. */
static void
run_span(struct backward *b, const exo_attention_grads *grads, const struct range *r, size_t span,
         size_t count)
{
    const exo_attention_plan *plan = b->plan;
    size_t shared = plan->heads / plan->kv_heads;
    bool pairs = exo_in_pairs(plan), all = plan->seen > 0;
    start_span(b, r, span, count);
    for (b->head = r->group * shared; b->head < (r->group + 1) * shared; b->head++) {
        for (size_t query = all ? plan->first_query : span; query < plan->tokens; query += BLOCK) {
            start_queries(b, grads, query);
            fetch_ahead(b, grads, r, query);
            for (size_t key = 0; key < count && (all || span + key <= query); key += BLOCK) {
                if (pairs)
                    run_block_pairs(b, span, key);
                else
                    run_block_fp32(b, span, key);
            }
            finish_queries(b, grads, r->index, span == r->first);
        }
    }
    exo_unpack_rows(&r->key_grads, span, count, b->padded, b->key_grads, plan->scale, grads->add);
    exo_unpack_rows(&r->value_grads, span, count, b->padded, b->value_grads, b->kept, grads->add);
}

void
exo_attention_backward_piece(const exo_attention_plan *plan, size_t piece,
                             const exo_attention_grads *grads, void *scratch)
{
    struct backward b;
    lay_out(&b, plan, scratch);
    size_t groups = groups_of_piece(plan), bundle = piece / num_ranges(plan),
           of_sequence = plan->kv_heads / groups;
    struct range r = {.index = piece % num_ranges(plan), .group = bundle % of_sequence * groups};
    r.first = range_start(plan, r.index) * BLOCK;
    r.end = range_start(plan, r.index + 1) * BLOCK;
    r.groups_end = r.group + groups;
    b.sequence = bundle / of_sequence;
    b.scale = (float)((double)plan->scale * LOG2_E);
    b.kept = plan->dropped ? 65536.0f / (float)(65536 - plan->dropped) : 1.0f;
    for (; r.group < r.groups_end; r.group++) {
        start_group(&b, grads, &r);
        for (size_t span = r.first; span < r.end; span += span_keys(plan)) {
            size_t left = r.end - span;
            run_span(&b, grads, &r, span, left < span_keys(plan) ? left : span_keys(plan));
        }
    }
}

/* --- Partial sums ----------------------------------------------------------------------------- */

size_t
exo_attention_gather_pieces(const exo_attention_plan *plan)
{
    return exo_attention_partials(plan) ? plan->sequences * plan->heads * query_blocks(plan) : 0;
}

void
exo_attention_gather_piece(const exo_attention_plan *plan, size_t piece,
                           const exo_attention_grads *grads)
{
    size_t block = piece % query_blocks(plan), head = piece / query_blocks(plan),
           heads = plan->sequences * plan->heads;
    size_t padded = exo_padded_width(plan), first = plan->first_query + block * BLOCK;
    exo_head_rows rows =
        exo_input_rows(plan, EXO_QUERIES, grads->dx, head / plan->heads, head % plan->heads);
    size_t count = plan->tokens - first < BLOCK ? plan->tokens - first : BLOCK;
    /* The sum begins with range 0, because every query sees its keys. */
    float *restrict sum = grads->partials + (head * plan->tokens + first) * padded;
    for (size_t range = 1;
         range < num_ranges(plan) && (plan->seen > 0 || range_start(plan, range) <= block);
         range++) {
        const float *restrict more =
            grads->partials + ((range * heads + head) * plan->tokens + first) * padded;
        for (size_t i = 0; i < count * padded; i++)
            sum[i] += more[i];
    }
    exo_unpack_rows(&rows, first, count, padded, sum, plan->scale, grads->add);
}
