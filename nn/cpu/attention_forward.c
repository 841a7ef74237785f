/* Attention forward: a piece has 256 queries, and combines them with one block of keys after
 * another (Dao et al., 2022).
 *
 * For each block of 64 queries a piece holds the queries (units, 64), the output so far (D, 64),
 * and for each query the largest score and the sum of exponentials. When the largest score grows,
 * the sum and the output are scaled down. Exponentials are powers of two.
 *
 * State: a piece's scratch, which one thread owns. The interface is in attention_kernels.h. Read
 * next: attention_block.h. */
#include "nn/cpu/attention_kernels.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/attention_block.h"

enum {
    PIECE_BLOCKS = 4 /* blocks of queries; they share the packed keys and values */
};

/* A block of queries. Lanes are queries. */
struct queries {
    float *units; /* (units, 64): the queries */
    float *out;   /* (padded, 64) */
    float *peak;  /* (64): the largest scores */
    float *sum;   /* (64): the sums of exponentials */
    size_t first, columns;
};

struct forward {
    const exo_attention_plan *plan;
    size_t sequence, head, padded, units;
    float scale;                   /* of scores, times log2(e): weights are powers of two */
    float *keys, *values, *scores; /* of a block: (64, units), (64 or 32, padded), (64, 64) */
    float *weights;                /* (64, 64) in the place of the scores, or (32, 64) pairs */
    uint32_t *keep;                /* (64, 64), or NULL */
    struct queries queries[PIECE_BLOCKS];
};

/* --- Pieces and scratch ----------------------------------------------------------------------- */

static size_t
pieces_of_sequence(const exo_attention_plan *plan)
{
    return (plan->tokens - plan->first_query + PIECE_BLOCKS * BLOCK - 1) / (PIECE_BLOCKS * BLOCK);
}

static size_t
heads_of_piece(const exo_attention_plan *plan)
{
    return exo_heads_of_piece(plan->heads, plan->sequences * pieces_of_sequence(plan));
}

size_t
exo_attention_forward_pieces(const exo_attention_plan *plan)
{
    return plan->sequences * (plan->heads / heads_of_piece(plan)) * pieces_of_sequence(plan);
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
lay_out(struct forward *f, const exo_attention_plan *plan, float *scratch)
{
    bool pairs = exo_in_pairs(plan);
    size_t used = 0, padded = exo_padded_width(plan), units = pairs ? padded / 2 : padded;
    *f = (struct forward){.plan = plan, .padded = padded, .units = units};
    f->keys = cut(scratch, &used, BLOCK * padded); /* also for rows while they are packed */
    f->values = cut(scratch, &used, BLOCK * units);
    f->scores = cut(scratch, &used, (size_t)BLOCK * BLOCK);
    f->weights = pairs ? cut(scratch, &used, (size_t)BLOCK * BLOCK / 2) : f->scores;
    f->keep = plan->dropped ? (uint32_t *)(void *)cut(scratch, &used, (size_t)BLOCK * BLOCK) : NULL;
    for (size_t b = 0; b < PIECE_BLOCKS; b++) {
        struct queries *q = &f->queries[b];
        q->units = cut(scratch, &used, units * BLOCK);
        q->out = cut(scratch, &used, padded * BLOCK);
        q->peak = cut(scratch, &used, BLOCK);
        q->sum = cut(scratch, &used, BLOCK);
    }
    return used;
}

size_t
exo_attention_forward_scratch(const exo_attention_plan *plan)
{
    struct forward f;
    return lay_out(&f, plan, NULL) * sizeof(float);
}

/* --- A block ---------------------------------------------------------------------------------- */

/* For a vector of queries: the largest of their scores and `peak`. */
INLINE vec
column_peak(const float *scores, size_t rows, vec peak)
{
    vec m[4] = {peak, peak, peak, peak};
    for (size_t j = 0; j < rows; j += 4)
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            m[k] = vec_max(m[k], vec_load(scores + (j + k) * BLOCK));
    return vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3]));
}

/* The weights of a vector of queries: 2^(score * scale + shift). Returns their sum, which includes
 * the weights that dropout removes. */
INLINE vec
column_weights(bool pairs, bool dropped, const float *scores, size_t rows, vec scale, vec shift,
               const uint32_t *keep, float *weights)
{
    vec sum[2] = {{0}, {0}};
    for (size_t j = 0; j < rows; j += 2) {
        vec w[2];
#pragma GCC unroll 2
        for (size_t k = 0; k < 2; k++) {
            w[k] = vec_exp2(vec_multiply_add(vec_load(scores + (j + k) * BLOCK), scale, shift));
            sum[k] += w[k];
            if (dropped)
                w[k] = (vec)((ivec)w[k] & *(const ivec *)(keep + (j + k) * BLOCK));
        }
#if PAIRS_RUN
        if (pairs) {
            vec_store(weights + j / 2 * BLOCK, vec_pair(w[0], w[1]));
            continue;
        }
#endif
        (void)pairs;
        vec_store(weights + j * BLOCK, w[0]);
        vec_store(weights + (j + 1) * BLOCK, w[1]);
    }
    return sum[0] + sum[1];
}

