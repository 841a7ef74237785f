/* Products of matrices by a kernel of this folder. A block computes a tile of the result from tiles
 * in shared memory. Each element is summed by fmaf in the order of k, whatever the shape. No state.
 * Read next: matmul.h, matmul_lt.cu. */
#include "nn/cuda/grid.h"
#include "nn/cuda/matmul.h"

enum {
    TILE = 64,        /* rows and columns of a block */
    DEPTH = 16,       /* elements of k in shared memory at a time */
    PITCH = TILE + 4, /* of a tile in shared memory, against conflicts of banks */
    MICRO = 4,        /* rows and columns of a thread */
    ACROSS = TILE / MICRO
};

/* to[kk][i] = element (first + i, k0 + kk) of a matrix of `count` rows, zero outside. along_k: the
 * elements of k lie side by side. */
template <typename T>
__device__ static void
load_tile(float *to, const T *x, size_t ld, bool along_k, size_t first, size_t count, size_t k0,
          size_t k)
{
    for (unsigned e = threadIdx.x; e < TILE * DEPTH; e += EXO_CUDA_BLOCK) {
        const unsigned i = along_k ? e / DEPTH : e % TILE, kk = along_k ? e % DEPTH : e / TILE;
        const size_t row = first + i, column = k0 + kk;
        const bool inside = row < count && column < k;
        to[kk * PITCH + i] =
            inside ? exo_cuda_get(x, along_k ? row * ld + column : column * ld + row) : 0.0f;
    }
}

template <typename Out>
__device__ static void
store(const exo_cuda_product &p, size_t skip, size_t row, size_t column, float sum)
{
    const size_t at = skip + row * p.ldc + column;
    const Out *added = static_cast<const Out *>(p.added ? p.added : p.c);
    float value = p.alpha * sum;
    if (p.beta != 0)
        value = value + p.beta * exo_cuda_get(added, at);
    if (p.bias)
        value = value + p.bias[column];
    exo_cuda_set(static_cast<Out *>(p.c), at, value);
}

template <typename In, typename Out>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) multiply_tile(exo_cuda_product p)
{
    __shared__ float as[DEPTH * PITCH], bs[DEPTH * PITCH];
    const size_t row = static_cast<size_t>(blockIdx.x) * TILE,
                 column = static_cast<size_t>(blockIdx.y) * TILE;
    const In *a = static_cast<const In *>(p.a) + blockIdx.z * p.stride_a,
             *b = static_cast<const In *>(p.b) + blockIdx.z * p.stride_b;
    const unsigned y = threadIdx.x / ACROSS * MICRO, x = threadIdx.x % ACROSS * MICRO;
    const bool idle = row + y >= p.m || column + x >= p.n;
    float sum[MICRO][MICRO] = {};
    for (size_t k0 = 0; k0 < p.k; k0 += DEPTH) {
        load_tile(as, a, p.lda, !p.transpose_a, row, p.m, k0, p.k);
        load_tile(bs, b, p.ldb, p.transpose_b, column, p.n, k0, p.k);
        __syncthreads();
        const size_t depth = p.k - k0 < DEPTH ? p.k - k0 : static_cast<size_t>(DEPTH);
        for (size_t kk = 0; kk < depth && !idle; kk++)
            for (unsigned r = 0; r < MICRO; r++)
                for (unsigned c = 0; c < MICRO; c++)
                    sum[r][c] = fmaf(as[kk * PITCH + y + r], bs[kk * PITCH + x + c], sum[r][c]);
        __syncthreads();
    }
    for (unsigned r = 0; r < MICRO; r++) /* constant bounds keep the sums in registers */
        for (unsigned c = 0; c < MICRO; c++)
            if (row + y + r < p.m && column + x + c < p.n)
                store<Out>(p, blockIdx.z * p.stride_c, row + y + r, column + x + c, sum[r][c]);
}

template <typename In>
static void
launch(exo_cuda_device *cuda, const exo_cuda_product *p)
{
    const dim3 grid(static_cast<unsigned>((p->m + TILE - 1) / TILE),
                    static_cast<unsigned>((p->n + TILE - 1) / TILE),
                    static_cast<unsigned>(p->batch));
    if (p->out_dtype == EXO_BF16)
        exo_cuda_launch((multiply_tile<In, exo_cuda_bf16>), grid, EXO_CUDA_BLOCK, 0, cuda->stream,
                        *p);
    else
        exo_cuda_launch((multiply_tile<In, float>), grid, EXO_CUDA_BLOCK, 0, cuda->stream, *p);
}

exo_status
exo_cuda_multiply_invariant(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    if (p->m == 0 || p->n == 0)
        return EXO_OK;
    if (p->dtype == EXO_BF16)
        launch<exo_cuda_bf16>(cuda, p);
    else
        launch<float>(cuda, p);
    return exo_cuda_launched("a product of matrices", err);
}
