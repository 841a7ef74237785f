/* The gradients of attention in bf16 on the tensor cores, by the formulas of attention_backward.cu:
 * one kernel for queries, and one for keys and values, which computes the weights again, its scores
 * transposed. So each sum is one lane's, in a fixed order. Weights and gradients of scores are
 * rounded to bf16 for their products. Each head of queries has a part of the gradients of the keys
 * that it shares; lay_together adds the parts up. No state. Read next: attention_mma.h. */
#include "nn/cuda/attention_mma.h"

#include "nn/cuda/kernels.h"

enum {
    WANT_VALUES = 1, /* of key_grads */
    WANT_KEYS = 2
};

__device__ static exo_cuda_head_rows
dy_of(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g, size_t n,
      size_t head)
{
    const exo_cuda_bf16 *dy = static_cast<const exo_cuda_bf16 *>(g.dy);
    return {dy + (n * k.tokens * k.heads + head) * k.width, k.heads * k.width, k.aligned};
}

template <int N>
__device__ static inline void
scale_scores(const exo_cuda_attention_call &k, float s[N][4])
{
    EXO_CUDA_UNROLL
    for (int c = 0; c < N * 4; c++)
        s[c / 4][c % 4] *= k.scale2;
}

/* How far key j0 is ahead of query i0: less than 2^31. */
__device__ static int
apart(size_t j0, size_t i0)
{
    return static_cast<int>(j0) - static_cast<int>(i0);
}

/* Writes factor times a warp's gradients, of rows from `first` on: kind 0 is dq, 1 dk, 2 dv. */
template <int D>
__device__ static void
write_grads(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g, size_t n,
            size_t head, unsigned kind, size_t first, float factor, const float out[D / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    const size_t part = kind * k.heads + head;
    const bool wide =
        g.dx ? !k.add && exo_cuda_has_wide_rows(g.dx, k.width) /* a lane adds to its own */
             : exo_cuda_has_wide_rows(g.grads, k.width);
    EXO_CUDA_UNROLL
    for (int h = 0; h < 2; h++) {
        const size_t row = first + lane.row + static_cast<unsigned>(h) * 8;
        const bool there = row < k.tokens;
        float two[D / 8][2];
        EXO_CUDA_UNROLL
        for (int c = 0; c < D / 4; c++)
            two[c / 2][c % 2] = factor * out[c / 2][h * 2 + c % 2];
        if (!g.dx) {
            exo_cuda_write_row<D>(g.grads + ((n * 3 * k.heads + part) * k.tokens + row) * k.width,
                                  k.width, two, wide, there);
            continue;
        }
        exo_cuda_bf16 *const to = g.dx + ((n * k.tokens + row) * 3 * k.heads + part) * k.width;
        EXO_CUDA_UNROLL
        for (int c = 0; c < D / 4; c++) {
            const size_t d = static_cast<unsigned>(c / 2 * 8 + c % 2) + lane.column;
            if (k.add && there && d < k.width)
                two[c / 2][c % 2] = exo_cuda_get(to, d) + two[c / 2][c % 2];
        }
        exo_cuda_write_row<D>(to, k.width, two, wide, there);
    }
}

/* The same of a warp's 16 M rows. */
template <int M, int D>
__device__ static void
write_products(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g, size_t n,
               size_t head, unsigned kind, size_t first, float factor, const float out[M][D / 8][4])
{
    EXO_CUDA_UNROLL
    for (int m = 0; m < M; m++)
        write_grads<D>(k, g, n, head, kind, first + static_cast<unsigned>(m) * EXO_MMA_ROWS, factor,
                       out[m]);
}

/* --- Queries ---------------------------------------------------------------------------------- */

/* Whether query i does not see key j, which is `ahead` of it, or is not there: `left` are the tokens
 * from it on. */
template <bool RING>
__device__ static bool
is_masked(const exo_cuda_attention_call &k, size_t i, size_t j, int ahead, int left)
{
    return left <= 0 || (RING && k.foreign ? !exo_cuda_sees(k, i, j) : ahead > 0);
}

/* Turns the products of a warp's rows into gradients of scores, in s: the weight of a score, times what
 * dropout lets through of dp, less delta. Those have no meaning whose query does not see the key. Few
 * models have slopes or dropout, so the others do nothing for them. */
template <int KEYS, bool RING>
__device__ static void
grade(const exo_cuda_attention_call &k, float slope, size_t row, size_t j0, const uint8_t *keep,
      const float lse[2], const float delta[2], float s[KEYS / 8][4], float dp[KEYS / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    const int first = apart(j0, row) + static_cast<int>(lane.column) - static_cast<int>(lane.row);
    const int left = static_cast<int>(k.tokens - row) - static_cast<int>(lane.row);
    scale_scores<KEYS / 8>(k, s);
    if (k.alibi) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 2; c++) {
            const int ahead = first + c / 4 * 8 + c % 2 - c % 4 / 2 * 8;
            s[c / 4][c % 4] = fmaf(slope, static_cast<float>(ahead), s[c / 4][c % 4]);
        }
    }
    if (k.drop.dropped) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 2; c++) {
            const unsigned down = lane.row + static_cast<unsigned>(c % 4 / 2) * 8;
            dp[c / 4][c % 4] *=
                exo_cuda_kept_bit(k, keep[down * (KEYS / 8) + static_cast<unsigned>(c / 4)],
                                  lane.column + static_cast<unsigned>(c % 2));
        }
    }
    EXO_CUDA_UNROLL
    for (int c = 0; c < KEYS / 2; c++) {
        const float weight = exo_cuda_exp2(s[c / 4][c % 4] - lse[c % 4 / 2]);
        s[c / 4][c % 4] = weight * (dp[c / 4][c % 4] - delta[c % 4 / 2]);
    }
    if (!exo_cuda_sees_all<RING>(k, row, EXO_MMA_ROWS, j0, KEYS)) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 2; c++)
            if (is_masked<RING>(k, row + lane.row + static_cast<unsigned>(c % 4 / 2 * 8),
                                j0 + lane.column + static_cast<unsigned>(c / 4 * 8 + c % 2),
                                first + c / 4 * 8 + c % 2 - c % 4 / 2 * 8, left - c % 4 / 2 * 8))
                s[c / 4][c % 4] = 0;
    }
}

