/* Losses: means and sums in double, and the terms of single rows. No
 * state. Read next: softmax.cu, losses over classes; nn/device/loss_terms.h. */
#include "nn/device/loss_terms.h"

#include "nn/cuda/each.h"
#include "nn/cuda/map.h"

/* --- Means ------------------------------------------------------------------------------------ */

enum {
    MEAN_BLOCK = 1024 /* threads of the only block */
};

/* The sum of terms 0 to count - 1 by a block, in an order that depends on the count alone. Every
 * thread gets it. room: shared, EXO_CUDA_WARP elements. All threads call it. */
template <typename Term>
__device__ static inline double
sum_terms(size_t count, const Term &term, double *room)
{
    double own = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, count, blockDim.x))
        own += term(i);
    return exo_cuda_block_sum(own, room);
}

struct plain_term {
    const float *x;
    __device__ double operator()(size_t i) const
    {
        return static_cast<double>(x[i]);
    }
};

/* mask x, or 0 where the mask is 0. x NULL counts as 1. */
struct masked_term {
    const float *x, *mask;
    __device__ double operator()(size_t i) const
    {
        const double by = mask[i] != 0 && x ? static_cast<double>(x[i]) : 1;
        return mask[i] != 0 ? by * static_cast<double>(mask[i]) : 0;
    }
};

__global__ static void
__launch_bounds__(MEAN_BLOCK) mean_of(exo_mean_args k)
{
    __shared__ double room[EXO_CUDA_WARP];
    const double sum = sum_terms(k.count, plain_term{k.x}, room);
    if (threadIdx.x == 0)
        k.y[0] = static_cast<float>(sum / static_cast<double>(k.count));
}

