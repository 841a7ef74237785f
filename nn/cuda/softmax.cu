/* Losses over classes. A row of logits is a block, and is read once for its largest element and the
 * sum of exponentials, so that a large vocabulary costs one pass. Exponentials are in fp32, and the
 * sums of a block in double.
 *
 * State: partials of the device, which its stream guards. Read next: nn/device/op_args.h. */
#include <float.h>

#include "nn/cuda/log_sum.h"
#include "nn/cuda/map.h"
#include "nn/cuda/partials.h"

/* --- Rows ------------------------------------------------------------------------------------- */

/* Threads for a row. */
static unsigned
block_for(size_t columns)
{
    const size_t warp = EXO_CUDA_WARP, most = 512, warps = columns / 4 / warp + 1;
    return static_cast<unsigned>(warps * warp < most ? warps * warp : most);
}

/* Of the terms z = scale x of a row: the largest one, m; the sum of e^(z - m); and the sum of
 * e^(z - m) (z - m), which an entropy needs. */
template <typename F> struct row_sums {
    float most;
    F sum, product;
};

/* Adds a term. An x that is larger than all before makes the sums smaller first. */
__device__ static inline void
add_term(row_sums<float> *s, float x, float scale)
{
    const float z = scale * x;
    if (z > s->most) {
        const float lower = s->most - z, factor = expf(lower);
        s->product = factor > 0 ? factor * (s->product + lower * s->sum) : 0;
        s->sum *= factor;
        s->most = z;
    }
    const float apart = fmaf(scale, x, -s->most), e = expf(apart);
    s->sum += e;
    s->product += e > 0 ? e * apart : 0; /* 0 log 0 counts as 0 */
}

/* The sums of a row, for each thread of the block. All threads call it. */
__device__ static inline row_sums<double>
sum_row(const float *x, size_t columns, float scale)
{
    __shared__ float room[EXO_CUDA_WARP];
    __shared__ double rooms[2][EXO_CUDA_WARP];
    row_sums<float> own = {-FLT_MAX, 0, 0};
    for (size_t v = threadIdx.x; v < columns; v += blockDim.x)
        add_term(&own, x[v], scale);
    row_sums<double> all = {exo_cuda_block_max(own.most, room), 0, 0};
    const double lower = static_cast<double>(own.most) - static_cast<double>(all.most);
    const double factor = static_cast<double>(expf(static_cast<float>(lower)));
    const double sum = static_cast<double>(own.sum), product = static_cast<double>(own.product);
    all.sum = exo_cuda_block_sum(sum * factor, rooms[0]);
    all.product = exo_cuda_block_sum(factor > 0 ? factor * (product + lower * sum) : 0, rooms[1]);
    return all;
}

__device__ static inline double
log_sum_of(const row_sums<double> &s)
{
    return static_cast<double>(s.most) + log(s.sum);
}

__device__ static inline bool
is_column(int32_t target, size_t columns)
{
    return target >= 0 && static_cast<size_t>(target) < columns;
}

/* --- Log-probabilities and entropies ---------------------------------------------------------- */

/* As the head computes them, and generation. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) log_probs_rows(exo_log_probs_args k)
{
    for (size_t r = blockIdx.x; r < k.rows; r += gridDim.x) {
        const float *x = k.x + r * k.columns;
        const float log_sum = exo_cuda_log_sum_of(exo_cuda_sum_row(x, k.columns, k.scale));
        if (threadIdx.x > 0)
            continue;
        const int32_t target = k.targets[r];
        k.log_sum[r] = log_sum;
        k.y[r] = is_column(target, k.columns) ? k.scale * x[target] - log_sum : 0;
    }
}

__global__ static void __launch_bounds__(512) entropy_rows(exo_entropy_args k)
{
    for (size_t r = blockIdx.x; r < k.rows; r += gridDim.x) {
        const row_sums<double> s = sum_row(k.x + r * k.columns, k.columns, k.scale);
        if (threadIdx.x > 0)
            continue;
        k.log_sum[r] = static_cast<float>(log_sum_of(s));
        k.y[r] = static_cast<float>(log(s.sum) - s.product / s.sum);
    }
}

#define ROWS(NAME, THREADS)                                                                        \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        if (k->rows == 0)                                                                          \
            return EXO_OK;                                                                         \
        exo_cuda_launch(NAME##_rows, exo_cuda_blocks(k->rows, 1), THREADS, 0,                      \
                        exo_cuda_of(device)->stream, *k);                                          \
        return exo_cuda_launched(#NAME, err);                                                      \
    }
ROWS(log_probs, EXO_CUDA_BLOCK)
ROWS(entropy, block_for(k->columns))

__device__ static inline void
log_probs_backward_at(const exo_log_probs_backward_args &k, size_t i)
{
    const size_t r = i / k.columns, v = i % k.columns;
    const int32_t target = k.targets[r];
    const float p = expf(fmaf(k.scale, k.x[i], -k.log_sum[r]));
    const float hot = target >= 0 && static_cast<size_t>(target) == v ? 1 : 0;
    exo_cuda_store<float>(k.dx, i, is_column(target, k.columns) ? k.dy[r] * k.scale * (hot - p) : 0,
                          k.add);
}

__device__ static inline void
entropy_backward_at(const exo_entropy_backward_args &k, size_t i)
{
    const size_t r = i / k.columns;
    const float log_p = fmaf(k.scale, k.x[i], -k.log_sum[r]), p = expf(log_p);
    exo_cuda_store<float>(k.dx, i, p > 0 ? -k.dy[r] * k.scale * p * (log_p + k.y[r]) : 0, k.add);
}

#define ELEMENTS(NAME)                                                                             \
    __global__ static void NAME##_each(exo_##NAME##_args k)                                        \
    {                                                                                              \
        for (EXO_CUDA_EACH(i, k.rows * k.columns))                                                 \
            NAME##_at(k, i);                                                                       \
    }                                                                                              \
    exo_status exo_cuda_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)       \
    {                                                                                              \
        const size_t count = k->rows * k->columns;                                                 \
        if (count == 0)                                                                            \
            return EXO_OK;                                                                         \
        exo_cuda_launch_each(NAME##_each, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,  \
                             exo_cuda_of(device)->stream, *k);                                     \
        return exo_cuda_launched(#NAME, err);                                                      \
    }
ELEMENTS(log_probs_backward)
ELEMENTS(entropy_backward)

/* --- Cross-entropy and hits ------------------------------------------------------------------- */

