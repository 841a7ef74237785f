/* Lossless changes between two arrays of fp32, as bytes that compress well.
 *
 * The bits of a float, mapped to integers in the order of the floats, are subtracted; small changes
 * of values give small differences, also where the exponent changes. The sign of a difference moves
 * to its lowest bit. Where both arrays are bf16 numbers, the upper halves alone are subtracted. If
 * most elements are equal, the differences that are not 0 have their distances beside them.
 * Differences are split into planes: the lowest bytes of all, then the next ones. The upper planes
 * are almost all 0, and the lowest one is almost noise, so they are compressed apart.
 *
 * The functions are pure and touch integers only. Read next: delta.c, streams.h. */
#ifndef EXO_UPDATES_DELTA_H
#define EXO_UPDATES_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bits of a float in an array of floats. */
typedef uint32_t exo_float_bits __attribute__((may_alias));

/* The kinds of differences. The numbers are on the wire. */
typedef enum exo_delta_kind {
    EXO_DELTA_SAME = 0,     /* nothing has changed */
    EXO_DELTA_FULL32 = 1,   /* 4 planes of all elements */
    EXO_DELTA_FULL16 = 2,   /* 2 planes, of bf16 numbers */
    EXO_DELTA_SPARSE32 = 3, /* 4 planes of the changed elements, and gaps */
    EXO_DELTA_SPARSE16 = 4, /* 2 planes */
} exo_delta_kind;

/* A piece is sparse if at most one of so many elements has changed: gaps and differences then
 * compress better than planes with zeros. */
enum {
    EXO_DELTA_SPARSE = 3
};

/* What is known of a difference before it is written. */
typedef struct exo_delta_shape {
    exo_delta_kind kind;
    uint32_t changed; /* elements */
} exo_delta_shape;

/* The number of planes of a kind; 0: it has none, or there is no such kind. */
size_t exo_delta_planes(uint32_t kind);
bool exo_delta_is_sparse(uint32_t kind);

/* Computes z (count), the differences, from the bits of both arrays, and their shape. */
exo_delta_shape exo_delta_subtract(const exo_float_bits *base, const exo_float_bits *now,
                                   size_t count, uint32_t *z);
/* Writes the planes of z to planes[p] + at, and for sparse kinds the gaps (at most 5 bytes for each
 * changed element). Returns the bytes of the gaps. */
size_t exo_delta_split(const uint32_t *z, size_t count, exo_delta_shape shape,
                       uint8_t *const planes[4], uint8_t *gaps);

/* Computes now (count) from base and the planes. For sparse kinds reads `changed` gaps from *gaps,
 * which it moves on, up to `end`. False: the gaps or planes are not ones that exo_delta_split
 * makes; `now` is undefined. */
bool exo_delta_add(const exo_float_bits *base, exo_float_bits *now, size_t count,
                   exo_delta_shape shape, const uint8_t *const planes[4], const uint8_t **gaps,
                   const uint8_t *end);

#endif
