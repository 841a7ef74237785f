/* Sums in rank order: what makes a reduction's bits the same on every backend. */
#ifndef EXO_COMM_REDUCE_H
#define EXO_COMM_REDUCE_H

#include <exogym/comm.h>

enum {
    EXO_REDUCE_BLOCK = 4096 /* elements: what is reduced at a time, in the first-level cache with its sums */
};

/* out (count) = ((data[0] + data[1]) + data[2]) + ..., of elements [at, at + count) of each of `size` buffers; divided by `size` for
 * MEAN. dtype F32 or I32; out overlaps none of them. */
void exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count, exo_dtype dtype,
                      exo_reduce reduce);

#endif
