/* The gradients of attention in fp32: one kernel for queries, and one for keys and values, which
 * computes the weights again. So each sum is one thread's, in a fixed order.
 *
 *     P = 2^(score - lse), dP = dy v^T, dS = P (kept dP - delta), delta = the sum of dy y of a row
 *     dq = scale dS k, dk = scale dS^T q, dv = (kept P)^T dy
 *
 * What a thread sums stays in registers if all indices are known: so loops over it are unrolled.
 *
 * No state. Read next: attention.h. */
#include "nn/cuda/attention.h"
#include "nn/cuda/kernels.h"

/* delta of one row a warp. */
template <typename T>
__global__ static void
sum_rows(exo_cuda_attention_call k, exo_cuda_attention_gradients g)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warps = EXO_CUDA_BLOCK / EXO_CUDA_WARP;
    const size_t row = static_cast<size_t>(blockIdx.x) * warps + threadIdx.x / EXO_CUDA_WARP;
    const size_t i = row % k.tokens, head = row / k.tokens % k.heads, n = row / k.tokens / k.heads;
    float sum = 0;
    if (row >= k.sequences * k.heads * k.tokens)
        return;
    for (size_t d = lane; d < k.width; d += EXO_CUDA_WARP) {
        const size_t at = ((n * k.tokens + i) * k.heads + head) * k.width + d;
        sum = fmaf(exo_cuda_load<T>(g.y, at), exo_cuda_load<T>(g.dy, at), sum);
    }
    for (int step = EXO_CUDA_WARP / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (lane == 0)
        g.delta[row] = sum;
}

/* Tiles in shared memory. */
struct tiles {
    float *queries, *dys, *keys, *values; /* (TILE, D + pad) */
    float *weights;                       /* (TILE, TILE + pad) */
    float *lse, *delta;                   /* (TILE), of the queries */
    uint8_t *keep;                        /* (TILE, TILE / 8) */
};

template <int TILE, int D>
static constexpr size_t
shared_bytes(void)
{
    return (TILE * (4 * (D + EXO_ATTENTION_PAD) + TILE + EXO_ATTENTION_PAD) + 2 * TILE) *
               sizeof(float) +
           TILE * TILE / EXO_ATTENTION_GROUP;
}

template <int TILE, int D>
__device__ static tiles
lay_out(float *shared)
{
    tiles t;
    t.queries = shared;
    t.dys = t.queries + TILE * (D + EXO_ATTENTION_PAD);
    t.keys = t.dys + TILE * (D + EXO_ATTENTION_PAD);
    t.values = t.keys + TILE * (D + EXO_ATTENTION_PAD);
    t.weights = t.values + TILE * (D + EXO_ATTENTION_PAD);
    t.lse = t.weights + TILE * (TILE + EXO_ATTENTION_PAD);
    t.delta = t.lse + TILE;
    t.keep = reinterpret_cast<uint8_t *>(t.delta + TILE);
    return t;
}

/* The queries from i0 on, with all that belongs to them. */
template <int TILE, int D>
__device__ static void
take_queries(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g,
             const tiles &t, size_t n, size_t head, size_t i0)
{
    const size_t all = k.heads + 2 * k.kv_heads, size = k.tokens * k.width;
    const float *dy = static_cast<const float *>(g.dy) + (n * k.tokens * k.heads + head) * k.width;
    exo_cuda_take_rows<float, TILE, D>(t.queries, k.heads_of_x + (n * all + head) * size, k.width,
                                       i0, k.tokens, k.width);
    exo_cuda_take_rows<float, TILE, D>(t.dys, dy, k.heads * k.width, i0, k.tokens, k.width);
    if (threadIdx.x < TILE && i0 + threadIdx.x < k.tokens) {
        const size_t row = (n * k.heads + head) * k.tokens + i0 + threadIdx.x;
        t.lse[threadIdx.x] = g.lse[row];
        t.delta[threadIdx.x] = g.delta[row];
    }
}

template <int TILE, int D>
__device__ static void
take_keys(const exo_cuda_attention_call &k, const tiles &t, size_t n, size_t kv_head, size_t j0)
{
    const size_t all = k.heads + 2 * k.kv_heads, size = k.tokens * k.width;
    const float *keys = k.heads_of_x + (n * all + k.heads + kv_head) * size;
    exo_cuda_take_rows<float, TILE, D>(t.keys, keys, k.width, j0, k.tokens, k.width);
    exo_cuda_take_rows<float, TILE, D>(t.values, keys + k.kv_heads * size, k.width, j0, k.tokens,
                                       k.width);
}

