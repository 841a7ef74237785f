/* Sums of all elements, in double, and clipping by the root of such sums. A sum has two grids: blocks
 * add up their parts, then one block adds up the blocks. The order depends on the count alone. State:
 * partials of the device, which its stream guards. Read next: grid.h. */
#include "nn/cuda/map.h"
#include "nn/cuda/partials.h"

struct sum_term {
    const float *x;
    __device__ double operator()(size_t i) const
    {
        return static_cast<double>(x[i]);
    }
};

struct square_term {
    const float *x;
    double center;
    __device__ double operator()(size_t i) const
    {
        const double apart = static_cast<double>(x[i]) - center;
        return apart * apart;
    }
};

struct dot_term {
    const float *a, *b;
    __device__ double operator()(size_t i) const
    {
        return static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
};

/* out (blocks of the grid) = the sum of each block's terms. */
template <typename Term>
__global__ static void
add_up(size_t count, Term term, double *out)
{
    __shared__ double room[EXO_CUDA_WARP];
    const size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    double own = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, first, count, static_cast<size_t>(gridDim.x) * blockDim.x))
        own += term(i);
    own = exo_cuda_block_sum(own, room);
    if (threadIdx.x == 0)
        out[blockIdx.x] = own;
}

template <typename Term>
static exo_status
sum(exo_device *device, size_t count, Term term, double *out, bool add, const char *name,
    exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    /* 8 elements of a thread, as far as there are partials */
    const size_t most = EXO_CUDA_PARTS, each = static_cast<size_t>(EXO_CUDA_BLOCK) * 8;
    const size_t blocks = count / each + 1 < most ? count / each + 1 : most;
    exo_cuda_launch(add_up<Term>, static_cast<unsigned>(blocks), EXO_CUDA_BLOCK, 0, cuda->stream,
                    count, term, cuda->partials);
    exo_cuda_launch(exo_cuda_add_partials<double>, 1, EXO_CUDA_BLOCK, 0, cuda->stream, blocks,
                    cuda->partials, out, add);
    return exo_cuda_launched(name, err);
}

exo_status
exo_cuda_sum(exo_device *device, const exo_sum_args *k, exo_err *err)
{
    return sum(device, k->count, sum_term{k->x}, k->out, false, "sum", err);
}

exo_status
exo_cuda_sum_squares(exo_device *device, const exo_sum_squares_args *k, exo_err *err)
{
    return sum(device, k->count, square_term{k->x, k->center}, k->out, k->add, "sum_squares", err);
}

exo_status
exo_cuda_dot(exo_device *device, const exo_dot_args *k, exo_err *err)
{
    return sum(device, k->count, dot_term{k->a, k->b}, k->out, false, "dot", err);
}

/* --- Clipping --------------------------------------------------------------------------------- */

/* Every thread adds up the few squares itself. Sum and norm are written for no elements, too. */
__global__ static void
clip_each(exo_clip_args k)
{
    double sum = 0;
    for (size_t p = 0; p < k.parts; p++)
        sum += k.squares[p];
    const float norm = static_cast<float>(sqrt(sum)), factor = k.max_norm / (norm + 1e-6f);
    if (blockIdx.x == 0 && threadIdx.x == 0 && k.sum)
        *k.sum = sum;
    if (!k.norm)
        return;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        k.norm[0] = norm;
    if (factor >= 1.0f) /* false for NaN, which then spreads */
        return;
    const bool fours = reinterpret_cast<uintptr_t>(k.y) % sizeof(exo_cuda_four<float>) == 0;
    for (EXO_CUDA_EACH(group, (k.count + 3) / 4)) {
        const size_t first = group * 4;
        float four[4];
        if (fours && first + 4 <= k.count) {
            exo_cuda_get_four(k.y, first, four);
            for (size_t j = 0; j < 4; j++)
                four[j] = factor * four[j];
            exo_cuda_set_four(k.y, first, four);
        } else {
            for (size_t i = first; i < first + 4 && i < k.count; i++)
                k.y[i] = factor * k.y[i];
        }
    }
}

exo_status
exo_cuda_clip(exo_device *device, const exo_clip_args *k, exo_err *err)
{
    exo_cuda_launch_each(clip_each, exo_cuda_blocks((k->count + 3) / 4, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("clip", err);
}
