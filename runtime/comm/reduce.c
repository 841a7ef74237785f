/* Sums in rank order: see reduce.h. */
#include "reduce.h"

#include <string.h>

static void
sum_f32(float *restrict sum, void *const *data, uint32_t size, size_t at, size_t count, bool mean)
{
    memcpy(sum, (const float *)data[0] + at, count * sizeof *sum);
    for (uint32_t r = 1; r < size; r++) {
        const float *restrict x = (const float *)data[r] + at;
        for (size_t i = 0; i < count; i++)
            sum[i] += x[i];
    }
    if (mean)
        for (size_t i = 0; i < count; i++)
            sum[i] /= (float)size;
}

static void
sum_i32(uint32_t *restrict sum, void *const *data, uint32_t size, size_t at, size_t count)
{
    memcpy(sum, (const uint32_t *)data[0] + at, count * sizeof *sum);
    for (uint32_t r = 1; r < size; r++) {
        const uint32_t *restrict x = (const uint32_t *)data[r] + at;
        for (size_t i = 0; i < count; i++)
            sum[i] += x[i];
    }
}

void
exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count, exo_dtype dtype,
                 exo_reduce reduce)
{
    if (dtype == EXO_I32)
        sum_i32(out, data, size, at, count);
    else
        sum_f32(out, data, size, at, count, reduce == EXO_MEAN);
}
