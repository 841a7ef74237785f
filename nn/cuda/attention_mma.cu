/* Causal attention in bf16 on the tensor cores: a warp keeps the maximum and the sum of each of its
 * rows in registers as it goes over the keys (Dao, 2023, arXiv:2307.08691). Scores are kept in binary
 * logarithms; weights are rounded to bf16 for their product with the values. The order of all sums
 * depends on a row's position alone. No state. Read next: attention_mma.h,
 * attention_mma_backward.cu. */
#include "nn/cuda/attention_mma.h"

#include "nn/cuda/kernels.h"

/* A warp's rows so far: row 8 h + its own of product m is at [m][h]. */
template <int M, int D> struct warp_rows {
    float most[M][2], sum[M][2];
    float out[M][D / 8][4];
};

/* Scales the scores of half h of a row of products, from keys j0 on; those that its query, `row`, does
 * not see become -infinity. Positions are apart by less than 2^31; few tiles have keys that are not
 * seen, and few models slopes, so the others do nothing for them. */
template <int KEYS, bool RING>
__device__ static void
scale_scores(const exo_cuda_attention_call &k, float slope, size_t row, size_t j0, int h,
             float s[KEYS / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    const int ahead = static_cast<int>(j0) - static_cast<int>(row) + static_cast<int>(lane.column) -
                      static_cast<int>(lane.row) - h * 8; /* of the lane's first key */
    EXO_CUDA_UNROLL
    for (int c = 0; c < KEYS / 4; c++)
        s[c / 2][h * 2 + c % 2] *= k.scale2;
    if (k.alibi) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 4; c++)
            s[c / 2][h * 2 + c % 2] =
                fmaf(slope, static_cast<float>(ahead + c / 2 * 8 + c % 2), s[c / 2][h * 2 + c % 2]);
    }
    if (RING && k.foreign) {
        const size_t i = row + lane.row + static_cast<unsigned>(h) * 8, j = j0 + lane.column;
        for (int c = 0; c < KEYS / 4 && !exo_cuda_sees_all<RING>(k, row, EXO_MMA_ROWS, j0, KEYS);
             c++)
            if (!exo_cuda_sees(k, i, j + static_cast<unsigned>(c / 2 * 8 + c % 2)))
                s[c / 2][h * 2 + c % 2] = -INFINITY;
    } else if (j0 + KEYS > row + 1) {
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 4; c++)
            if (ahead + c / 2 * 8 + c % 2 > 0)
                s[c / 2][h * 2 + c % 2] = -INFINITY;
    }
}

/* Scores of a row of products become weights before dropout; the rows so far shrink. */
template <int M, int D, int KEYS, bool RING>
__device__ static void
weigh(const exo_cuda_attention_call &k, float slope, size_t row, size_t j0, int m,
      float s[KEYS / 8][4], warp_rows<M, D> *rows)
{
    EXO_CUDA_UNROLL
    for (int h = 0; h < 2; h++) {
        float most = rows->most[m][h];
        scale_scores<KEYS, RING>(k, slope, row, j0, h, s);
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 4; c++)
            most = fmaxf(most, s[c / 2][h * 2 + c % 2]);
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
        const float shrink = exo_cuda_exp2(rows->most[m][h] - most);
        float sum = rows->sum[m][h] * shrink;
        rows->most[m][h] = most;
        EXO_CUDA_UNROLL
        for (int c = 0; c < KEYS / 4; c++) {
            float &weight = s[c / 2][h * 2 + c % 2];
            weight = exo_cuda_exp2(weight - most);
            sum += weight;
        }
        rows->sum[m][h] = sum;
        EXO_CUDA_UNROLL
        for (int c = 0; c < D / 4; c++)
            rows->out[m][c / 2][h * 2 + c % 2] *= shrink;
    }
}

/* keep: of row 0 of the products, KEYS / 8 bytes a row. */
template <int KEYS>
__device__ static void
drop(const exo_cuda_attention_call &k, const uint8_t *keep, float s[KEYS / 8][4])
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    EXO_CUDA_UNROLL
    for (int c = 0; c < KEYS / 2; c++) {
        const unsigned row = lane.row + static_cast<unsigned>(c % 4 / 2) * 8;
        s[c / 4][c % 4] *=
            exo_cuda_kept_bit(k, keep[row * (KEYS / 8) + static_cast<unsigned>(c / 4)],
                              lane.column + static_cast<unsigned>(c % 2));
    }
}