template <int D, int KEYS>
__device__ static void
fetch_keys(const exo_cuda_attention_call &k, size_t n, size_t head, size_t j0, exo_cuda_bf16 *keys,
           exo_cuda_bf16 *values)
{
    exo_cuda_fetch_rows<KEYS, D>(keys, exo_cuda_keys(k, n, head), j0, k.tokens, k.width);
    exo_cuda_fetch_rows<KEYS, D>(values, exo_cuda_values(k, n, head), j0, k.tokens, k.width);
}

/* dq of a tile of queries. */
template <int D, int KEYS, int TILES, int M, bool RING>
__global__ static void
__launch_bounds__(EXO_MMA_THREADS)
    query_grads(exo_cuda_attention_call k, exo_cuda_attention_gradients g)
{
    const int pitch = D + EXO_MMA_PAD, tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    EXO_CUDA_SHARED(exo_cuda_bf16, queries);
    exo_cuda_bf16 *const dys = queries + tile * pitch, *const keys = dys + tile * pitch,
                         *const values = keys + TILES * KEYS * pitch;
    uint8_t *const keep = reinterpret_cast<uint8_t *>(values + TILES * KEYS * pitch);
    const size_t tiles = (k.tokens + tile - 1) / tile, pairs = k.sequences * k.heads;
    const size_t pair = blockIdx.x % pairs, n = pair / k.heads, head = pair % k.heads;
    const size_t i0 = (tiles - 1 - blockIdx.x / pairs) * tile;
    const size_t end = RING && k.foreign      ? exo_cuda_keys_end(k, i0, tile)
                       : i0 + tile < k.tokens ? i0 + tile
                                              : k.tokens;
    const unsigned first = threadIdx.x / EXO_CUDA_WARP * EXO_MMA_ROWS * M;
    const size_t row = i0 + first;
    const float slope = exo_cuda_slope2(k, head);
    float out[M][D / 8][4] = {}, lse[M * 2], delta[M * 2];
    for (unsigned h = 0; h < M * 2; h++) {
        const size_t i = row + exo_cuda_own_lane().row + h * 8;
        const size_t at = (n * k.heads + head) * k.tokens + i;
        lse[h] = i < k.tokens ? g.lse[at] : 0.0f;
        delta[h] = i < k.tokens ? g.delta[at] : 0.0f;
    }
    if (RING && end == 0) {
        write_products<M, D>(k, g, n, head, 0, row, 0, out);
        return;
    }
    exo_cuda_fetch_rows<tile, D>(queries, exo_cuda_queries(k, n, head), i0, k.tokens, k.width);
    exo_cuda_fetch_rows<tile, D>(dys, dy_of(k, g, n, head), i0, k.tokens, k.width);
    fetch_keys<D, KEYS>(k, n, head, 0, keys, values);
    exo_cuda_end_copies();
    for (size_t j0 = 0, at = 0; j0 < end; j0 += KEYS, at = TILES - 1 - at) {
        const size_t next = j0 + KEYS, here = at * KEYS * pitch,
                     there = (TILES - 1 - at) * KEYS * pitch;
        if (TILES == 2 && next < end)
            fetch_keys<D, KEYS>(k, n, head, next, keys + there, values + there);
        exo_cuda_end_copies();
        if (k.drop.dropped)
            exo_cuda_draw_tile<tile, KEYS>(k, n, head, i0, j0, keep);
        exo_cuda_wait_copies<TILES - 1>();
        __syncthreads();
        if (exo_cuda_sees_some<RING>(k, row, EXO_MMA_ROWS * M, j0)) {
            float s[M][KEYS / 8][4] = {}, dp[M][KEYS / 8][4] = {};
            exo_cuda_mma_rows<M, KEYS / 8, D>(s, queries + first * pitch, keys + here, pitch);
            exo_cuda_mma_rows<M, KEYS / 8, D>(dp, dys + first * pitch, values + here, pitch);
            EXO_CUDA_UNROLL
            for (int m = 0; m < M; m++)
                grade<KEYS, RING>(k, slope, row + static_cast<unsigned>(m) * EXO_MMA_ROWS, j0,
                                  keep + (first + static_cast<unsigned>(m) * EXO_MMA_ROWS) *
                                             (KEYS / 8),
                                  lse + m * 2, delta + m * 2, s[m], dp[m]);
            exo_cuda_mma_sums<M, D / 8, KEYS / 8>(out, s, keys + here, pitch);
        }
        __syncthreads();
        if (TILES == 1 && next < end)
            fetch_keys<D, KEYS>(k, n, head, next, keys, values);
    }
    write_products<M, D>(k, g, n, head, 0, row, k.scale, out);
}

