/* Sums in rank order: see reduce.h. */
#include "comm/reduce.h"

static exo_array
part(void *data, size_t at, size_t count, exo_dtype dtype)
{
    return exo_host_array(dtype, (char *)data + at * exo_dtype_size(dtype), count);
}

void
exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count, exo_dtype dtype,
                 exo_reduce reduce)
{
    exo_array sum = part(out, 0, count, dtype);
    exo_vec_copy(sum, part(data[0], at, count, dtype));
    for (uint32_t r = 1; r < size; r++)
        exo_vec_add(sum, sum, part(data[r], at, count, dtype));
    if (reduce == EXO_MEAN)
        exo_vec_divide(sum, (float)size);
}
