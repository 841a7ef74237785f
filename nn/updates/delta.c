/* Differences of floats: see delta.h. Loops have no branches on values where all elements are
 * visited, so that compilers vectorize them. */
#include "nn/updates/delta.h"

#include <string.h>

size_t
exo_delta_planes(uint32_t kind)
{
    switch (kind) {
    case EXO_DELTA_FULL32:
    case EXO_DELTA_SPARSE32:
        return 4;
    case EXO_DELTA_FULL16:
    case EXO_DELTA_SPARSE16:
        return 2;
    default:
        return 0;
    }
}

bool
exo_delta_is_sparse(uint32_t kind)
{
    return kind == EXO_DELTA_SPARSE32 || kind == EXO_DELTA_SPARSE16;
}

/* Bits of a float to an integer that grows with the float, and back. */
static inline uint32_t
to_order(uint32_t bits)
{
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

static inline uint32_t
from_order(uint32_t order)
{
    return order ^ (((order >> 31) - 1u) | 0x80000000u);
}

static inline uint32_t
to_zigzag(uint32_t d)
{
    return (d << 1) ^ (0u - (d >> 31));
}

static inline uint32_t
from_zigzag(uint32_t z)
{
    return (z >> 1) ^ (0u - (z & 1));
}

/* The same for 16 bits, in the lower half of a word. */
static inline uint32_t
to_order16(uint32_t bits)
{
    return (bits ^ ((0u - (bits >> 15)) | 0x8000u)) & 0xFFFFu;
}

static inline uint32_t
from_order16(uint32_t order)
{
    return (order ^ (((order >> 15) - 1u) | 0x8000u)) & 0xFFFFu;
}

static inline uint32_t
to_zigzag16(uint32_t d)
{
    return ((d << 1) ^ (0u - (d >> 15 & 1))) & 0xFFFFu;
}

/* --- Subtraction ------------------------------------------------------------------------------ */

exo_delta_shape
exo_delta_subtract(const exo_float_bits *base, const exo_float_bits *now, size_t count, uint32_t *z)
{
    uint32_t lower = 0, changed = 0;
    for (size_t i = 0; i < count; i++)
        lower |= base[i] | now[i];
    bool narrow = (lower & 0xFFFFu) == 0;
    if (narrow)
        for (size_t i = 0; i < count; i++)
            z[i] = to_zigzag16((to_order16(now[i] >> 16) - to_order16(base[i] >> 16)) & 0xFFFFu);
    else
        for (size_t i = 0; i < count; i++)
            z[i] = to_zigzag(to_order(now[i]) - to_order(base[i]));
    for (size_t i = 0; i < count; i++)
        changed += z[i] != 0;
    exo_delta_shape shape = {.changed = changed};
    if (changed > 0)
        shape.kind = changed <= count / EXO_DELTA_SPARSE
                         ? narrow ? EXO_DELTA_SPARSE16 : EXO_DELTA_SPARSE32
                     : narrow ? EXO_DELTA_FULL16
                              : EXO_DELTA_FULL32;
    return shape;
}

static size_t
put_gap(uint8_t *out, size_t gap)
{
    size_t at = 0;
    for (; gap >= 128; gap >>= 7)
        out[at++] = (uint8_t)(gap | 128);
    out[at++] = (uint8_t)gap;
    return at;
}

size_t
exo_delta_split(const uint32_t *z, size_t count, exo_delta_shape shape, uint8_t *const planes[4],
                uint8_t *gaps)
{
    size_t num_planes = exo_delta_planes(shape.kind), bytes = 0, last = 0, k = 0;
    if (!exo_delta_is_sparse(shape.kind)) {
        for (size_t p = 0; p < num_planes; p++)
            for (size_t i = 0; i < count; i++)
                planes[p][i] = (uint8_t)(z[i] >> 8 * p);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (z[i] == 0)
            continue;
        bytes += put_gap(gaps + bytes, i - last);
        for (size_t p = 0; p < num_planes; p++)
            planes[p][k] = (uint8_t)(z[i] >> 8 * p);
        last = i + 1;
        k++;
    }
    return bytes;
}

/* --- Addition --------------------------------------------------------------------------------- */

static inline uint32_t
add32(uint32_t base, uint32_t z)
{
    return from_order(to_order(base) + from_zigzag(z));
}

static inline uint32_t
add16(uint32_t base, uint32_t z)
{
    return from_order16((to_order16(base >> 16) + from_zigzag(z)) & 0xFFFFu) << 16;
}

static void
add_all(const exo_float_bits *base, exo_float_bits *now, size_t count, bool narrow,
        const uint8_t *const planes[4])
{
    const uint8_t *a = planes[0], *b = planes[1], *c = planes[2], *d = planes[3];
    if (narrow)
        for (size_t i = 0; i < count; i++)
            now[i] = add16(base[i], a[i] | (uint32_t)b[i] << 8);
    else
        for (size_t i = 0; i < count; i++)
            now[i] = add32(base[i], a[i] | (uint32_t)b[i] << 8 | (uint32_t)c[i] << 16 |
                                        (uint32_t)d[i] << 24);
}

/* False: the gap is cut, or not written in the shortest way. */
static bool
get_gap(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 35 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return byte > 0 || shift == 0;
    }
    return false;
}

static bool
add_some(const exo_float_bits *base, exo_float_bits *now, size_t count, exo_delta_shape shape,
         const uint8_t *const planes[4], const uint8_t **gaps, const uint8_t *end)
{
    size_t num_planes = exo_delta_planes(shape.kind), at = 0;
    uint64_t gap = 0;
    memcpy(now, base, count * sizeof *now);
    for (size_t k = 0; k < shape.changed; k++, at++) {
        uint32_t z = 0;
        if (!get_gap(gaps, end, &gap) || gap >= count - at)
            return false;
        at += gap;
        for (size_t p = 0; p < num_planes; p++)
            z |= (uint32_t)planes[p][k] << 8 * p;
        if (z == 0)
            return false;
        now[at] = num_planes == 2 ? add16(base[at], z) : add32(base[at], z);
    }
    return true;
}

bool
exo_delta_add(const exo_float_bits *base, exo_float_bits *now, size_t count, exo_delta_shape shape,
              const uint8_t *const planes[4], const uint8_t **gaps, const uint8_t *end)
{
    if (shape.kind == EXO_DELTA_SAME) {
        memcpy(now, base, count * sizeof *now);
        return shape.changed == 0;
    }
    if (exo_delta_is_sparse(shape.kind))
        return shape.changed <= count && add_some(base, now, count, shape, planes, gaps, end);
    add_all(base, now, count, exo_delta_planes(shape.kind) == 2, planes);
    return true;
}
