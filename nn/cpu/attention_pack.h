/* Packing of one head's rows, for the products of attention_product.h, and unpacking.
 *
 * The rows of a head are far apart in memory, at strides that fall on few cache sets. Packed rows
 * are dense and padded with zeros: rows to blocks of 64, a head to exo_padded_width elements. A
 * unit is an fp32 number, or a pair of bf16 numbers: see attention_product.h. No state. Read next:
 * attention_pack.c. */
#ifndef EXO_CPU_ATTENTION_PACK_H
#define EXO_CPU_ATTENTION_PACK_H

#include "nn/cpu/attention_kernels.h"
#include "nn/cpu/attention_vector.h"

enum {
    BLOCK = EXO_ATTENTION_BLOCK
};

/* The rows of one head. Token t has `width` elements, from element t * stride of `data` on. */
typedef struct exo_head_rows {
    const void *data;
    size_t stride, width, tokens;
    exo_dtype dtype;
    const float *turns; /* of rotary positions, as in the plan; NULL: none */
    size_t turned;
} exo_head_rows;

typedef enum exo_head_part {
    EXO_QUERIES, /* of query head `head`     */
    EXO_KEYS,    /* of key-value head `head` */
    EXO_VALUES,
} exo_head_part;

/* The rows of a head in x or its gradient. */
exo_head_rows exo_input_rows(const exo_attention_plan *plan, exo_head_part part, const void *x,
                             size_t sequence, size_t head);
/* The rows of keys or values of a head in x, or in `others`, if the plan has them; or in the gradient of
 * either. */
exo_head_rows exo_key_rows(const exo_attention_plan *plan, exo_head_part part, const void *x,
                           const void *others, size_t sequence, size_t head);
/* The rows of a head in the output or its gradient. */
exo_head_rows exo_output_rows(const exo_attention_plan *plan, const void *out, size_t sequence,
                              size_t head);

/* True: the plan is computed in pairs of bf16. */
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

/* The number of neighbouring heads in a piece, a divisor of `heads`: the largest that leaves
 * enough pieces, if there are `others` pieces of each head. A piece prefetches the rows of its
 * next head while it computes one. */
size_t exo_heads_of_piece(size_t heads, size_t others);

/* Prefetches `count` rows from `first` on, up to the last token. The rows of a head are too far
 * apart for the processor's own prefetching. */
void exo_prefetch_rows(const exo_head_rows *rows, size_t first, size_t count);
/* The same for rows that will be written. */
void exo_prefetch_rows_to_write(const exo_head_rows *rows, size_t first, size_t count);

/* out (count, units of a padded head): `count` rows from `first` on; zeros beyond the last token.
 * Pairs are neighbours in a row. */
void exo_pack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, bool pairs,
                   float *out);
/* out (count / 2, padded) of pairs: a pair is element d of the rows 2 r and 2 r + 1. */
void exo_pack_row_pairs(const exo_head_rows *rows, size_t first, size_t count, size_t padded,
                        float *out);
/* Transposes units: out (columns, rows) = in (rows, columns). Both are multiples of 16. Rows of `in`
 * have any alignment, rows of `out` that of a vector. */
void exo_transpose_units(const float *in, size_t in_row, size_t rows, size_t columns, float *out,
                         size_t out_row);

/* out (count): the dot products of `count` rows of a and b, from `first` on; 0 beyond the last
 * token. */
void exo_row_products(const exo_head_rows *a, const exo_head_rows *b, size_t first, size_t count,
                      float *out);

/* Writes `values` (count, padded) times `factor` to the rows from `first` on, up to the last
 * token, or adds it. If the rows have rotary positions, the values are rotated back. Overwrites
 * `values`. */
void exo_unpack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded,
                     float *values, float factor, bool add);

#endif