/* The weight of query i0 + row and key j0 + column after dropout, in *p, and the gradient of its
 * score, from the product s of both and dp. */
template <int TILE>
__device__ static float
score_gradient(const exo_cuda_attention_call &k, const tiles &t, float slope, size_t i0, size_t j0,
               unsigned row, unsigned column, float s, float dp, float *p)
{
    const size_t i = i0 + row, j = j0 + column;
    *p = 0;
    if (!exo_cuda_sees(k, i, j) || i >= k.tokens)
        return 0;
    const float apart = static_cast<float>(j) - static_cast<float>(i);
    const float weight = exp2f(fmaf(slope, apart, s * k.scale2) - t.lse[row]),
                kept = exo_cuda_kept<TILE>(k, t.keep, row, column);
    *p = weight * kept;
    return weight * (kept * dp - t.delta[row]);
}

/* Writes factor times a tile of gradients to the rows of a head. */
template <int TILE, int D>
__device__ static void
write_tile(const exo_cuda_attention_call &k, float *grads, size_t n, size_t head, size_t first,
           float factor, float out[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE])
{
    const int rows = TILE / EXO_ATTENTION_SIDE;
    const size_t all = 3 * k.heads;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * rows,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < D / EXO_ATTENTION_SIDE; c++) {
            const size_t row = first + y + r, d = x + c * EXO_ATTENTION_SIDE;
            if (row < k.tokens && d < k.width)
                grads[((n * all + head) * k.tokens + row) * k.width + d] = factor * out[r][c];
        }
}

/* dq of a tile of queries. */
template <int TILE, int D>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK)
    query_grads(exo_cuda_attention_call k, exo_cuda_attention_gradients g)
{
    const int rows = TILE / EXO_ATTENTION_SIDE;
    EXO_CUDA_SHARED(float, shared);
    const tiles t = lay_out<TILE, D>(shared);
    const size_t count = (k.tokens + TILE - 1) / TILE, pairs = k.sequences * k.heads;
    const size_t pair = blockIdx.x % pairs, n = pair / k.heads, head = pair % k.heads;
    const size_t i0 = (count - 1 - blockIdx.x / pairs) * TILE;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * rows,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    const float slope = exo_cuda_slope2(k, head);
    float out[rows][D / EXO_ATTENTION_SIDE] = {};
    take_queries<TILE, D>(k, g, t, n, head, i0);
    for (size_t j0 = 0, end = exo_cuda_keys_end(k, i0, TILE); j0 < end; j0 += TILE) {
        float s[rows][rows], dp[rows][rows], p;
        __syncthreads();
        take_keys<TILE, D>(k, t, n, head / (k.heads / k.kv_heads), j0);
        if (k.drop.dropped)
            exo_cuda_draw_tile<TILE, TILE>(k, n, head, i0, j0, t.keep);
        __syncthreads();
        exo_cuda_tile_scores<TILE, D>(t.queries, t.keys, s);
        exo_cuda_tile_scores<TILE, D>(t.dys, t.values, dp);
        EXO_CUDA_UNROLL
        for (int r = 0; r < rows; r++) {
            EXO_CUDA_UNROLL
            for (int c = 0; c < rows; c++) {
                const unsigned column = x + c * EXO_ATTENTION_SIDE;
                t.weights[(y + r) * (TILE + EXO_ATTENTION_PAD) + column] =
                    score_gradient<TILE>(k, t, slope, i0, j0, y + r, column, s[r][c], dp[r][c], &p);
            }
        }
        __syncthreads();
        exo_cuda_tile_product<TILE, D>(t.weights, t.keys, out);
    }
    write_tile<TILE, D>(k, g.grads, n, head, i0, k.scale, out);
}

/* Adds what one tile of queries gives to dk and dv of a tile of keys. Rows of the products are keys
 * here, and columns are queries. */
template <int TILE, int D>
__device__ static void
add_to_keys(const exo_cuda_attention_call &k, const tiles &t, float slope, size_t i0, size_t j0,
            float dk[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE],
            float dv[TILE / EXO_ATTENTION_SIDE][D / EXO_ATTENTION_SIDE])
{
    const int rows = TILE / EXO_ATTENTION_SIDE;
    const unsigned y = threadIdx.x / EXO_ATTENTION_SIDE * rows,
                   x = threadIdx.x % EXO_ATTENTION_SIDE;
    float s[rows][rows], dp[rows][rows];
    exo_cuda_tile_scores<TILE, D>(t.keys, t.queries, s);
    exo_cuda_tile_scores<TILE, D>(t.values, t.dys, dp);
    EXO_CUDA_UNROLL
    for (int r = 0; r < rows; r++) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < rows; c++) {
            const unsigned row = x + c * EXO_ATTENTION_SIDE;
            s[r][c] =
                score_gradient<TILE>(k, t, slope, i0, j0, row, y + r, s[r][c], dp[r][c], &dp[r][c]);
            t.weights[(y + r) * (TILE + EXO_ATTENTION_PAD) + row] = dp[r][c];
        }
    }
    __syncthreads();
    exo_cuda_tile_product<TILE, D>(t.weights, t.dys, dv);
    __syncthreads();
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < rows; c++)
            t.weights[(y + r) * (TILE + EXO_ATTENTION_PAD) + x + c * EXO_ATTENTION_SIDE] = s[r][c];
    __syncthreads();
    exo_cuda_tile_product<TILE, D>(t.weights, t.queries, dk);
}