/* --- Keys and values -------------------------------------------------------------------------- */

/* A tile of queries in shared memory, as it is computed with. */
struct query_tile {
    exo_cuda_bf16 *queries, *dys;
    float *lse, *delta; /* 0 beyond the tokens */
};

template <int D, int ROWS>
__device__ static void
fetch_queries(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g,
              const query_tile &t, size_t n, size_t head, size_t i0)
{
    exo_cuda_fetch_rows<ROWS, D>(t.queries, exo_cuda_queries(k, n, head), i0, k.tokens, k.width);
    exo_cuda_fetch_rows<ROWS, D>(t.dys, dy_of(k, g, n, head), i0, k.tokens, k.width);
    if (threadIdx.x < ROWS) {
        const size_t i = i0 + threadIdx.x, at = (n * k.heads + head) * k.tokens + i;
        t.lse[threadIdx.x] = i < k.tokens ? g.lse[at] : 0.0f;
        t.delta[threadIdx.x] = i < k.tokens ? g.delta[at] : 0.0f;
    }
}

/* numbers (keys, queries) of a warp's products times what dropout multiplies the weights by. keep
 * (ROWS, KEYS / 8); first: of the keys in the tile. */
template <int KEYS, int ROWS>
__device__ static void
drop_transposed(const exo_cuda_attention_call &k, const uint8_t *keep, unsigned first,
                float numbers[ROWS / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    EXO_CUDA_UNROLL
    for (int c = 0; c < ROWS / 2; c++) {
        const unsigned key = first + lane.row + static_cast<unsigned>(c % 4 / 2) * 8,
                       query = static_cast<unsigned>(c / 4 * 8 + c % 2) + lane.column;
        numbers[c / 4][c % 4] *= exo_cuda_kept_bit(k, keep[query * (KEYS / 8) + key / 8], key % 8);
    }
}

/* Turns the transposed products of 16 keys into weights after dropout, in s, and gradients of scores,
 * in dp. first: of the keys in the tile of KEYS; keep (ROWS, KEYS / 8). */
template <int KEYS, int ROWS, bool RING>
__device__ static void
grade_transposed(const exo_cuda_attention_call &k, float slope, size_t i0, size_t j0,
                 unsigned first, const query_tile &t, const uint8_t *keep, float s[ROWS / 8][4],
                 float dp[ROWS / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    const int begin =
        apart(j0, i0) + static_cast<int>(first + lane.row) - static_cast<int>(lane.column);
    const int left = static_cast<int>(k.tokens - i0) - static_cast<int>(lane.column);
    scale_scores<ROWS / 8>(k, s);
    if (k.alibi) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < ROWS / 2; c++) {
            const int ahead = begin + c % 4 / 2 * 8 - c / 4 * 8 - c % 2;
            s[c / 4][c % 4] = fmaf(slope, static_cast<float>(ahead), s[c / 4][c % 4]);
        }
    }
    if (k.drop.dropped)
        drop_transposed<KEYS, ROWS>(k, keep, first, dp);
    EXO_CUDA_UNROLL
    for (int c = 0; c < ROWS / 2; c++) {
        const unsigned query = static_cast<unsigned>(c / 4 * 8 + c % 2) + lane.column;
        const float weight = exo_cuda_exp2(s[c / 4][c % 4] - t.lse[query]);
        s[c / 4][c % 4] = weight;
        dp[c / 4][c % 4] = weight * (dp[c / 4][c % 4] - t.delta[query]);
    }
    if (k.drop.dropped)
        drop_transposed<KEYS, ROWS>(k, keep, first, s);
    if (!exo_cuda_sees_all<RING>(k, i0, ROWS, j0 + first, EXO_MMA_ROWS)) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < ROWS / 2; c++)
            if (is_masked<RING>(k, i0 + lane.column + static_cast<unsigned>(c / 4 * 8 + c % 2),
                                j0 + first + lane.row + static_cast<unsigned>(c % 4 / 2 * 8),
                                begin + c % 4 / 2 * 8 - c / 4 * 8 - c % 2,
                                left - c / 4 * 8 - c % 2))
                s[c / 4][c % 4] = dp[c / 4][c % 4] = 0;
    }
}