/* Adds a tile of keys to a warp's rows, whose first one is `row`; queries and keep are of that row. */
template <int M, int D, int KEYS, bool RING>
__device__ static void
add_tile(const exo_cuda_attention_call &k, float slope, size_t row, size_t j0,
         const exo_cuda_bf16 *queries, const exo_cuda_bf16 *keys, const exo_cuda_bf16 *values,
         const uint8_t *keep, warp_rows<M, D> *rows)
{
    const int pitch = D + EXO_MMA_PAD;
    float s[M][KEYS / 8][4] = {};
    exo_cuda_mma_rows<M, KEYS / 8, D>(s, queries, keys, pitch);
    EXO_CUDA_UNROLL
    for (int m = 0; m < M; m++) {
        weigh<M, D, KEYS, RING>(k, slope, row + static_cast<unsigned>(m) * EXO_MMA_ROWS, j0, m,
                                s[m], rows);
        if (k.drop.dropped)
            drop<KEYS>(k, keep + m * EXO_MMA_ROWS * (KEYS / 8), s[m]);
    }
    exo_cuda_mma_sums<M, D / 8, KEYS / 8>(rows->out, s, values, pitch);
}

/* The rows of keys before: y, and as a sum of one weight whose score is lse. */
template <int M, int D>
__device__ static void
begin_rows(const exo_cuda_attention_call &k, size_t n, size_t head, size_t row, const float *y,
           const float *lse, warp_rows<M, D> *rows)
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    EXO_CUDA_UNROLL
    for (int mh = 0; mh < M * 2; mh++) {
        const size_t i = row + static_cast<unsigned>(mh * 8) + lane.row;
        if (i >= k.tokens)
            continue;
        const float *const from = y + ((n * k.tokens + i) * k.heads + head) * k.width;
        rows->most[mh / 2][mh % 2] = lse[(n * k.heads + head) * k.tokens + i];
        rows->sum[mh / 2][mh % 2] = lane.column == 0 ? 1.0f : 0.0f;
        EXO_CUDA_UNROLL
        for (int c = 0; c < D / 4; c++) {
            const size_t d = static_cast<unsigned>(c / 2 * 8 + c % 2) + lane.column;
            rows->out[mh / 2][c / 2][mh % 2 * 2 + c % 2] = d < k.width ? from[d] : 0.0f;
        }
    }
}

template <int M, int D, typename Y>
__device__ static void
write_rows(const exo_cuda_attention_call &k, size_t n, size_t head, size_t row,
           const warp_rows<M, D> *rows, Y *y, float *lse)
{
    const exo_cuda_lane lane = exo_cuda_own_lane();
    const bool wide = exo_cuda_has_wide_rows(y, k.width);
    EXO_CUDA_UNROLL
    for (int m = 0; m < M; m++)
        EXO_CUDA_UNROLL
    for (int h = 0; h < 2; h++) {
        const size_t i = row + static_cast<unsigned>(m * EXO_MMA_ROWS + h * 8) + lane.row;
        float sum = rows->sum[m][h], two[D / 8][2];
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
        EXO_CUDA_UNROLL
        for (int c = 0; c < D / 4; c++)
            two[c / 2][c % 2] = rows->out[m][c / 2][h * 2 + c % 2] / sum;
        exo_cuda_write_row<D>(y + ((n * k.tokens + i) * k.heads + head) * k.width, k.width, two,
                              wide, i < k.tokens);
        if (lse && lane.column == 0 && i < k.tokens)
            lse[(n * k.heads + head) * k.tokens + i] = log2f(sum) + rows->most[m][h];
    }
}

template <int M, int D, int KEYS>
static constexpr size_t
shared_bytes(void)
{
    return static_cast<size_t>(EXO_MMA_WARPS * EXO_MMA_ROWS * M + 4 * KEYS) * (D + EXO_MMA_PAD) *
               sizeof(exo_cuda_bf16) +
           static_cast<size_t>(EXO_MMA_WARPS * EXO_MMA_ROWS * M * KEYS / EXO_ATTENTION_GROUP);
}

/* A block is a tile of the queries of one head of one sequence; late ones, which have the most keys,
 * come first. RING: y is fp32, and with foreign keys the rows go on from there. */
