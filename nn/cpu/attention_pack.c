/* Packing for attention: see attention_pack.h. No state. */
#include "attention_pack.h"

#include <assert.h>
#include <string.h>

#include "bf16.h"

static exo_head_rows
head_rows(const exo_attention_plan *plan, const void *data, size_t columns, size_t sequence, size_t column)
{
    size_t skip = (sequence * plan->tokens * columns + column) * exo_dtype_size(plan->dtype);
    return (exo_head_rows){.data = (const char *)data + skip,
                           .stride = columns,
                           .width = plan->width,
                           .tokens = plan->tokens,
                           .dtype = plan->dtype};
}

exo_head_rows
exo_input_rows(const exo_attention_plan *plan, exo_head_part part, const void *x, size_t sequence, size_t head)
{
    size_t heads = plan->heads + 2 * plan->kv_heads;
    size_t before = part == EXO_QUERIES ? 0 : part == EXO_KEYS ? plan->heads : plan->heads + plan->kv_heads;
    exo_head_rows rows = head_rows(plan, x, heads * plan->width, sequence, (before + head) * plan->width);
    if (part != EXO_VALUES) {
        rows.turns = plan->turns;
        rows.turned = plan->turned;
    }
    return rows;
}

exo_head_rows
exo_output_rows(const exo_attention_plan *plan, const void *out, size_t sequence, size_t head)
{
    return head_rows(plan, out, plan->heads * plan->width, sequence, head * plan->width);
}

static const void *
row_at(const exo_head_rows *rows, size_t token)
{
    return (const char *)rows->data + token * rows->stride * exo_dtype_size(rows->dtype);
}

/* Elements i and i + half as one point in the plane, turned by the angle whose cosine and sine stand in `turns`; by its negative if
 * sign is -1. */
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

static void
load_row(const exo_head_rows *rows, size_t token, float *restrict row)
{
    const void *from = row_at(rows, token);
    if (rows->dtype == EXO_F32) {
        memcpy(row, from, rows->width * sizeof *row);
    } else {
        const uint16_t *restrict in = from;
        for (size_t d = 0; d < rows->width; d++)
            row[d] = exo_from_bf16(in[d]);
    }
    if (rows->turns)
        turn(row, rows->turns + token * rows->turned, rows->turned, 1.0f);
}

static void
load_bf16_row(const exo_head_rows *rows, size_t token, uint16_t *restrict row)
{
    float exact[EXO_ATTENTION_MAX_WIDTH];
    if (rows->dtype == EXO_BF16 && !rows->turns) {
        memcpy(row, row_at(rows, token), rows->width * sizeof *row);
        return;
    }
    assert(rows->width <= EXO_ATTENTION_MAX_WIDTH);
    load_row(rows, token, exact);
    for (size_t d = 0; d < rows->width; d++)
        row[d] = exo_to_bf16(exact[d]);
}

void
exo_pack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, bool pairs, float *out)
{
    size_t size = pairs ? sizeof(uint16_t) : sizeof(float);
    for (size_t r = 0; r < count; r++) {
        char *row = (char *)out + r * padded * size;
        if (first + r >= rows->tokens) {
            memset(row, 0, (count - r) * padded * size);
            return;
        }
        if (pairs)
            load_bf16_row(rows, first + r, (uint16_t *)(void *)row);
        else
            load_row(rows, first + r, (float *)(void *)row);
        if (padded > rows->width)
            memset(row + rows->width * size, 0, (padded - rows->width) * size);
    }
}

void
exo_pack_row_pairs(const exo_head_rows *rows, size_t first, size_t count, size_t padded, float *out)
{
    uint16_t even[EXO_ATTENTION_MAX_WIDTH], odd[EXO_ATTENTION_MAX_WIDTH];
    assert(rows->width <= EXO_ATTENTION_MAX_WIDTH);
    for (size_t r = 0; r < count; r += 2) {
        uint32_t *restrict units = (uint32_t *)(void *)(out + r / 2 * padded);
        if (first + r >= rows->tokens) {
            memset(units, 0, (count - r) / 2 * padded * sizeof *units);
            return;
        }
        load_bf16_row(rows, first + r, even);
        if (first + r + 1 < rows->tokens)
            load_bf16_row(rows, first + r + 1, odd);
        else
            memset(odd, 0, rows->width * sizeof *odd);
        for (size_t d = 0; d < rows->width; d++)
            units[d] = even[d] | (uint32_t)odd[d] << 16;
        for (size_t d = rows->width; d < padded; d++)
            units[d] = 0;
    }
}

#if LANES == 16
/* Swaps the blocks off the diagonal: of 1, then 2, 4 and 8 (Eklundh, 1972). */
static void
transpose_tile(const float *in, size_t in_row, float *out, size_t out_row)
{
    vec r[LANES];
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++)
        r[i] = vec_load(in + i * in_row);
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
exo_transpose_units(const float *in, size_t in_row, size_t rows, size_t columns, float *out, size_t out_row)
{
    for (size_t c = 0; c < columns; c += LANES)
        for (size_t r = 0; r < rows; r += LANES)
            transpose_tile(in + r * in_row + c, in_row, out + c * out_row + r, out_row);
}

void
exo_row_products(const exo_head_rows *a, const exo_head_rows *b, size_t first, size_t count, float *out)
{
    float rows[2][EXO_ATTENTION_MAX_WIDTH];
    for (size_t r = 0; r < count; r++) {
        float lanes[16] = {0}, sum = 0.0f;
        if (first + r < a->tokens) {
            load_row(a, first + r, rows[0]);
            load_row(b, first + r, rows[1]);
            size_t d = 0;
            for (; d + 16 <= a->width; d += 16)
                for (size_t k = 0; k < 16; k++)
                    lanes[k] += rows[0][d + k] * rows[1][d + k];
            for (size_t k = 0; d + k < a->width; k++)
                lanes[k] += rows[0][d + k] * rows[1][d + k];
        }
        for (size_t k = 0; k < 16; k++)
            sum += lanes[k];
        out[r] = sum;
    }
}

static void
put_row(const exo_head_rows *rows, size_t token, const float *restrict values, bool add)
{
    void *to = (void *)(uintptr_t)row_at(rows, token); /* the caller's own memory */
    if (rows->dtype == EXO_F32) {
        float *restrict out = to;
        for (size_t d = 0; d < rows->width; d++)
            out[d] = add ? out[d] + values[d] : values[d];
    } else {
        uint16_t *restrict out = to;
        for (size_t d = 0; d < rows->width; d++)
            out[d] = exo_to_bf16(add ? exo_from_bf16(out[d]) + values[d] : values[d]);
    }
}

void
exo_unpack_rows(const exo_head_rows *rows, size_t first, size_t count, size_t padded, float *values, float factor,
                bool add)
{
    for (size_t r = 0; r < count && first + r < rows->tokens; r++) {
        float *row = values + r * padded;
        if (factor != 1.0f)
            for (size_t d = 0; d < rows->width; d++)
                row[d] *= factor;
        if (rows->turns)
            turn(row, rows->turns + (first + r) * rows->turned, rows->turned, -1.0f);
        put_row(rows, first + r, row, add);
    }
}