/* Adds what a tile of queries gives to the gradients of a warp's keys. */
template <int D, int ROWS, int M, int WANTED, bool RING>
__device__ static void
add_queries(const exo_cuda_attention_call &k, float slope, size_t i0, size_t j0, unsigned first,
            const query_tile &t, const exo_cuda_bf16 *keys, const exo_cuda_bf16 *values,
            const uint8_t *keep, float dk[M][D / 8][4], float dv[M][D / 8][4])
{
    const int pitch = D + EXO_MMA_PAD, tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    float s[M][ROWS / 8][4] = {}, dp[M][ROWS / 8][4] = {};
    exo_cuda_mma_rows<M, ROWS / 8, D>(s, keys + first * pitch, t.queries, pitch);
    if (WANTED & WANT_KEYS)
        exo_cuda_mma_rows<M, ROWS / 8, D>(dp, values + first * pitch, t.dys, pitch);
    EXO_CUDA_UNROLL
    for (int m = 0; m < M; m++)
        grade_transposed<tile, ROWS, RING>(k, slope, i0, j0,
                                           first + static_cast<unsigned>(m) * EXO_MMA_ROWS, t, keep,
                                           s[m], dp[m]);
    if (WANTED & WANT_VALUES)
        exo_cuda_mma_sums<M, D / 8, ROWS / 8>(dv, s, t.dys, pitch);
    if (WANTED & WANT_KEYS)
        exo_cuda_mma_sums<M, D / 8, ROWS / 8>(dk, dp, t.queries, pitch);
}

