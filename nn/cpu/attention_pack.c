/* Packing for attention: see attention_pack.h. No state. */
#include "nn/cpu/attention_pack.h"

#include <assert.h>
#include <string.h>

#include "base/bf16.h"

enum {
    CACHE_LINE = 64,   /* bytes */
    ENOUGH_PIECES = 16 /* so many balance the threads' work */
};

static exo_head_rows
head_rows(const exo_attention_plan *plan, const void *data, size_t columns, size_t sequence,
          size_t column)
{
    size_t skip = (sequence * plan->tokens * columns + column) * exo_dtype_size(plan->dtype);
    return (exo_head_rows){.data = (const char *)data + skip,
                           .stride = columns,
                           .width = plan->width,
                           .tokens = plan->tokens,
                           .dtype = plan->dtype};
}

exo_head_rows
exo_input_rows(const exo_attention_plan *plan, exo_head_part part, const void *x, size_t sequence,
               size_t head)
{
    size_t heads = plan->heads + 2 * plan->kv_heads;
    size_t before = part == EXO_QUERIES ? 0
                    : part == EXO_KEYS  ? plan->heads
                                        : plan->heads + plan->kv_heads;
    exo_head_rows rows =
        head_rows(plan, x, heads * plan->width, sequence, (before + head) * plan->width);
    if (part != EXO_VALUES) {
        rows.turns = plan->turns;
        rows.turned = plan->turned;
    }
    return rows;
}

exo_head_rows
exo_key_rows(const exo_attention_plan *plan, exo_head_part part, const void *x, const void *others,
             size_t sequence, size_t head)
{
    if (plan->seen == 0)
        return exo_input_rows(plan, part, x, sequence, head);
    size_t before = part == EXO_KEYS ? 0 : plan->kv_heads;
    exo_head_rows rows = head_rows(plan, others, 2 * plan->kv_heads * plan->width, sequence,
                                   (before + head) * plan->width);
    rows.tokens = plan->seen;
    if (part == EXO_KEYS) {
        rows.turns = plan->key_turns;
        rows.turned = plan->turned;
    }
    return rows;
}

exo_head_rows
exo_output_rows(const exo_attention_plan *plan, const void *out, size_t sequence, size_t head)
{
    return head_rows(plan, out, plan->heads * plan->width, sequence, head * plan->width);
}

static inline const void *
row_at(const exo_head_rows *rows, size_t token)
{
    return (const char *)rows->data +
           token * rows->stride * (rows->dtype == EXO_BF16 ? sizeof(uint16_t) : sizeof(float));
}

size_t
exo_heads_of_piece(size_t heads, size_t others)
{
    size_t most = heads;
    while (heads % most != 0 || heads / most * others < ENOUGH_PIECES)
        if (--most <= 1)
            return 1;
    return most;
}

INLINE void
prefetch_rows(const exo_head_rows *rows, size_t first, size_t count, bool write)
{
    size_t bytes = rows->width * (rows->dtype == EXO_BF16 ? sizeof(uint16_t) : sizeof(float));
    for (size_t t = first; t < first + count && t < rows->tokens; t++) {
        const char *row = row_at(rows, t);
        for (size_t at = 0; at < bytes; at += CACHE_LINE) {
            if (write)
                __builtin_prefetch(row + at, 1);
            else
                __builtin_prefetch(row + at, 0, 2); /* into the second-level cache */
        }
    }
}

void
exo_prefetch_rows(const exo_head_rows *rows, size_t first, size_t count)
{
    prefetch_rows(rows, first, count, false);
}

void
exo_prefetch_rows_to_write(const exo_head_rows *rows, size_t first, size_t count)
{
    prefetch_rows(rows, first, count, true);
}

/* Rotates each pair of elements i and i + half, as a point in the plane, by the angle whose cosine
 * and sine are in `turns`. A sign of -1 rotates backwards. */
static void
turn(float *restrict row, const float *restrict turns, size_t turned, float sign)
{
    size_t half = turned / 2;
    for (size_t i = 0; i < half; i++) {
        float a = row[i], b = row[half + i], c = turns[i], s = sign * turns[half + i];
        row[i] = a * c - b * s;
        row[half + i] = b * c + a * s;
    }
}

