/* Operations on a block of scores, for forward and backward: 64 keys (rows) by up to 64 queries
 * (columns), fp32, at a pitch of 64.
 *
 * In a block on the diagonal the first key is also the first query. It is computed in bands of 16
 * keys. Band g sees the columns from 16 g on; the columns before are neither written nor read. No
 * state. Read next: attention_product.h. */
#ifndef EXO_CPU_ATTENTION_BLOCK_H
#define EXO_CPU_ATTENTION_BLOCK_H

#include "nn/cpu/attention_pack.h"
#include "nn/cpu/attention_product.h"

enum {
    BAND = 16 /* keys */
};

#define LOG2_E   1.44269504088896340736
#define NO_SCORE (-1e30f) /* below all scores, but finite: a difference is never NaN */

/* The rows of a band; without the diagonal, the whole block is one band. */
static inline size_t
band_rows(bool diagonal)
{
    return diagonal ? BAND : BLOCK;
}

static inline size_t
num_bands(bool diagonal, size_t columns)
{
    return diagonal ? columns / BAND : 1;
}

/* The number of rows, from row 0, that the vector of columns at `column` sees. */
static inline size_t
visible_rows(bool diagonal, size_t column)
{
    return diagonal ? (column / BAND + 1) * BAND : BLOCK;
}

/* The columns of a block whose first query is `first`, rounded up to a multiple of 16. */
static inline size_t
block_columns(size_t tokens, size_t first)
{
    size_t left = tokens - first;
    return left < BLOCK ? (left + BAND - 1) / BAND * BAND : BLOCK;
}

/* out (rows, columns) = a (rows, units) b (units, columns): scores, or gradients of weights. */
INLINE void
score_product(bool pairs, bool diagonal, size_t columns, size_t units, const float *a,
              const float *b, float *out)
{
    for (size_t g = 0; g < num_bands(diagonal, columns); g++) {
        size_t row = g * BAND, column = g * BAND;
        product_run((product){.rows = band_rows(diagonal),
                              .columns = columns - column,
                              .inner = units,
                              .a = a + row * units,
                              .a_row = units,
                              .a_step = 1,
                              .b = b + column,
                              .b_row = BLOCK,
                              .c = out + row * BLOCK + column,
                              .c_row = BLOCK},
                    pairs, false);
    }
}

/* out (padded, columns) = out * factors + a^T b: a sum over keys for each query. a (keys, padded)
 * are a block's keys or values; b (keys, columns) are its weights or the gradients of its scores.
 * With `pairs`, a and b have pairs of keys. factors (columns) may be NULL. */
INLINE void
query_product(bool pairs, bool diagonal, size_t columns, size_t padded, const float *a,
              const float *b, const float *factors, float *out)
{
    size_t inner = band_rows(diagonal) / (pairs ? 2 : 1);
    for (size_t g = 0; g < num_bands(diagonal, columns); g++) {
        size_t row = g * inner, column = g * BAND;
        product_run((product){.rows = padded,
                              .columns = columns - column,
                              .inner = inner,
                              .a = a + row * padded,
                              .a_row = 1,
                              .a_step = padded,
                              .b = b + row * BLOCK + column,
                              .b_row = BLOCK,
                              .c = out + column,
                              .c_row = BLOCK,
                              .factors = g == 0 ? factors : NULL},
                    pairs, true);
    }
}

/* Adds slope (j - i) to the score of key first_key + j and query first_query + i. */
INLINE void
add_bias(bool diagonal, size_t columns, float slope, size_t first_query, size_t first_key,
         float *scores)
{
    float apart = (float)first_query - (float)first_key;
    for (size_t c = 0; c < columns; c += LANES) {
        vec query = __builtin_convertvector(vec_lanes() + (int32_t)c, vec) + vec_splat(apart);
        for (size_t j = 0; j < visible_rows(diagonal, c); j++) {
            float *at = scores + j * BLOCK + c;
            vec_store(
                at, vec_multiply_add(vec_splat(slope), vec_splat((float)j) - query, vec_load(at)));
        }
    }
}

/* In the last block of keys that all queries see: sets the scores of rows from `rows` on to `value`. */
INLINE void
hide_absent_keys(size_t columns, size_t rows, float value, float *scores)
{
    for (size_t j = rows; j < BLOCK; j++)
        for (size_t c = 0; c < columns; c += LANES)
            vec_store(scores + j * BLOCK + c, vec_splat(value));
}

/* In a block on the diagonal: sets the score to `value` where the key is after the query. */
INLINE void
hide_later_keys(size_t columns, float value, float *scores)
{
    for (size_t c = 0; c < columns; c += LANES) {
        ivec query = vec_lanes() + (int32_t)c;
        for (size_t j = c / BAND * BAND; j < visible_rows(true, c); j++) {
            float *at = scores + j * BLOCK + c;
            vec_store(at, vec_select(query < (int32_t)j, vec_splat(value), vec_load(at)));
        }
    }
}

#endif