/* Turns scores into weights. The old sums are multiplied by 2^(old peak - new peak), which goes to
 * `factors`: the caller multiplies the output so far. Returns true if a factor is not 1. */
INLINE bool
weigh(const struct forward *f, struct queries *q, bool pairs, bool dropped, bool diagonal,
      float *factors)
{
    vec scale = vec_splat(f->scale);
    ivec grown = {0};
    for (size_t c = 0; c < q->columns; c += LANES) {
        vec old = vec_load(q->peak + c),
            peak = column_peak(f->scores + c, visible_rows(diagonal, c), old);
        vec_store(factors + c, vec_exp2((old - peak) * scale));
        vec_store(q->peak + c, peak);
        grown |= peak > old;
    }
    for (size_t c = 0; c < q->columns; c += LANES) {
        vec shift = -(vec_load(q->peak + c) * scale);
        vec sum = column_weights(pairs, dropped, f->scores + c, visible_rows(diagonal, c), scale,
                                 shift, dropped ? f->keep + c : NULL, f->weights + c);
        vec_store(q->sum + c, vec_multiply_add(vec_load(q->sum + c), vec_load(factors + c), sum));
    }
    bool any = false;
    for (size_t lane = 0; lane < LANES; lane++)
        any |= grown[lane] != 0;
    return any;
}

INLINE void
run_block(const struct forward *f, struct queries *q, bool pairs, size_t first_key)
{
    const exo_attention_plan *plan = f->plan;
    bool diagonal = plan->seen == 0 && first_key == q->first, grown;
    float factors[BLOCK] __attribute__((aligned(64)));
    score_product(pairs, diagonal, q->columns, f->units, f->keys, q->units, f->scores);
    if (plan->slopes)
        add_bias(diagonal, q->columns, plan->slopes[f->head] / plan->scale, q->first, first_key,
                 f->scores);
    if (diagonal)
        hide_later_keys(q->columns, NO_SCORE, f->scores);
    else if (plan->seen > 0 && plan->seen - first_key < BLOCK)
        hide_absent_keys(q->columns, plan->seen - first_key, NO_SCORE, f->scores);
    if (f->keep) {
        exo_attention_keep(plan, f->sequence, f->head, q->first, first_key, f->keep);
        grown = weigh(f, q, pairs, true, diagonal, factors);
    } else {
        grown = weigh(f, q, pairs, false, diagonal, factors);
    }
    query_product(pairs, diagonal, q->columns, f->padded, f->values, f->weights,
                  grown ? factors : NULL, q->out);
}

static void
run_block_fp32(const struct forward *f, struct queries *q, size_t first_key)
{
    run_block(f, q, false, first_key);
}

static void
run_block_pairs(const struct forward *f, struct queries *q, size_t first_key)
{
#if PAIRS_RUN
    run_block(f, q, true, first_key);
#else
    run_block_fp32(f, q, first_key);
#endif
}

/* --- A head ----------------------------------------------------------------------------------- */

/* The rows of one head. */
struct rows {
    exo_head_rows queries, keys, values, out;
};

/* `head` counts over all sequences. */
static struct rows
head_rows(const exo_attention_plan *plan, const void *x, void *out, size_t head)
{
    size_t sequence = head / plan->heads, of_sequence = head % plan->heads;
    size_t group = of_sequence / (plan->heads / plan->kv_heads);
    return (struct rows){.queries = exo_input_rows(plan, EXO_QUERIES, x, sequence, of_sequence),
                         .keys = exo_key_rows(plan, EXO_KEYS, x, plan->others, sequence, group),
                         .values = exo_key_rows(plan, EXO_VALUES, x, plan->others, sequence, group),
                         .out = exo_output_rows(plan, out, sequence, of_sequence)};
}

/* Begins with what the keys before have given: out is the mean of their values, and lse is the score of
 * one key of weight 1. */
static void
continue_queries(struct forward *f, struct queries *q, const exo_head_rows *out, const float *lse)
{
    const exo_attention_plan *plan = f->plan;
    exo_pack_rows(out, q->first, BLOCK, f->padded, false, f->keys);
    exo_transpose_units(f->keys, f->padded, BLOCK, f->padded, q->out, BLOCK);
    for (size_t i = 0; i < BLOCK && q->first + i < plan->tokens; i++) {
        size_t row = (f->sequence * plan->heads + f->head) * plan->tokens + q->first + i;
        q->peak[i] = lse[row] / f->scale;
        q->sum[i] = 1.0f;
    }
}