/* Without memcpy: rows are so short that the calls would take longer than the copies. */
INLINE void
copy_row(const float *in, float *out, size_t width)
{
    size_t d = 0;
    for (; d + LANES <= width; d += LANES)
        vec_store_any(out + d, vec_load_any(in + d));
    for (; d < width; d++)
        out[d] = in[d];
}

INLINE void
copy_bf16_row(const uint16_t *in, uint16_t *out, size_t width)
{
    size_t d = 0;
    for (; d + 2 * LANES <= width; d += 2 * LANES)
        memcpy(out + d, in + d, 2 * LANES * sizeof *in);
    for (; d < width; d++)
        out[d] = in[d];
}

static inline void
load_row(const exo_head_rows *rows, size_t token, float *row)
{
    const void *from = row_at(rows, token);
    if (rows->dtype == EXO_F32) {
        copy_row(from, row, rows->width);
    } else {
        const uint16_t *in = from;
        size_t d = 0;
        for (; d + LANES <= rows->width; d += LANES)
            vec_store_any(row + d, vec_load_bf16(in + d));
        for (; d < rows->width; d++)
            row[d] = exo_from_bf16(in[d]);
    }
    if (rows->turns)
        turn(row, rows->turns + token * rows->turned, rows->turned, 1.0f);
}

/* The row in bf16: the row itself if it is bf16 without rotary positions, else `copy`. */
static inline const uint16_t *
bf16_row(const exo_head_rows *rows, size_t token, uint16_t *copy)
{
    float exact[EXO_ATTENTION_MAX_WIDTH];
    if (rows->dtype == EXO_BF16 && !rows->turns)
        return row_at(rows, token);
    assert(rows->width <= EXO_ATTENTION_MAX_WIDTH);
    load_row(rows, token, exact);
    for (size_t d = 0; d < rows->width; d++)
        copy[d] = exo_to_bf16(exact[d]);
    return copy;
}

void
exo_pack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, bool pairs,
              float *out)
{
    size_t size = pairs ? sizeof(uint16_t) : sizeof(float);
    uint16_t copy[EXO_ATTENTION_MAX_WIDTH];
    for (size_t r = 0; r < count; r++) {
        char *row = (char *)out + r * padded * size;
        if (first + r >= rows->tokens) {
            memset(row, 0, (count - r) * padded * size);
            return;
        }
        if (pairs)
            copy_bf16_row(bf16_row(rows, first + r, copy), (uint16_t *)(void *)row, rows->width);
        else
            load_row(rows, first + r, (float *)(void *)row);
        if (padded > rows->width)
            memset(row + rows->width * size, 0, (padded - rows->width) * size);
    }
}

static inline void
interleave(const uint16_t *restrict even, const uint16_t *restrict odd, size_t width,
           uint32_t *restrict out)
{
    for (size_t d = 0; d < width; d++)
        out[d] = even[d] | (uint32_t)odd[d] << 16;
}

void
exo_pack_row_pairs(const exo_head_rows *rows, size_t first, size_t count, size_t padded, float *out)
{
    static const uint16_t nothing[EXO_ATTENTION_MAX_WIDTH];
    uint16_t copies[2][EXO_ATTENTION_MAX_WIDTH];
    for (size_t r = 0; r < count; r += 2) {
        uint32_t *units = (uint32_t *)(void *)(out + r / 2 * padded);
        if (first + r >= rows->tokens) {
            memset(units, 0, (count - r) / 2 * padded * sizeof *units);
            return;
        }
        const uint16_t *even = bf16_row(rows, first + r, copies[0]);
        const uint16_t *odd =
            first + r + 1 < rows->tokens ? bf16_row(rows, first + r + 1, copies[1]) : nothing;
        interleave(even, odd, rows->width, units);
        if (padded > rows->width)
            memset(units + rows->width, 0, (padded - rows->width) * sizeof *units);
    }
}

