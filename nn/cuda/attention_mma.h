/* What the kernels of attention in bf16 share, which compute on the tensor cores (mma.h).
 *
 * A block is four warps of one head. Each has 16 M rows of scores, and all share tiles of the other
 * side in shared memory, of which the next one is copied while one is computed with, if there is
 * room. Rows in shared memory have D elements, of which those beyond the width of a head are zero,
 * and a pad, so that the eight rows of a matrix lie in different banks. Scores and their gradients
 * stay in registers: as sums of one product they are an operand of the next. The tiles are the same
 * on all GPUs, so that results are: they fit into the 99 KiB that a block has on the smallest one.
 * No state. Read next: attention_mma.cu. */
#ifndef EXO_CUDA_ATTENTION_MMA_H
#define EXO_CUDA_ATTENTION_MMA_H

#include "nn/cuda/attention.h"
#include "nn/cuda/mma.h"

enum {
    EXO_MMA_WARPS = 4,
    EXO_MMA_THREADS = EXO_MMA_WARPS * EXO_CUDA_WARP,
    EXO_MMA_ROWS = 16, /* of a warp's product */
    EXO_MMA_PAD = 8    /* elements behind a row */
};

/* Rows of a head: element d of token t is from[t pitch + d]. */
typedef struct exo_cuda_head_rows {
    const exo_cuda_bf16 *from;
    size_t pitch;
    bool aligned; /* eight elements can be copied at once */
} exo_cuda_head_rows;

/* Begins to copy rows [first, first + ROWS) to `to` (ROWS, D + pad): zeros beyond `count` and
 * `width`. */
template <int ROWS, int D>
__device__ static inline void
exo_cuda_fetch_rows(exo_cuda_bf16 *to, const exo_cuda_head_rows &rows, size_t first, size_t count,
                    size_t width)
{
    const unsigned across = D / 8;
    for (unsigned e = threadIdx.x; e < ROWS * across; e += EXO_MMA_THREADS) {
        const unsigned r = e / across, d = e % across * 8;
        exo_cuda_bf16 *at = to + r * (D + EXO_MMA_PAD) + d;
        const bool inside = first + r < count && d < width;
        const exo_cuda_bf16 *from = inside ? rows.from + (first + r) * rows.pitch + d : rows.from;
        if (rows.aligned) {
            exo_cuda_begin_copy(at, from, !inside);
            continue;
        }
        for (unsigned i = 0; i < 8; i++)
            at[i].bits = inside && d + i < width ? from[i].bits : static_cast<uint16_t>(0);
    }
}

/* The queries, keys and values of a head of queries. */
__device__ static inline exo_cuda_head_rows
exo_cuda_queries(const exo_cuda_attention_call &k, size_t n, size_t head)
{
    return {k.queries + n * k.tokens * k.pitch + head * k.width, k.pitch, k.aligned};
}

__device__ static inline exo_cuda_head_rows
exo_cuda_keys(const exo_cuda_attention_call &k, size_t n, size_t head)
{
    const size_t kv_head = head / (k.heads / k.kv_heads);
    return {k.keys + n * k.tokens * k.pitch + kv_head * k.width, k.pitch, k.aligned};
}

__device__ static inline exo_cuda_head_rows
exo_cuda_values(const exo_cuda_attention_call &k, size_t n, size_t head)
{
    const size_t kv_head = head / (k.heads / k.kv_heads);
    return {k.values + n * k.tokens * k.value_pitch + kv_head * k.width, k.value_pitch, k.aligned};
}

/* What dropout multiplies a weight by whose byte of `keep` this is (exo_cuda_draw_tile). */
__device__ static inline float
exo_cuda_kept_bit(const exo_cuda_attention_call &k, unsigned byte, unsigned bit)
{
    return byte >> bit & 1u ? k.kept : 0.0f;
}

/* to[d] and to[d + 1] = two numbers. at_once: the address is a multiple of 4, and both are inside. */
__device__ static inline void
exo_cuda_write_two(exo_cuda_bf16 *to, size_t d, size_t width, const float two[2], bool at_once)
{
    if (at_once && d < width) {
        *reinterpret_cast<uint32_t *>(to + d) = exo_cuda_two_bf16(two[0], two[1]);
        return;
    }
    EXO_CUDA_UNROLL
    for (size_t i = 0; i < 2; i++)
        if (d + i < width)
            exo_cuda_set(to, d + i, two[i]);
}

__device__ static inline void
exo_cuda_write_two(float *to, size_t d, size_t width, const float two[2], bool at_once)
{
    (void)at_once;
    EXO_CUDA_UNROLL
    for (size_t i = 0; i < 2; i++)
        if (d + i < width)
            to[d + i] = two[i];
}

/* Whether every query from i0 on, of `rows`, is there and sees every key from j0 on, of `keys`: then
 * nothing is masked. RING: the call has members. */
template <bool RING>
__device__ static inline bool
exo_cuda_sees_all(const exo_cuda_attention_call &k, size_t i0, size_t rows, size_t j0, size_t keys)
{
    if (RING && k.foreign)
        return j0 + keys <= k.seen_keys && i0 >= k.first_query && i0 + rows <= k.tokens;
    return j0 + keys <= i0 + 1 && i0 + rows <= k.tokens;
}

/* Whether some query of those sees some of the keys. */
template <bool RING>
__device__ static inline bool
exo_cuda_sees_some(const exo_cuda_attention_call &k, size_t i0, size_t rows, size_t j0)
{
    if (RING && k.foreign)
        return i0 < k.tokens && i0 + rows > k.first_query && j0 < k.seen_keys;
    return i0 < k.tokens && j0 < i0 + rows;
}

/* Where a lane's sums are: rows `row` and row + 8, columns `column` and column + 1. */
typedef struct exo_cuda_lane {
    unsigned row, column;
} exo_cuda_lane;

__device__ static inline exo_cuda_lane
exo_cuda_own_lane(void)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP;
    return {lane / 4, lane % 4 * 2};
}

#endif