/* As many blocks as rows, as far as there are partials. */
static unsigned
blocks_for(size_t rows)
{
    const size_t most = EXO_CUDA_PARTS;
    return static_cast<unsigned>(rows == 0 ? 1 : rows < most ? rows : most);
}

/* Writes dx of a row with a target. Returns its share of the loss. */
__device__ static inline double
cross_entropy_row(const exo_cross_entropy_args &k, size_t r, double share)
{
    const float *x = k.x + r * k.columns;
    float *dx = k.dx + r * k.columns;
    const size_t target = static_cast<size_t>(k.targets[r]);
    const float picked = x[target]; /* before dx, which may be x, is written */
    const row_sums<double> s = sum_row(x, k.columns, 1);
    const float inverse = static_cast<float>(1 / s.sum), by = static_cast<float>(share);
    for (size_t v = threadIdx.x; v < k.columns; v += blockDim.x)
        dx[v] = (expf(x[v] - s.most) * inverse - (v == target ? 1.0f : 0.0f)) * by;
    return (log_sum_of(s) - static_cast<double>(picked)) * share;
}

__global__ static void __launch_bounds__(512)
    cross_entropy_rows(exo_cross_entropy_args k, double *partials)
{
    const double share = k.counted ? 1 / static_cast<double>(k.counted) : 0;
    double loss = 0;
    for (size_t r = blockIdx.x; r < k.rows; r += gridDim.x) {
        if (k.targets[r] >= 0)
            loss += cross_entropy_row(k, r, share);
        else
            for (size_t v = threadIdx.x; v < k.columns; v += blockDim.x)
                k.dx[r * k.columns + v] = 0;
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = loss;
}

exo_status
exo_cuda_cross_entropy(exo_device *device, const exo_cross_entropy_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    const unsigned blocks = blocks_for(k->rows);
    exo_cuda_launch(cross_entropy_rows, blocks, block_for(k->columns), 0, cuda->stream, *k,
                    cuda->partials);
    exo_cuda_launch((exo_cuda_add_partials<float>), 1, EXO_CUDA_BLOCK, 0, cuda->stream, blocks,
                    cuda->partials, k->y, false);
    return exo_cuda_launched("cross_entropy", err);
}

/* Whether column v comes before the target as the place of the largest element: that is the first
 * of equal ones, and no NaN but one in the first column. */
template <typename T>
__device__ static inline bool
beats(const exo_hits_args &k, size_t r, size_t v, size_t target)
{
    const float x = exo_cuda_load<T>(k.x, r * k.columns + v);
    const float own = exo_cuda_load<T>(k.x, r * k.columns + target);
    if (v == target || (target == 0 && own != own))
        return false;
    return own != own || x > own || (v < target && x == own) || (v == 0 && x != x);
}

template <typename T>
__global__ static void __launch_bounds__(512) hits_rows(exo_hits_args k, double *partials)
{
    __shared__ unsigned room[EXO_CUDA_WARP];
    double hits = 0;
    for (size_t r = blockIdx.x; r < k.rows; r += gridDim.x) {
        if (!is_column(k.targets[r], k.columns))
            continue;
        unsigned all;
        bool beaten = false;
        for (size_t v = threadIdx.x; v < k.columns; v += blockDim.x)
            beaten |= beats<T>(k, r, v, static_cast<size_t>(k.targets[r]));
        (void)exo_cuda_block_rank(beaten, room, &all);
        hits += all == 0 ? 1 : 0;
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = hits;
}

template <typename T>
static void
start_hits(const exo_cuda_device *cuda, const exo_hits_args *k, unsigned blocks)
{
    exo_cuda_launch((hits_rows<T>), blocks, block_for(k->columns), 0, cuda->stream, *k,
                    cuda->partials);
}

exo_status
exo_cuda_hits(exo_device *device, const exo_hits_args *k, exo_err *err)
{
    const exo_cuda_device *cuda = exo_cuda_of(device);
    const unsigned blocks = blocks_for(k->rows);
    EXO_CUDA_BY_TYPE(k->dtype, start_hits, cuda, k, blocks);
    exo_cuda_launch((exo_cuda_add_partials<double>), 1, EXO_CUDA_BLOCK, 0, cuda->stream, blocks,
                    cuda->partials, k->out, false);
    return exo_cuda_launched("hits", err);
}

EXO_CUDA_MAP(scale_by, k.y, k.x, EXO_CUDA_NOTHING, k.add, (a * k.factor[0]))