#if LANES == 16
/* Swaps the blocks off the diagonal, of size 1, then 2, 4 and 8 (Eklundh, 1972). */
static void
transpose_tile(const float *in, size_t in_row, float *out, size_t out_row)
{
    vec r[LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++)
        r[i] = vec_load_any(in + i * in_row);
#pragma GCC unroll 4
    for (int step = 1; step < LANES; step *= 2) {
        ivec lanes = vec_lanes(), upper = (lanes & step) != 0;
        __m512i first = (__m512i)(lanes + (upper & (LANES - step)));
        __m512i second = (__m512i)(lanes + ((upper & LANES) | (~upper & step)));
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            if (i & step)
                continue;
            vec a = r[i], b = r[i + step];
            r[i] = _mm512_permutex2var_ps(a, first, b);
            r[i + step] = _mm512_permutex2var_ps(a, second, b);
        }
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++)
        vec_store(out + i * out_row, r[i]);
}
#else
static void
transpose_tile(const float *restrict in, size_t in_row, float *restrict out, size_t out_row)
{
    for (size_t r = 0; r < LANES; r++)
        for (size_t c = 0; c < LANES; c++)
            out[c * out_row + r] = in[r * in_row + c];
}
#endif

void
exo_transpose_units(const float *in, size_t in_row, size_t rows, size_t columns, float *out,
                    size_t out_row)
{
    for (size_t c = 0; c < columns; c += LANES)
        for (size_t r = 0; r < rows; r += LANES)
            transpose_tile(in + r * in_row + c, in_row, out + c * out_row + r, out_row);
}

INLINE vec
load_any(const void *row, exo_dtype dtype, size_t d)
{
    return dtype == EXO_BF16 ? vec_load_bf16((const uint16_t *)row + d)
                             : vec_load_any((const float *)row + d);
}

INLINE float
load_one(const void *row, exo_dtype dtype, size_t d)
{
    return dtype == EXO_BF16 ? exo_from_bf16(((const uint16_t *)row)[d]) : ((const float *)row)[d];
}

/* Neither a nor b has rotary positions. */
INLINE void
row_products(const exo_head_rows *a, const exo_head_rows *b, exo_dtype dtype, size_t first,
             size_t count, float *out)
{
    for (size_t r = 0; r < count; r++) {
        const void *left = row_at(a, first + r), *right = row_at(b, first + r);
        vec lanes = {0};
        size_t d = 0;
        for (; d + LANES <= a->width; d += LANES)
            lanes = vec_multiply_add(load_any(left, dtype, d), load_any(right, dtype, d), lanes);
        float sum = vec_sum(lanes);
        for (; d < a->width; d++)
            sum += load_one(left, dtype, d) * load_one(right, dtype, d);
        out[r] = sum;
    }
}

void
exo_row_products(const exo_head_rows *a, const exo_head_rows *b, size_t first, size_t count,
                 float *out)
{
    size_t left = a->tokens - first, valid = left < count ? left : count;
    if (a->dtype == EXO_BF16)
        row_products(a, b, EXO_BF16, first, valid, out);
    else
        row_products(a, b, EXO_F32, first, valid, out);
    for (size_t r = valid; r < count; r++)
        out[r] = 0.0f;
}

/* Writes `values` times `factor` to one row, or adds it. */
INLINE void
put_row(exo_dtype dtype, void *row, size_t width, const float *values, float factor, bool add)
{
    vec factors = vec_splat(factor);
    size_t d = 0;
    for (; d + LANES <= width; d += LANES) {
        vec v = vec_load_any(values + d) * factors;
        if (add)
            v += load_any(row, dtype, d);
        if (dtype == EXO_BF16)
            vec_store_bf16((uint16_t *)row + d, v);
        else
            vec_store_any((float *)row + d, v);
    }
    for (; d < width; d++) {
        float v = values[d] * factor + (add ? load_one(row, dtype, d) : 0.0f);
        if (dtype == EXO_BF16)
            ((uint16_t *)row)[d] = exo_to_bf16(v);
        else
            ((float *)row)[d] = v;
    }
}

void
exo_unpack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, float *values,
                float factor, bool add)
{
    for (size_t r = 0; r < count && first + r < rows->tokens; r++) {
        float *row = values + r * padded;
        void *to = (void *)(uintptr_t)row_at(rows, first + r); /* the caller may write there */
        if (rows->turns)
            turn(row, rows->turns + (first + r) * rows->turned, rows->turned, -1.0f);
        if (rows->dtype == EXO_BF16)
            put_row(EXO_BF16, to, rows->width, row, factor, add);
        else
            put_row(EXO_F32, to, rows->width, row, factor, add);
    }
}