static void
start_queries(struct forward *f, struct queries *q, const exo_head_rows *rows, size_t first)
{
    q->first = first;
    q->columns = block_columns(f->plan->tokens, first);
    exo_pack_rows(rows, first, BLOCK, f->padded, exo_in_pairs(f->plan), f->keys);
    exo_transpose_units(f->keys, f->units, BLOCK, f->units, q->units, BLOCK);
    memset(q->out, 0, f->padded * BLOCK * sizeof *q->out);
    for (size_t i = 0; i < BLOCK; i++) {
        q->peak[i] = NO_SCORE;
        q->sum[i] = 0.0f;
    }
}

/* Writes the output, divided by the sum of weights, and the logarithms of the sums. */
static void
finish_queries(struct forward *f, struct queries *q, const exo_head_rows *rows, float *lse)
{
    const exo_attention_plan *plan = f->plan;
    float kept = plan->dropped ? 65536.0f / (float)(65536 - plan->dropped) : 1.0f;
    for (size_t c = 0; c < q->columns; c += LANES) {
        vec factor = vec_splat(kept) / vec_load(q->sum + c);
        for (size_t d = 0; d < f->padded; d++)
            vec_store(q->out + d * BLOCK + c, vec_load(q->out + d * BLOCK + c) * factor);
    }
    exo_transpose_units(q->out, BLOCK, f->padded, BLOCK, f->keys, f->padded);
    exo_unpack_rows(rows, q->first, BLOCK, f->padded, f->keys, 1.0f, false);
    if (!lse)
        return;
    for (size_t i = 0; i < BLOCK && q->first + i < plan->tokens; i++)
        lse[(f->sequence * plan->heads + f->head) * plan->tokens + q->first + i] =
            q->peak[i] * f->scale + log2f(q->sum[i]);
}

/* Packs the keys and values of one block, and prefetches the next block: of the same head, or the
 * first of the next head. */
static void
start_keys(struct forward *f, const struct rows *rows, const struct rows *next, size_t first,
           size_t last)
{
    bool pairs = exo_in_pairs(f->plan);
    exo_pack_rows(&rows->keys, first, BLOCK, f->padded, pairs, f->keys);
    if (pairs)
        exo_pack_row_pairs(&rows->values, first, BLOCK, f->padded, f->values);
    else
        exo_pack_rows(&rows->values, first, BLOCK, f->padded, false, f->values);
    if (first < last) {
        exo_prefetch_rows(&rows->keys, first + BLOCK, BLOCK);
        exo_prefetch_rows(&rows->values, first + BLOCK, BLOCK);
    } else if (next) {
        exo_prefetch_rows(&next->keys, 0, BLOCK);
        exo_prefetch_rows(&next->values, 0, BLOCK);
    }
}

/* Runs a piece's queries of one head, from query `first` on. */
static void
run_head(struct forward *f, const struct rows *rows, const struct rows *next, size_t first,
         float *lse)
{
    bool pairs = exo_in_pairs(f->plan), all = f->plan->seen > 0;
    size_t blocks = 0;
    for (size_t at = first; blocks < PIECE_BLOCKS && at < f->plan->tokens; at += BLOCK) {
        start_queries(f, &f->queries[blocks], &rows->queries, at);
        if (all)
            continue_queries(f, &f->queries[blocks], &rows->out, lse);
        blocks++;
    }
    size_t last = all ? (f->plan->seen - 1) / BLOCK * BLOCK : f->queries[blocks - 1].first;
    for (size_t key = 0; key <= last; key += BLOCK) {
        start_keys(f, rows, next, key, last);
        for (size_t b = 0; b < blocks; b++) {
            if (!all && f->queries[b].first < key)
                continue;
            if (pairs)
                run_block_pairs(f, &f->queries[b], key);
            else
                run_block_fp32(f, &f->queries[b], key);
            if (next && key == 0)
                exo_prefetch_rows(&next->queries, f->queries[b].first, BLOCK);
        }
    }
    for (size_t b = 0; b < blocks; b++)
        finish_queries(f, &f->queries[b], &rows->out, lse);
}

void
exo_attention_forward_piece(const exo_attention_plan *plan, size_t piece, const void *x, void *out,
                            float *lse, void *scratch)
{
    struct forward f;
    lay_out(&f, plan, scratch);
    /* The last queries see the most keys. Their pieces come first, so that short pieces balance
     * the threads at the end. */
    size_t heads = heads_of_piece(plan), bundles = plan->sequences * plan->heads / heads;
    size_t first =
        plan->first_query + (pieces_of_sequence(plan) - 1 - piece / bundles) * PIECE_BLOCKS * BLOCK;
    size_t head = piece % bundles * heads, end = head + heads; /* of all sequences */
    f.scale = (float)((double)plan->scale * LOG2_E);
    struct rows now = head_rows(plan, x, out, head), next = now;
    for (; head < end; head++) {
        f.sequence = head / plan->heads;
        f.head = head % plan->heads;
        if (head + 1 < end)
            next = head_rows(plan, x, out, head + 1);
        run_head(&f, &now, head + 1 < end ? &next : NULL, first, lse);
        now = next;
    }
}
