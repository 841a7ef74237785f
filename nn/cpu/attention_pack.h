/* Rows of one head of one sequence, copied into the forms that the products of attention_product.h take, and back.
 *
 * Heads lie far apart in memory, at strides that fall on few cache sets; copies are dense and padded with zeros: rows to blocks of 64, a
 * head to exo_padded_width elements. "Units" are fp32 numbers, or pairs of bf16: see attention_product.h. */
#ifndef EXO_CPU_ATTENTION_PACK_H
#define EXO_CPU_ATTENTION_PACK_H

#include "nn/cpu/attention_kernels.h"
#include "nn/cpu/attention_vector.h"

enum {
    BLOCK = EXO_ATTENTION_BLOCK
};

/* Token t's elements are `width` numbers from data + t * stride on. */
typedef struct exo_head_rows {
    const void *data;
    size_t stride, width, tokens;
    exo_dtype dtype;
    const float *turns; /* rotary, as in the plan; NULL: none */
    size_t turned;
} exo_head_rows;

typedef enum exo_head_part {
    EXO_QUERIES, /* of query head `head`     */
    EXO_KEYS,    /* of key-value head `head` */
    EXO_VALUES,
} exo_head_part;

/* Of x or its gradient. */
exo_head_rows exo_input_rows(const exo_attention_plan *plan, exo_head_part part, const void *x,
                             size_t sequence, size_t head);
/* Of the output or its gradient. */
exo_head_rows exo_output_rows(const exo_attention_plan *plan, const void *out, size_t sequence,
                              size_t head);

/* Whether the plan is computed in pairs of bf16. */
static inline bool
exo_in_pairs(const exo_attention_plan *plan)
{
    return PAIRS_RUN && plan->dtype == EXO_BF16;
}

static inline size_t
exo_padded_width(const exo_attention_plan *plan)
{
    return exo_in_pairs(plan) ? (plan->width + 31) / 32 * 32 : (plan->width + 15) / 16 * 16;
}

/* How many of `heads` neighbouring heads a piece takes, if `others` pieces take one each: as many as leave enough pieces. The rows of the
 * next one are fetched while one is computed. */
size_t exo_heads_of_piece(size_t heads, size_t others);

/* Asks for the rows `first` and on, as far as there are tokens, to be brought near: rows of a head are too far apart for the processor to
 * see them coming. */
void exo_prefetch_rows(const exo_head_rows *rows, size_t first, size_t count);
/* The same for rows that will be written. */
void exo_prefetch_rows_to_write(const exo_head_rows *rows, size_t first, size_t count);

/* out (count, units of a padded head): the rows `first` and on, zeros beyond the last token. Pairs are along a row. */
void exo_pack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, bool pairs,
                   float *out);
/* out (count / 2, padded) of pairs: element d of rows 2 r and 2 r + 1. */
void exo_pack_row_pairs(const exo_head_rows *rows, size_t first, size_t count, size_t padded,
                        float *out);
/* out (columns, rows) = in (rows, columns), units; both are multiples of 16. */
void exo_transpose_units(const float *in, size_t in_row, size_t rows, size_t columns, float *out,
                         size_t out_row);

/* out (count) = the sums over a row of a * b, rows `first` and on; 0 beyond the last token. */
void exo_row_products(const exo_head_rows *a, const exo_head_rows *b, size_t first, size_t count,
                      float *out);

/* Writes `values` (count, padded) times `factor` to the rows `first` and on, as far as there are tokens; turned back where the rows are
 * turned. Changes `values`. */
void exo_unpack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded,
                     float *values, float factor, bool add);

#endif
