/* Sums in rank order: see reduce.h. No state. */
#include "comm/reduce.h"

#include <string.h>

#include "codec/kernels.h"

static exo_array
part(void *data, size_t at, size_t count, exo_dtype dtype)
{
    return exo_host_array(dtype, (char *)data + at * exo_dtype_size(dtype), count);
}

/* Converts elements of a half type to fp32, and back, rounded to nearest, ties to even. */
static void
widen(float *out, const char *in, size_t count, exo_dtype dtype)
{
    if (dtype == EXO_BF16)
        exo_kernel_from_bf16((const uint8_t *)in, out, count);
    else
        exo_kernel_from_fp16((const uint8_t *)in, out, count);
}

static void
narrow(char *out, const float *in, size_t count, exo_dtype dtype)
{
    if (dtype == EXO_BF16)
        exo_kernel_to_bf16(in, (uint8_t *)out, count);
    else
        exo_kernel_to_fp16(in, (uint8_t *)out, count);
}

static void
reduce_halves(char *out, void *const *data, uint32_t size, size_t at, size_t count, exo_dtype dtype,
              exo_reduce reduce)
{
    float sum[EXO_REDUCE_BLOCK], next[EXO_REDUCE_BLOCK];
    exo_array all = exo_host_array(EXO_F32, sum, count),
              more = exo_host_array(EXO_F32, next, count);
    size_t first = at * exo_dtype_size(dtype);
    widen(sum, (const char *)data[0] + first, count, dtype);
    for (uint32_t r = 1; r < size; r++) {
        widen(next, (const char *)data[r] + first, count, dtype);
        exo_vec_add(all, all, more);
    }
    if (reduce == EXO_MEAN)
        exo_vec_divide(all, (float)size);
    narrow(out, sum, count, dtype);
}

/* Unsigned, because C has no wrapping sums of signed integers. */
static void
sum_bytes(uint8_t *out, void *const *data, uint32_t size, size_t at, size_t count)
{
    memcpy(out, (const uint8_t *)data[0] + at, count);
    for (uint32_t r = 1; r < size; r++)
        for (size_t i = 0; i < count; i++)
            out[i] = (uint8_t)(out[i] + ((const uint8_t *)data[r])[at + i]);
}

static void
sum_longs(uint64_t *out, void *const *data, uint32_t size, size_t at, size_t count)
{
    memcpy(out, (const uint64_t *)data[0] + at, count * sizeof *out);
    for (uint32_t r = 1; r < size; r++)
        for (size_t i = 0; i < count; i++)
            out[i] += ((const uint64_t *)data[r])[at + i];
}

void
exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count,
                 exo_dtype dtype, exo_reduce reduce)
{
    if (dtype == EXO_BF16 || dtype == EXO_F16) {
        reduce_halves(out, data, size, at, count, dtype, reduce);
        return;
    }
    if (dtype == EXO_I8) {
        sum_bytes(out, data, size, at, count);
        return;
    }
    if (dtype == EXO_I64) {
        sum_longs(out, data, size, at, count);
        return;
    }
    exo_array sum = part(out, 0, count, dtype);
    exo_vec_copy(sum, part(data[0], at, count, dtype));
    for (uint32_t r = 1; r < size; r++)
        exo_vec_add(sum, sum, part(data[r], at, count, dtype));
    if (reduce == EXO_MEAN)
        exo_vec_divide(sum, (float)size);
}
