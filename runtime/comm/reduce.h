/* Sums in rank order: what makes a reduction's bits the same on every backend. */
#ifndef EXO_COMM_REDUCE_H
#define EXO_COMM_REDUCE_H

#include <exogym/engine.h>

enum {
    /* elements: what is reduced at a time, in the first-level cache with its sums */
    EXO_REDUCE_BLOCK = 4096
};

/* What can be reduced, as of an engine; and of that what has a mean. */
#define EXO_REDUCE_DTYPES EXO_ENGINE_ALL_DTYPES
#define EXO_MEAN_DTYPES   (1u << EXO_F32 | 1u << EXO_BF16 | 1u << EXO_F16)

/* out (count) = ((data[0] + data[1]) + data[2]) + ..., of elements [at, at + count) of each of
 * `size` buffers; divided by `size` for MEAN. bf16 and fp16 are summed and divided in fp32 and
 * rounded once; integers wrap. dtype: one of EXO_REDUCE_DTYPES; out overlaps none of them. count:
 * at most EXO_REDUCE_BLOCK. */
void exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count,
                      exo_dtype dtype, exo_reduce reduce);

#endif
