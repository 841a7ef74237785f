/* Sums of columns by a block: a warp reads EXO_CUDA_COLUMNS columns side by side, and the warps share
 * out the rows. Lane w adds up rows w, w + EXO_CUDA_COLUMN_LANES and so on; then the lanes are added
 * up in their order. No state. Read next: linear.cu, row_norm.cu. */
#ifndef EXO_CUDA_COLUMNS_H
#define EXO_CUDA_COLUMNS_H

#include "nn/cuda/grid.h"

enum {
    EXO_CUDA_COLUMNS = 32,
    EXO_CUDA_COLUMN_LANES = 16,
    EXO_CUDA_COLUMN_BLOCK = EXO_CUDA_COLUMNS * EXO_CUDA_COLUMN_LANES
};

/* The column of the calling thread, of a grid whose x counts groups of columns. */
__device__ static inline size_t
exo_cuda_own_column(void)
{
    return static_cast<size_t>(blockIdx.x) * EXO_CUDA_COLUMNS + threadIdx.x % EXO_CUDA_COLUMNS;
}

/* The sum of x (rows, columns) over rows [first, end) of the thread's column, for the threads of the
 * first lane. All threads of the block call it. */
template <typename T>
__device__ static inline double
exo_cuda_column_total(const T *x, size_t columns, size_t first, size_t end)
{
    __shared__ double room[EXO_CUDA_COLUMN_LANES][EXO_CUDA_COLUMNS];
    const unsigned at = threadIdx.x % EXO_CUDA_COLUMNS, lane = threadIdx.x / EXO_CUDA_COLUMNS;
    const size_t c = exo_cuda_own_column();
    double sum = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(r, first + lane, c < columns ? end : 0, EXO_CUDA_COLUMN_LANES))
        sum += static_cast<double>(exo_cuda_get(x, r * columns + c));
    room[lane][at] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned l = 0; l < EXO_CUDA_COLUMN_LANES && lane == 0; l++)
        sum += room[l][at];
    return sum;
}

#endif
