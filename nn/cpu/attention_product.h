/* Products of blocks for attention, inlined into their callers: C (rows, columns) = A (rows,
 * inner) B (inner, columns), or += it.
 *
 * All products have one form: an element of A is broadcast, B and C are vectors along columns, and
 * a tile of C stays in registers during the whole sum. A is read element by element, so it may
 * have any layout.
 *
 * The elements of A and B are units of 32 bits: fp32 numbers, or pairs of bf16. A pair has
 * neighbours along `inner`, which then counts pairs. C is always fp32. The order of a sum is that
 * of `inner`, and does not depend on the tiles. No state. Read next: attention_vector.h. */
#ifndef EXO_CPU_ATTENTION_PRODUCT_H
#define EXO_CPU_ATTENTION_PRODUCT_H

#include "nn/cpu/attention_vector.h"

#if LANES == 16
#define PANEL 4 /* vectors in a tile's row, at most */
#else
#define PANEL 2
#endif

enum {
    TALL = 8,  /* rows of a narrow tile; a tile of PANEL vectors has half as many */
    ALIGN = 16 /* rows and columns are multiples of this */
};

typedef struct product {
    size_t rows, columns, inner;
    const float *a; /* unit (r, i) at r * a_row + i * a_step */
    size_t a_row, a_step;
    const float *b; /* unit (i, c) at i * b_row + c */
    size_t b_row;
    float *c; /* (r, c) at r * c_row + c */
    size_t c_row;
    const float *factors; /* (columns): they multiply C before the addition; NULL: none */
} product;

/* acc + a * b, for each unit. */
INLINE vec
unit_multiply_add(bool pairs, float a, vec b, vec acc)
{
#if PAIRS_RUN
    if (pairs) {
        union {
            float unit;
            int32_t bits;
        } broadcast = {.unit = a};
        return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(broadcast.bits), (__m512bh)b);
    }
#endif
    (void)pairs;
    return vec_multiply_add(vec_splat(a), b, acc);
}

INLINE void
product_tile(const product *p, bool pairs, bool add, size_t row, size_t column, size_t rows,
             size_t vectors)
{
    const float *a = p->a + row * p->a_row, *b = p->b + column;
    float *c = p->c + row * p->c_row + column;
    vec acc[TALL][PANEL];
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            acc[r][v] = add ? vec_load(c + r * p->c_row + v * LANES) : (vec){0};
    if (add && p->factors) {
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            vec factor = vec_load(p->factors + column + v * LANES);
#pragma GCC unroll 8
            for (size_t r = 0; r < rows; r++)
                acc[r][v] *= factor;
        }
    }
    for (size_t i = 0; i < p->inner; i++, a += p->a_step, b += p->b_row) {
        vec line[PANEL];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++) {
            line[v] = vec_load(b + v * LANES);
            /* One load for all rows: a load for each row would limit the products' speed. */
            IN_REGISTER(line[v]);
        }
#pragma GCC unroll 8
        for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; v++)
                acc[r][v] = unit_multiply_add(pairs, a[r * p->a_row], line[v], acc[r][v]);
    }
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; v++)
            vec_store(c + r * p->c_row + v * LANES, acc[r][v]);
}

INLINE void
product_panel(const product *p, bool pairs, bool add, size_t column, size_t rows, size_t vectors)
{
    for (size_t r = 0; r < p->rows; r += rows)
        product_tile(p, pairs, add, r, column, rows, vectors);
}

INLINE void
product_run(const product p, bool pairs, bool add)
{
    size_t column = 0;
    for (; column + PANEL * LANES <= p.columns; column += PANEL * LANES)
        product_panel(&p, pairs, add, column, TALL / 2, PANEL);
#if LANES == 16 /* otherwise ALIGN is a multiple of a panel */
    switch ((p.columns - column) / LANES) {
    case 1:
        product_panel(&p, pairs, add, column, TALL, 1);
        break;
    case 2:
        product_panel(&p, pairs, add, column, TALL, 2);
        break;
    case 3:
        product_panel(&p, pairs, add, column, TALL, 3);
        break;
    default:
        break;
    }
#endif
}

#endif
