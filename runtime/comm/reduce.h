/* Sums in rank order, or in that of a way (ways.h), which makes the bits of a reduction the same on every engine. */
#ifndef EXO_COMM_REDUCE_H
#define EXO_COMM_REDUCE_H

#include <exogym/engine.h>

enum {
    /* elements that are reduced at a time; with their sums they fit the first-level cache */
    EXO_REDUCE_BLOCK = 4096
};

/* The types that can be reduced, as masks of an engine; the types that have a mean. */
#define EXO_REDUCE_DTYPES EXO_ENGINE_ALL_DTYPES
#define EXO_MEAN_DTYPES   (1u << EXO_F32 | 1u << EXO_BF16 | 1u << EXO_F16)

/* Writes out (count) = ((data[0] + data[1]) + data[2]) + ..., over the elements [at, at + count) of
 * each of `size` buffers; MEAN divides the sum by `size`. bf16 and fp16 are summed and divided in
 * fp32 and rounded once; integers wrap. dtype: one of EXO_REDUCE_DTYPES. out overlaps no buffer.
 * count: at most EXO_REDUCE_BLOCK. */
void exo_reduce_block(void *out, void *const *data, uint32_t size, size_t at, size_t count,
                      exo_dtype dtype, exo_reduce reduce);

/* The same for any count, from the first element of each buffer on, written to each of `num_out`
 * buffers. These may be those of `data`; otherwise they do not overlap. */
void exo_reduce_into(void *const *out, uint32_t num_out, void *const *data, uint32_t size,
                     size_t count, exo_dtype dtype, exo_reduce reduce);

/* Makes the moves of a call's way with the elements [at, at + count) of the data of all members,
 * whose pointers begin at `at`: data (args->size) holds what each member has in the end, without the
 * division of a mean. They do not overlap. For ways that reorder sums. */
void exo_reduce_by_moves(const exo_collective_args *args, size_t at, size_t count,
                         void *const *data);

#endif