template <int M, int D, int KEYS, typename Y, bool RING>
__global__ static void
__launch_bounds__(EXO_MMA_THREADS) forward_mma(exo_cuda_attention_call k, Y *y, float *lse)
{
    const int tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M, pitch = D + EXO_MMA_PAD;
    EXO_CUDA_SHARED(exo_cuda_bf16, queries);
    exo_cuda_bf16 *const keys = queries + tile * pitch, *const values = keys + 2 * KEYS * pitch;
    uint8_t *const keep = reinterpret_cast<uint8_t *>(values + 2 * KEYS * pitch);
    const size_t tiles = (k.tokens + tile - 1) / tile, pairs = k.sequences * k.heads;
    const size_t pair = blockIdx.x % pairs, n = pair / k.heads, head = pair % k.heads;
    const size_t i0 = (tiles - 1 - blockIdx.x / pairs) * tile;
    const size_t end = RING && k.foreign      ? exo_cuda_keys_end(k, i0, tile)
                       : i0 + tile < k.tokens ? i0 + tile
                                              : k.tokens;
    const unsigned first = threadIdx.x / EXO_CUDA_WARP * EXO_MMA_ROWS * M; /* of the warp */
    const size_t row = i0 + first;
    const float slope = exo_cuda_slope2(k, head);
    if (RING && end == 0) /* y and lse stay */
        return;
    warp_rows<M, D> rows = {};
    for (int m = 0; m < M * 2; m++)
        rows.most[m / 2][m % 2] = -INFINITY;
    if constexpr (RING)
        if (k.foreign)
            begin_rows<M, D>(k, n, head, row, y, lse, &rows);
    exo_cuda_fetch_rows<tile, D>(queries, exo_cuda_queries(k, n, head), i0, k.tokens, k.width);
    exo_cuda_fetch_rows<KEYS, D>(keys, exo_cuda_keys(k, n, head), 0, k.tokens, k.width);
    exo_cuda_fetch_rows<KEYS, D>(values, exo_cuda_values(k, n, head), 0, k.tokens, k.width);
    exo_cuda_end_copies();
    for (size_t j0 = 0, half = 0; j0 < end; j0 += KEYS, half ^= 1) {
        const size_t next = j0 + KEYS, here = half * KEYS * pitch, there = KEYS * pitch - here;
        if (next < end) {
            exo_cuda_fetch_rows<KEYS, D>(keys + there, exo_cuda_keys(k, n, head), next, k.tokens,
                                         k.width);
            exo_cuda_fetch_rows<KEYS, D>(values + there, exo_cuda_values(k, n, head), next,
                                         k.tokens, k.width);
        }
        exo_cuda_end_copies();
        if (k.drop.dropped)
            exo_cuda_draw_tile<tile, KEYS>(k, n, head, i0, j0, keep);
        exo_cuda_wait_copies<1>();
        __syncthreads();
        if (exo_cuda_sees_some<RING>(k, row, EXO_MMA_ROWS * M, j0))
            add_tile<M, D, KEYS, RING>(k, slope, row, j0, queries + first * pitch, keys + here,
                                       values + here, keep + first * (KEYS / 8), &rows);
        __syncthreads();
    }
    write_rows<M, D>(k, n, head, row, &rows, y, lse);
}

template <int M, int D, int KEYS, typename Y>
static exo_status
launch(exo_cuda_device *cuda, const exo_cuda_attention_call *k, Y *y, float *lse, exo_err *err)
{
    const bool ring = sizeof(Y) == sizeof(float);
    const size_t tile = EXO_MMA_WARPS * EXO_MMA_ROWS * M, shared = shared_bytes<M, D, KEYS>();
    const size_t blocks = (k->tokens + tile - 1) / tile * k->sequences * k->heads;
    const exo_status st = exo_cuda_status(
        exo_cuda_allow_shared(forward_mma<M, D, KEYS, Y, ring>, shared), "attention", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch((forward_mma<M, D, KEYS, Y, ring>), static_cast<unsigned>(blocks),
                    EXO_MMA_THREADS, shared, cuda->stream, *k, y, lse);
    return exo_cuda_launched("attention", err);
}

template <typename Y>
static exo_status
forward(exo_cuda_device *cuda, const exo_cuda_attention_call *k, Y *to, float *lse, exo_err *err)
{
    if (k->width <= 32)
        return launch<2, 32, 64>(cuda, k, to, lse, err);
    if (k->width <= 64)
        return launch<2, 64, 64>(cuda, k, to, lse, err);
    if (k->width <= 128)
        return launch<1, 128, 64>(cuda, k, to, lse, err);
    return launch<1, EXO_CUDA_MAX_HEAD, 16>(cuda, k, to, lse, err);
}

exo_status
exo_cuda_attention_bf16(exo_cuda_device *cuda, const exo_cuda_attention_call *k, void *y,
                        float *lse, exo_err *err)
{
    return k->members > 0 ? forward(cuda, k, static_cast<float *>(y), lse, err)
                          : forward(cuda, k, static_cast<exo_cuda_bf16 *>(y), lse, err);
}
