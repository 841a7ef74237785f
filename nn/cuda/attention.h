/* What the kernels of attention share: the call, slopes and dropout; and for fp32, rows in shared
 * memory, products of tiles, and the weights of a tile of scores. bf16 has kernels of its own, for
 * the tensor cores (attention_mma.h).
 *
 * In fp32, a block of 256 threads is a square of 16 x 16. It works on tiles of TILE queries and TILE keys,
 * of heads with D elements (narrower heads are filled up with zeros). A thread has ROWS consecutive
 * rows of a tile, and every 16th of its columns. All sums are fmaf in a fixed order. No state. Read
 * next: attention.cu. */
#ifndef EXO_CUDA_ATTENTION_H
#define EXO_CUDA_ATTENTION_H

#include "nn/cuda/grid.h"
#include "nn/cuda/late.h"
#include "nn/cuda/philox.h"
#include "nn/cuda/plans.h"

enum {
    EXO_ATTENTION_SIDE = 16, /* threads of a row, and of a column */
    EXO_ATTENTION_PAD = 4,   /* floats after a row, against conflicts of banks */
    EXO_ATTENTION_GROUP = 8  /* keys whose draws are one block of random numbers */
};

/* A call, for the kernels. N, H, G, T and D are those of exo_attention_shape. */
typedef struct exo_cuda_attention_call {
    size_t sequences, heads, kv_heads, tokens, width;
    float scale, scale2; /* of scores; times log2 e */
    bool alibi, add;
    exo_attention_drop drop;
    const uint64_t *late_step; /* in place of drop.step; NULL: it is not late */
    float kept;                /* what dropout multiplies kept weights by */
    const float *turns;        /* of the plan, or NULL */
    size_t turned;
    /* Of sequences that are spread over members; foreign: the keys and values are those of member
     * `from`, of which queries from `first_query` on see the first `seen_keys`. */
    size_t members, rank, from, first_query, seen_keys;
    bool foreign;
    const float *heads_of_x; /* fp32: (N, H + 2 G, T, D), queries and keys are turned */
    /* Products of bf16: rows of a token begin every `pitch` elements, of queries and keys, which are
     * turned, and every `value_pitch` elements. aligned: heads begin at multiples of 16 bytes. */
    const exo_cuda_bf16 *queries, *keys, *values;
    size_t pitch, value_pitch;
    bool aligned;
} exo_cuda_attention_call;

/* The position in the sequence of a member's token (exo_attention_position). */
__device__ static inline size_t
exo_cuda_position(const exo_cuda_attention_call &k, size_t member, size_t token)
{
    const size_t half = k.tokens / 2, chunk = token < half ? member : 2 * k.members - 1 - member;
    return k.members == 0 ? token : chunk * half + token % half;
}

/* Whether query i sees key j. */
__device__ static inline bool
exo_cuda_sees(const exo_cuda_attention_call &k, size_t i, size_t j)
{
    return k.foreign ? i >= k.first_query && j < k.seen_keys : j <= i && j < k.tokens;
}

/* Queries [i0, i0 + tile) see no key from the end on, and keys from j0 on are seen by no query before
 * the first one. */
__device__ static inline size_t
exo_cuda_keys_end(const exo_cuda_attention_call &k, size_t i0, size_t tile)
{
    const size_t foreign = i0 + tile > k.first_query ? k.seen_keys : 0;
    return k.foreign ? foreign : i0 + 1;
}

__device__ static inline size_t
exo_cuda_first_query(const exo_cuda_attention_call &k, size_t j0)
{
    const size_t foreign = j0 < k.seen_keys ? k.first_query : k.tokens;
    return k.foreign ? foreign : j0;
}

/* The slope of ALiBi, times log2 e; 0 without. */
__device__ static inline float
exo_cuda_slope2(const exo_cuda_attention_call &k, size_t head)
{
    const float log2_e = 1.44269504f;
    size_t power = 1;
    if (!k.alibi)
        return 0;
    while (2 * power <= k.heads)
        power *= 2;
    const float exponent =
        head < power
            ? -8.0f * static_cast<float>(head + 1) / static_cast<float>(power)
            : -4.0f * static_cast<float>(2 * (head - power) + 1) / static_cast<float>(power);
    return exp2f(exponent) * log2_e;
}

/* to (TILE, D + pad) = rows [first, first + TILE) of x, zero beyond `count` and beyond `width`. */
template <typename T, int TILE, int D>
__device__ static inline void
exo_cuda_take_rows(float *to, const T *x, size_t pitch, size_t first, size_t count, size_t width)
{
    for (unsigned e = threadIdx.x; e < TILE * D; e += EXO_CUDA_BLOCK) {
        const unsigned r = e / D, d = e % D;
        const bool inside = first + r < count && d < width;
        to[r * (D + EXO_ATTENTION_PAD) + d] =
            inside ? exo_cuda_get(x, (first + r) * pitch + d) : 0.0f;
    }
}