/* dk and dv of a tile of keys, from one head of queries. */
template <int TILE, int D>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK)
    key_grads(exo_cuda_attention_call k, exo_cuda_attention_gradients g)
{
    const int rows = TILE / EXO_ATTENTION_SIDE;
    EXO_CUDA_SHARED(float, shared);
    const tiles t = lay_out<TILE, D>(shared);
    const size_t pairs = k.sequences * k.heads, pair = blockIdx.x % pairs;
    const size_t n = pair / k.heads, head = pair % k.heads;
    const size_t j0 = blockIdx.x / pairs * TILE; /* early keys have the most queries */
    const float slope = exo_cuda_slope2(k, head);
    float dk[rows][D / EXO_ATTENTION_SIDE] = {}, dv[rows][D / EXO_ATTENTION_SIDE] = {};
    take_keys<TILE, D>(k, t, n, head / (k.heads / k.kv_heads), j0);
    for (size_t i0 = exo_cuda_first_query(k, j0); i0 < k.tokens; i0 += TILE) {
        __syncthreads();
        take_queries<TILE, D>(k, g, t, n, head, i0);
        if (k.drop.dropped)
            exo_cuda_draw_tile<TILE, TILE>(k, n, head, i0, j0, t.keep);
        __syncthreads();
        add_to_keys<TILE, D>(k, t, slope, i0, j0, dk, dv);
    }
    write_tile<TILE, D>(k, g.grads, n, k.heads + head, j0, k.scale, dk);
    write_tile<TILE, D>(k, g.grads, n, 2 * k.heads + head, j0, 1, dv);
}

template <int TILE, int D>
static exo_status
launch(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
       const exo_cuda_attention_gradients *g, exo_err *err)
{
    const size_t count = (k->tokens + TILE - 1) / TILE, shared = shared_bytes<TILE, D>();
    const unsigned blocks = static_cast<unsigned>(count * k->sequences * k->heads);
    cudaError_t error = exo_cuda_allow_shared(query_grads<TILE, D>, shared);
    if (error == cudaSuccess)
        error = exo_cuda_allow_shared(key_grads<TILE, D>, shared);
    if (error != cudaSuccess)
        return exo_cuda_status(error, "attention_backward", err);
    exo_cuda_launch((query_grads<TILE, D>), blocks, EXO_CUDA_BLOCK, shared, cuda->stream, *k, *g);
    exo_cuda_launch((key_grads<TILE, D>), blocks, EXO_CUDA_BLOCK, shared, cuda->stream, *k, *g);
    return exo_cuda_launched("attention_backward", err);
}

template <typename T>
static void
start_delta(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
            const exo_cuda_attention_gradients *g)
{
    const size_t rows = k->sequences * k->heads * k->tokens, warps = EXO_CUDA_BLOCK / EXO_CUDA_WARP;
    exo_cuda_launch(sum_rows<T>, static_cast<unsigned>((rows + warps - 1) / warps), EXO_CUDA_BLOCK,
                    0, cuda->stream, *k, *g);
}

exo_status
exo_cuda_attention_delta(exo_cuda_device *cuda, exo_dtype dtype, const exo_cuda_attention_call *k,
                         const exo_cuda_attention_gradients *g, exo_err *err)
{
    EXO_CUDA_BY_TYPE(dtype, start_delta, cuda, k, g);
    return exo_cuda_launched("attention_backward", err);
}

exo_status
exo_cuda_attention_grads(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
                         const exo_cuda_attention_gradients *g, exo_err *err)
{
    if (k->width <= 32)
        return launch<64, 32>(cuda, k, g, err);
    if (k->width <= 64)
        return launch<64, 64>(cuda, k, g, err);
    if (k->width <= 128)
        return launch<32, 128>(cuda, k, g, err);
    return launch<16, EXO_CUDA_MAX_HEAD>(cuda, k, g, err);
}
