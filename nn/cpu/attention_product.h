/* Matrix products of blocks for attention: C (rows, columns) = or += A (rows, inner) B (inner, columns), inlined where they are used.
 *
 * One form serves all: an element of A is broadcast, B and C are vectors along columns, and a tile of C stays in registers over the
 * whole sum. A may lie in any order, as it is read element by element.
 *
 * Elements are units of 32 bits: fp32 numbers, or pairs of bf16 that are neighbours along `inner`, which is then counted in pairs;
 * C is fp32 always. An element's sum runs along `inner` whatever the tiles are. */
#ifndef EXO_CPU_ATTENTION_PRODUCT_H
#define EXO_CPU_ATTENTION_PRODUCT_H

#include "nn/cpu/attention_vector.h"

#if LANES == 16
#define PANEL 4 /* vectors of a tile's row at most */
#else
#define PANEL 2
#endif

enum {
    TALL = 8,  /* rows of a narrow tile; PANEL vectors have half as many */
    ALIGN = 16 /* rows and columns are multiples of it                   */
};

typedef struct product {
    size_t rows, columns, inner;
    const float *a; /* unit (r, i) at r * a_row + i * a_step */
    size_t a_row, a_step;
    const float *b; /* unit (i, c) at i * b_row + c */
    size_t b_row;
    float *c; /* (r, c) at r * c_row + c */
    size_t c_row;
    const float *factors; /* (columns): C is multiplied by them before; NULL: not */
} product;

/* acc += a * b, by unit. */
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
            IN_REGISTER(
                line[v]); /* one load, not one for each row: loads would be more than the processor does beside products */
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
#if LANES == 16 /* otherwise ALIGN is a number of panels */
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