/* s[r][c] = a row of `a` times a row of `b`, both (TILE, D + pad). */
template <int TILE, int D>
__device__ static inline void
exo_cuda_tile_scores(const float *a, const float *b,
                     float s[TILE / EXO_ATTENTION_SIDE][TILE / EXO_ATTENTION_SIDE])
{
    const int rows = TILE / EXO_ATTENTION_SIDE, pitch = D + EXO_ATTENTION_PAD;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * rows,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < rows; c++)
            s[r][c] = 0;
    for (int d = 0; d < D; d += 4) {
        float4 u[rows], v[rows];
        for (int r = 0; r < rows; r++)
            u[r] = *reinterpret_cast<const float4 *>(&a[(y + r) * pitch + d]);
        for (int c = 0; c < rows; c++)
            v[c] = *reinterpret_cast<const float4 *>(&b[(x + c * EXO_ATTENTION_SIDE) * pitch + d]);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < rows; c++) {
                float t = fmaf(u[r].x, v[c].x, s[r][c]);
                t = fmaf(u[r].y, v[c].y, t);
                t = fmaf(u[r].z, v[c].z, t);
                s[r][c] = fmaf(u[r].w, v[c].w, t);
            }
    }
}

/* out[r][c] += weights (TILE, TILE + pad) times values (TILE, D + pad). */
template <int TILE, int D>
__device__ static inline void
exo_cuda_tile_product(const float *weights, const float *values,
                      float out[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE])
{
    const int rows = TILE / EXO_ATTENTION_SIDE, columns = D / EXO_ATTENTION_SIDE;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * rows,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int j = 0; j < TILE; j++) {
        float u[rows];
        for (int r = 0; r < rows; r++)
            u[r] = weights[(y + r) * (TILE + EXO_ATTENTION_PAD) + j];
        for (int c = 0; c < columns; c++) {
            const float v = values[j * (D + EXO_ATTENTION_PAD) + x + c * EXO_ATTENTION_SIDE];
            for (int r = 0; r < rows; r++)
                out[r][c] = fmaf(u[r], v, out[r][c]);
        }
    }
}

/* keep (ROWS, KEYS / 8): bit b of a byte is whether the weight of query i0 + row and key
 * j0 + 8 byte + b stays (ref_heads.c, draw). */
template <int ROWS, int KEYS>
__device__ static inline void
exo_cuda_draw_tile(const exo_cuda_attention_call &k, size_t n, size_t head, size_t i0, size_t j0,
                   uint8_t *keep)
{
    const unsigned across = KEYS / EXO_ATTENTION_GROUP;
    const uint64_t step = k.late_step ? *k.late_step : k.drop.step;
    const uint64_t row_blocks = (k.tokens + EXO_ATTENTION_GROUP - 1) / EXO_ATTENTION_GROUP;
    for (unsigned e = threadIdx.x; e < ROWS * across; e += blockDim.x) {
        const uint64_t row = (n * k.heads + head) * k.tokens + i0 + e / across;
        const uint64_t block = row * row_blocks + j0 / EXO_ATTENTION_GROUP + e % across;
        const uint64_t part = block / EXO_CUDA_DROPOUT_BLOCKS,
                       rest = block % EXO_CUDA_DROPOUT_BLOCKS;
        uint32_t numbers[4];
        unsigned bits = 0;
        exo_cuda_draw(k.drop.seed, EXO_RNG_DROPOUT, k.drop.node, step ^ part << 48,
                      k.drop.ordinal * EXO_CUDA_DROPOUT_BLOCKS + static_cast<uint32_t>(rest),
                      numbers);
        for (unsigned b = 0; b < EXO_ATTENTION_GROUP; b++)
            if ((numbers[b / 2] >> (b % 2 * 16) & 0xFFFFu) >= k.drop.dropped)
                bits |= 1u << b;
        keep[e] = static_cast<uint8_t>(bits);
    }
}

/* What dropout multiplies the weight by at (row, column) of a tile. */
template <int TILE>
__device__ static inline float
exo_cuda_kept(const exo_cuda_attention_call &k, const uint8_t *keep, unsigned row, unsigned column)
{
    const unsigned across = TILE / EXO_ATTENTION_GROUP;
    if (k.drop.dropped == 0)
        return 1;
    return keep[row * across + column / EXO_ATTENTION_GROUP] >> column % EXO_ATTENTION_GROUP & 1
               ? k.kept
               : 0.0f;
}

/* The arrays of a backward call. Each head of queries has its own part of the gradients of the keys
 * and values that it shares. */
typedef struct exo_cuda_attention_gradients {
    const void *y, *dy; /* (N T, H D) */
    const float *lse;   /* (N, H, T) */
    float *delta;       /* (N, H, T) */
    float *grads;       /* (N, 3 H, T, D): dq, dk and dv, of queries and keys that are turned */
    exo_cuda_bf16 *dx;  /* (N T, 3 H D) in place of grads, or NULL; bf16 */
} exo_cuda_attention_gradients;

/* attention_backward.cu: delta, in the type of y, then dq, dk and dv of fp32. */
exo_status exo_cuda_attention_delta(exo_cuda_device *cuda, exo_dtype dtype,
                                    const exo_cuda_attention_call *k,
                                    const exo_cuda_attention_gradients *g, exo_err *err);
exo_status exo_cuda_attention_grads(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
                                    const exo_cuda_attention_gradients *g, exo_err *err);
/* attention_mma.cu and attention_mma_backward.cu: both of products of bf16. y is bf16 or, with members,
 * fp32. */
exo_status exo_cuda_attention_bf16(exo_cuda_device *cuda, const exo_cuda_attention_call *k, void *y,
                                   float *lse, exo_err *err);
exo_status exo_cuda_attention_bf16_grads(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
                                         const exo_cuda_attention_gradients *g, exo_err *err);
#endif