exo_status
exo_cuda_mean(exo_device *device, const exo_mean_args *k, exo_err *err)
{
    exo_cuda_launch(mean_of, 1, MEAN_BLOCK, 0, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("mean", err);
}

__global__ static void
__launch_bounds__(MEAN_BLOCK) masked_mean_of(exo_masked_mean_args k)
{
    __shared__ double room[EXO_CUDA_WARP];
    const double sum = sum_terms(k.count, masked_term{k.x, k.mask}, room);
    const double weight = k.sum ? 1 : sum_terms(k.count, masked_term{NULL, k.mask}, room);
    if (threadIdx.x == 0) {
        k.y[0] = weight != 0 ? static_cast<float>(sum / weight) : 0;
        k.factor[0] = weight != 0 ? static_cast<float>(1 / weight) : 0;
    }
}

exo_status
exo_cuda_masked_mean(exo_device *device, const exo_masked_mean_args *k, exo_err *err)
{
    exo_cuda_launch(masked_mean_of, 1, MEAN_BLOCK, 0, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("masked_mean", err);
}

EXO_CUDA_MAP(mean_backward, k.dx, EXO_CUDA_NOTHING, EXO_CUDA_NOTHING, k.add,
             k.dy[0] / static_cast<float>(k.count))
EXO_CUDA_MAP(masked_mean_backward, k.dx, k.mask, EXO_CUDA_NOTHING, k.add, k.dy[0] * k.factor[0] * a)

/* --- Sums of sequences ------------------------------------------------------------------------ */

/* Sequences are blocks. */
__global__ static void
sequence_sums(exo_sequence_sum_args k)
{
    __shared__ double room[EXO_CUDA_WARP];
    for (size_t n = blockIdx.x; n < k.count; n += gridDim.x) {
        const int32_t first = k.offsets[n], end = k.offsets[n + 1];
        const size_t rows = end > first ? static_cast<size_t>(end - first) : 0;
        const double sum = k.mask ? sum_terms(rows, masked_term{k.x + first, k.mask + first}, room)
                                  : sum_terms(rows, plain_term{k.x + first}, room);
        if (threadIdx.x == 0)
            k.y[n] = static_cast<float>(sum);
    }
}

exo_status
exo_cuda_sequence_sum(exo_device *device, const exo_sequence_sum_args *k, exo_err *err)
{
    if (k->count == 0)
        return EXO_OK;
    exo_cuda_launch(sequence_sums, exo_cuda_blocks(k->count, 1), EXO_CUDA_BLOCK / 2, 0,
                    exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("sequence_sum", err);
}

/* The sequence of a row, by bisection: the last one that begins at the row or before; `count` if
 * the row belongs to none. */
__device__ static inline size_t
sequence_of(const int32_t *offsets, size_t count, size_t row)
{
    size_t low = 0, high = count + 1; /* offsets [0, low) are at most row, those from high on not */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (static_cast<size_t>(offsets[middle]) <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? low - 1 : count;
}

__global__ static void
sequence_sum_backward_each(exo_sequence_sum_backward_args k)
{
    for (EXO_CUDA_EACH(r, k.rows)) {
        const size_t n = sequence_of(k.offsets, k.count, r);
        const float old = k.add ? k.dx[r] : 0;
        if (n < k.count)
            k.dx[r] = old + (k.mask ? k.dy[n] * k.mask[r] : k.dy[n]);
        else if (!k.add)
            k.dx[r] = 0;
    }
}

exo_status
exo_cuda_sequence_sum_backward(exo_device *device, const exo_sequence_sum_backward_args *k,
                               exo_err *err)
{
    if (k->rows == 0)
        return EXO_OK;
    exo_cuda_launch_each(sequence_sum_backward_each, exo_cuda_blocks(k->rows, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("sequence_sum_backward", err);
}

/* --- Terms ------------------------------------------------------------------------------------ */

__device__ static inline void
policy_loss_at(const exo_policy_loss_args &k, size_t i)
{
    double slope = 0, y = 0;
    if (!k.mask || k.mask[i] != 0)
        y = exo_term_of_policy(static_cast<double>(k.log_probs[i]) - static_cast<double>(k.old[i]),
                               static_cast<double>(k.advantages[i]), k.clip, &slope);
    k.y[i] = static_cast<float>(y);
    k.slope[i] = static_cast<float>(slope);
}

__device__ static inline void
kl_terms_at(const exo_kl_terms_args &k, size_t i)
{
    double slope = 0, y = 0;
    if (!k.mask || k.mask[i] != 0)
        y = exo_term_of_kl(
            k.kind, static_cast<double>(k.log_probs[i]) - static_cast<double>(k.old[i]), &slope);
    k.y[i] = static_cast<float>(y);
    k.slope[i] = static_cast<float>(slope);
}

__device__ static inline void
value_loss_at(const exo_value_loss_args &k, size_t i)
{
    double slope = 0, y = 0;
    if (!k.mask || k.mask[i] != 0)
        y = exo_term_of_value(static_cast<double>(k.values[i]), static_cast<double>(k.old[i]),
                              static_cast<double>(k.targets[i]), static_cast<double>(k.clip),
                              &slope);
    k.y[i] = static_cast<float>(y);
    k.slope[i] = static_cast<float>(slope);
}

__device__ static inline void
ranking_loss_at(const exo_ranking_loss_args &k, size_t i)
{
    const double smoothing = static_cast<double>(k.smoothing);
    const double margin = static_cast<double>(k.x[2 * i]) - static_cast<double>(k.x[2 * i + 1]);
    double slope;
    const double y = exo_term_of_ranking(margin, &slope);
    k.y[i] = static_cast<float>(y + smoothing * margin);
    k.slope[i] = static_cast<float>(slope + smoothing);
}

__device__ static inline void
ranking_loss_backward_at(const exo_ranking_loss_backward_args &k, size_t i)
{
    const float d = k.dy[i] * k.slope[i];
    k.dx[2 * i] = k.add ? k.dx[2 * i] + d : d;
    k.dx[2 * i + 1] = k.add ? k.dx[2 * i + 1] - d : -d;
}

EXO_CUDA_EACH_KERNEL(policy_loss, policy_loss_at(k, i))
EXO_CUDA_EACH_KERNEL(kl_terms, kl_terms_at(k, i))
EXO_CUDA_EACH_KERNEL(value_loss, value_loss_at(k, i))
EXO_CUDA_EACH_KERNEL(ranking_loss, ranking_loss_at(k, i))
EXO_CUDA_EACH_KERNEL(ranking_loss_backward, ranking_loss_backward_at(k, i))
