/* Orthonormal vectors by Householder reflections in double, as in nn/cpu/orthonormalize.c, which
 * also gives them for vectors that depend on each other.
 *
 * The vectors are columns of the work space. Grid k of the first half computes reflection k and
 * reflects the later columns, one a block; each block computes the norm for itself. The second half
 * goes back from the last reflection to the first and makes Q in place of the reflections' vectors.
 * No state. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"

/* The parts of the scratch. The first element of reflection k's vector is heads[k]; its other ones
 * are work[k][k + 1] to work[k][length - 1]. */
struct space {
    double *work;    /* (vectors, length) */
    double *heads;   /* (vectors), of `length` elements that are there */
    double *squares; /* (vectors): v^T v of each reflection */
};

__host__ __device__ static inline space
space_of(const exo_orthonormalize_args &k)
{
    double *const heads = k.scratch + k.vectors * k.length;
    return {k.scratch, heads, heads + k.length};
}

__global__ static void
load_each(exo_orthonormalize_args k)
{
    for (EXO_CUDA_EACH(i, k.vectors * k.length)) {
        const size_t v = i / k.length, element = i % k.length;
        k.scratch[i] = static_cast<double>(k.x[v * k.vector_step + element * k.element_step]);
    }
}

/* The sum of a[i] b[i] over [first, length), for each thread. All threads of the block call it. */
__device__ static inline double
product_from(size_t first, size_t length, const double *a, const double *b)
{
    __shared__ double room[EXO_CUDA_WARP];
    double own = 0;
    for (size_t i = first + threadIdx.x; i < length; i += blockDim.x)
        own += a[i] * b[i];
    return exo_cuda_block_sum(own, room);
}

/* x = x - 2 v (v^T x) / (v^T v) on [at, length), where v[at] is `head`; the identity for v = 0. */
__device__ static inline void
reflect(double *x, const double *v, double head, double squares, size_t at, size_t length)
{
    const double product = product_from(at + 1, length, v, x) + head * x[at];
    const double factor = squares > 0 || squares != squares ? 2 * product / squares : 0;
    __syncthreads(); /* x[at] has been read */
    for (size_t i = at + threadIdx.x; i < length; i += blockDim.x)
        x[i] -= factor * (i == at ? head : v[i]);
}

/* Block b: column `at` + 1 + b. The block behind the last column keeps the reflection. */
__global__ static void
eliminate(exo_orthonormalize_args k, size_t at)
{
    const space s = space_of(k);
    const double *v = s.work + at * k.length;
    const double tail = product_from(at + 1, k.length, v, v), first = v[at];
    const double norm = sqrt(first * first + tail);
    const double head = first > 0 ? first + norm : first - norm, squares = head * head + tail;
    const size_t column = at + 1 + blockIdx.x;
    if (column < k.vectors) {
        reflect(s.work + column * k.length, v, head, squares, at, k.length);
    } else if (threadIdx.x == 0) {
        s.heads[at] = head;
        s.squares[at] = squares;
    }
}

/* Makes column `at` of Q in place of its reflection's vector v: e - 2 v v[at] / (v^T v) on [at,
 * length), and 0 before. */
__device__ static inline void
begin_column(const space &s, size_t at, size_t length)
{
    double *const v = s.work + at * length;
    const double head = s.heads[at], squares = s.squares[at];
    const double factor = squares > 0 || squares != squares ? 2 * head / squares : 0;
    for (size_t i = threadIdx.x; i < length; i += blockDim.x)
        v[i] = i < at ? 0 : i == at ? 1 - factor * head : -factor * v[i];
    __syncthreads();
}

/* Applies reflection `at` to the later columns of Q, one a block. The first of them is made now. */
__global__ static void
accumulate(exo_orthonormalize_args k, size_t at)
{
    const space s = space_of(k);
    const size_t column = at + 1 + blockIdx.x;
    if (blockIdx.x == 0)
        begin_column(s, column, k.length);
    reflect(s.work + column * k.length, s.work + at * k.length, s.heads[at], s.squares[at], at,
            k.length);
}

/* R's diagonal is to be positive: the sign of a column is that of its diagonal element. Block v
 * writes vector v. */
__global__ static void
finish(exo_orthonormalize_args k)
{
    const space s = space_of(k);
    const size_t v = blockIdx.x;
    const double *q = s.work + v * k.length, sign = s.heads[v] > 0 ? -1 : 1;
    if (v == 0)
        begin_column(s, 0, k.length);
    for (size_t i = threadIdx.x; i < k.length; i += blockDim.x)
        k.x[v * k.vector_step + i * k.element_step] = static_cast<float>(sign * q[i]);
}

exo_status
exo_cuda_orthonormalize(exo_device *device, const exo_orthonormalize_args *k, exo_err *err)
{
    const cudaStream_t stream = exo_cuda_of(device)->stream;
    const unsigned vectors = static_cast<unsigned>(k->vectors), block = EXO_CUDA_BLOCK;
    if (vectors == 0)
        return EXO_OK;
    exo_cuda_launch_each(load_each, exo_cuda_blocks(vectors * k->length, block), block, stream, *k);
    for (unsigned v = 0; v < vectors; v++)
        exo_cuda_launch(eliminate, vectors - v, block, 0, stream, *k, v);
    for (unsigned v = vectors - 1; v-- > 0;)
        exo_cuda_launch(accumulate, vectors - 1 - v, block, 0, stream, *k, v);
    exo_cuda_launch(finish, vectors, block, 0, stream, *k);
    return exo_cuda_launched("orthonormalize", err);
}