template <int D, int ROWS, int TILES, int M>
__device__ static query_tile
lay_out(exo_cuda_bf16 *shared, size_t at)
{
    const size_t pitch = D + EXO_MMA_PAD, tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    float *const numbers =
        reinterpret_cast<float *>(shared + (2 * tile + 2 * TILES * ROWS) * pitch);
    exo_cuda_bf16 *const rows = shared + (2 * tile + 2 * at * ROWS) * pitch;
    return {rows, rows + ROWS * pitch, numbers + 2 * at * ROWS, numbers + (2 * at + 1) * ROWS};
}

template <int D, int M, int WANTED>
__device__ static void
write_key_grads(const exo_cuda_attention_call &k, const exo_cuda_attention_gradients &g, size_t n,
                size_t head, size_t first, const float dk[M][D / 8][4], const float dv[M][D / 8][4])
{
    if (WANTED & WANT_KEYS)
        write_products<M, D>(k, g, n, head, 1, first, k.scale, dk);
    if (WANTED & WANT_VALUES)
        write_products<M, D>(k, g, n, head, 2, first, 1, dv);
}

/* dk and dv of a tile of keys, from one head of queries. */
template <int D, int ROWS, int TILES, int M, int WANTED, bool RING>
__global__ static void
__launch_bounds__(EXO_MMA_THREADS)
    key_grads(exo_cuda_attention_call k, exo_cuda_attention_gradients g)
{
    const int pitch = D + EXO_MMA_PAD, tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    EXO_CUDA_SHARED(exo_cuda_bf16, keys);
    exo_cuda_bf16 *const values = keys + tile * pitch;
    uint8_t *const keep = reinterpret_cast<uint8_t *>(lay_out<D, ROWS, TILES, M>(keys, TILES).lse);
    const size_t pairs = k.sequences * k.heads, pair = blockIdx.x % pairs;
    const size_t n = pair / k.heads, head = pair % k.heads;
    const size_t j0 = blockIdx.x / pairs * tile; /* early keys have the most queries */
    const unsigned first = threadIdx.x / EXO_CUDA_WARP * EXO_MMA_ROWS * M;
    const float slope = exo_cuda_slope2(k, head);
    const size_t begin = RING ? exo_cuda_first_query(k, j0) : j0;
    float dk[M][D / 8][4] = {}, dv[M][D / 8][4] = {};
    if (RING && begin >= k.tokens) {
        write_key_grads<D, M, WANTED>(k, g, n, head, j0 + first, dk, dv);
        return;
    }
    exo_cuda_fetch_rows<tile, D>(keys, exo_cuda_keys(k, n, head), j0, k.tokens, k.width);
    exo_cuda_fetch_rows<tile, D>(values, exo_cuda_values(k, n, head), j0, k.tokens, k.width);
    fetch_queries<D, ROWS>(k, g, lay_out<D, ROWS, TILES, M>(keys, 0), n, head, begin);
    exo_cuda_end_copies();
    for (size_t i0 = begin, at = 0; i0 < k.tokens; i0 += ROWS, at = TILES - 1 - at) {
        const query_tile t = lay_out<D, ROWS, TILES, M>(keys, at),
                         other = lay_out<D, ROWS, TILES, M>(keys, TILES - 1 - at);
        const bool more = i0 + ROWS < k.tokens;
        if (TILES == 2 && more)
            fetch_queries<D, ROWS>(k, g, other, n, head, i0 + ROWS);
        exo_cuda_end_copies();
        if (k.drop.dropped)
            exo_cuda_draw_tile<ROWS, tile>(k, n, head, i0, j0, keep);
        exo_cuda_wait_copies<TILES - 1>();
        __syncthreads();
        if (j0 + first < k.tokens && exo_cuda_sees_some<RING>(k, i0, ROWS, j0 + first))
            add_queries<D, ROWS, M, WANTED, RING>(k, slope, i0, j0, first, t, keys, values, keep,
                                                  dk, dv);
        __syncthreads();
        if (TILES == 1 && more)
            fetch_queries<D, ROWS>(k, g, other, n, head, i0 + ROWS);
    }
    write_key_grads<D, M, WANTED>(k, g, n, head, j0 + first, dk, dv);
}

/* --- Calls ------------------------------------------------------------------------------------ */

