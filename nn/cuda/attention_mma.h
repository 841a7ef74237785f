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

/* Turns the words of the four lanes of a row: word j of lane t becomes word t of lane j. All lanes of a
 * warp call it. */
__device__ static inline void
exo_cuda_turn_words(uint32_t word[4])
{
    EXO_CUDA_UNROLL
    for (unsigned step = 1; step < 4; step *= 2) {
        const bool upper = (threadIdx.x & step) != 0;
        EXO_CUDA_UNROLL
        for (unsigned i = 0; i < 4; i++) {
            if (i & step)
                continue;
            const uint32_t own = upper ? word[i] : word[i + step];
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, own, static_cast<int>(step));
            word[i] = upper ? other : word[i];
            word[i + step] = upper ? word[i + step] : other;
        }
    }
}

/* Four words that are written at once. */
struct alignas(16) exo_cuda_four_words {
    uint32_t at[4];
};

/* Two numbers of fp32. */
struct alignas(8) exo_cuda_two_floats {
    float at[2];
};

/* Whether rows of `width` elements from y on can be written by wide accesses (exo_cuda_write_row). */
template <typename T>
__device__ static inline bool
exo_cuda_has_wide_rows(const T *y, size_t width)
{
    const size_t bytes =
        sizeof(T) == sizeof(float) ? sizeof(exo_cuda_two_floats) : sizeof(exo_cuda_four_words);
    return width * sizeof(T) % bytes == 0 && reinterpret_cast<uintptr_t>(y) % bytes == 0;
}

/* Writes a row of `width` numbers. Lane t of its four has numbers 8 c + 2 t and 8 c + 2 t + 1, in two[c].
 * wide: the lanes exchange them, and each writes eight neighbours at once. there: the row is one of the
 * matrix. All lanes of a warp call it. */
template <int D>
__device__ static inline void
exo_cuda_write_row(exo_cuda_bf16 *to, size_t width, const float two[D / 8][2], bool wide,
                   bool there)
{
    const unsigned t = threadIdx.x % 4;
    if (wide) {
        EXO_CUDA_UNROLL
        for (unsigned c = 0; c < D / 8; c += 4) {
            const size_t d = (c + t) * 8;
            exo_cuda_four_words words;
            EXO_CUDA_UNROLL
            for (unsigned i = 0; i < 4; i++)
                words.at[i] = exo_cuda_two_bf16(two[c + i][0], two[c + i][1]);
            exo_cuda_turn_words(words.at);
            if (there && d < width)
                *reinterpret_cast<exo_cuda_four_words *>(to + d) = words;
        }
        return;
    }
    EXO_CUDA_UNROLL
    for (unsigned i = 0; i < D / 4; i++) {
        const size_t d = i / 2 * 8 + t * 2 + i % 2;
        if (there && d < width)
            exo_cuda_set(to, d, two[i / 2][i % 2]);
    }
}

/* The same of fp32, where a lane's two neighbours are written at once. */
template <int D>
__device__ static inline void
exo_cuda_write_row(float *to, size_t width, const float two[D / 8][2], bool wide, bool there)
{
    EXO_CUDA_UNROLL
    for (unsigned c = 0; c < D / 8; c++) {
        const size_t d = c * 8 + threadIdx.x % 4 * 2;
        if (!there || d >= width)
            continue;
        if (wide) {
            *reinterpret_cast<exo_cuda_two_floats *>(to + d) = {{two[c][0], two[c][1]}};
            continue;
        }
        to[d] = two[c][0];
        if (d + 1 < width)
            to[d + 1] = two[c][1];
    }
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