template <int D, int ROWS, int TILES, int M, int WANTED, bool RING>
static exo_status
launch_keys(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
            const exo_cuda_attention_gradients *g, exo_err *err)
{
    const size_t tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    const size_t blocks = (k->tokens + tile - 1) / tile * k->sequences * k->heads;
    const size_t shared =
        (2 * tile + 2 * TILES * ROWS) * (D + EXO_MMA_PAD) * sizeof(exo_cuda_bf16) +
        2 * TILES * ROWS * sizeof(float) + ROWS * tile / EXO_ATTENTION_GROUP;
    const exo_status st =
        exo_cuda_status(exo_cuda_allow_shared(key_grads<D, ROWS, TILES, M, WANTED, RING>, shared),
                        "attention_backward", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch((key_grads<D, ROWS, TILES, M, WANTED, RING>), static_cast<unsigned>(blocks),
                    EXO_MMA_THREADS, shared, cuda->stream, *k, *g);
    return exo_cuda_launched("attention_backward", err);
}

template <int D, int KEYS, int TILES, int M, bool RING>
static exo_status
launch_queries(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
               const exo_cuda_attention_gradients *g, exo_err *err)
{
    const size_t tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M;
    const size_t blocks = (k->tokens + tile - 1) / tile * k->sequences * k->heads;
    const size_t shared =
        (2 * tile + 2 * TILES * KEYS) * (D + EXO_MMA_PAD) * sizeof(exo_cuda_bf16) +
        tile * KEYS / EXO_ATTENTION_GROUP;
    const exo_status st =
        exo_cuda_status(exo_cuda_allow_shared(query_grads<D, KEYS, TILES, M, RING>, shared),
                        "attention_backward", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch((query_grads<D, KEYS, TILES, M, RING>), static_cast<unsigned>(blocks),
                    EXO_MMA_THREADS, shared, cuda->stream, *k, *g);
    return exo_cuda_launched("attention_backward", err);
}

/* ROWS: queries of a tile of key_grads; KEYS: keys of a tile of query_grads; TILES: of them that there
 * is room for, of which the second one is copied while one is computed with. M: of the 16 M rows of a
 * warp. With two, what is loaded from shared memory is used twice: the loads took longer than the
 * products. */
template <bool RING, int D, int KEYS, int ROWS, int TILES, int M>
static exo_status
launch(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
       const exo_cuda_attention_gradients *g, exo_err *err)
{
    exo_status st = launch_queries<D, KEYS, TILES, M, RING>(cuda, k, g, err);
    if constexpr (D <= 128) {
        if (st == EXO_OK)
            st = launch_keys<D, ROWS, TILES, M, WANT_KEYS | WANT_VALUES, RING>(cuda, k, g, err);
    } else { /* both do not fit into registers */
        if (st == EXO_OK)
            st = launch_keys<D, ROWS, TILES, M, WANT_VALUES, RING>(cuda, k, g, err);
        if (st == EXO_OK)
            st = launch_keys<D, ROWS, TILES, M, WANT_KEYS, RING>(cuda, k, g, err);
    }
    return st;
}

template <bool RING>
static exo_status
launch_by_width(exo_cuda_device *cuda, const exo_cuda_attention_call *k,
                const exo_cuda_attention_gradients *g, exo_err *err)
{
    if (k->width <= 32)
        return launch<RING, 32, 32, 32, 2, 2>(cuda, k, g, err);
    if (k->width <= 64)
        return launch<RING, 64, 32, 32, 2, 2>(cuda, k, g, err);
    if (k->width <= 128)
        return launch<RING, 128, 32, 32, 2, 1>(cuda, k, g, err);
    return launch<RING, EXO_CUDA_MAX_HEAD, 16, 16, 1, 1>(cuda, k, g, err);
}

exo_status
exo_cuda_attention_bf16_grads(exo_cuda_device *cuda, const exo_cuda_attention_call *call,
                              const exo_cuda_attention_gradients *g, exo_err *err)
{
    exo_cuda_attention_call k = *call;
    k.aligned = k.aligned && reinterpret_cast<uintptr_t>(g->dy) % 16 == 0;
    return k.members > 0 ? launch_by_width<true>(cuda, &k, g, err)
                         : launch_by_width<false>(cuda, &k, g, err);
}
