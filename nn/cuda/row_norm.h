/* Layer norm and RMS norm of a row, by a block: for row_norm.cu, and for the rows of a decoder,
 * which have the same bits. No state. */
#ifndef EXO_CUDA_ROW_NORM_H
#define EXO_CUDA_ROW_NORM_H

#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"

/* The threads for a row. The bits of a norm depend on them. */
static inline unsigned
exo_cuda_row_block(size_t width)
{
    const size_t warp = EXO_CUDA_WARP, most = EXO_CUDA_BLOCK, warps = (width / 4 + warp - 1) / warp;
    return static_cast<unsigned>(warps == 0 ? warp : warps * warp < most ? warps * warp : most);
}

typedef struct exo_cuda_moments {
    float mean, rest; /* `rest` is what the mean has beyond fp32; both 0 if not centered */
    float inverse;    /* 1 / deviation */
} exo_cuda_moments;

/* x - mean, without the rounding of the mean. */
__device__ static inline float
exo_cuda_centered(const exo_cuda_moments &m, float x)
{
    return (x - m.mean) - m.rest;
}

/* The moments of x (width), for each thread. All threads of the block call it. */
__device__ static inline exo_cuda_moments
exo_cuda_row_moments(const float *x, size_t width, bool centered, float eps)
{
    __shared__ double sums[EXO_CUDA_WARP];
    __shared__ float squares[EXO_CUDA_WARP];
    exo_cuda_moments m = {0, 0, 0};
    double sum = 0;
    float square = 0;
    if (centered) {
        EXO_CUDA_READ_AHEAD(4)
        for (EXO_CUDA_ROUNDS(i, threadIdx.x, width, blockDim.x))
            sum += static_cast<double>(x[i]);
        const double mean = exo_cuda_block_sum(sum, sums) / static_cast<double>(width);
        m.mean = static_cast<float>(mean);
        m.rest = static_cast<float>(mean - static_cast<double>(m.mean));
    }
    EXO_CUDA_READ_AHEAD(4)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, width, blockDim.x)) {
        const float apart = exo_cuda_centered(m, x[i]);
        square += apart * apart;
    }
    square = exo_cuda_block_sum(square, squares);
    m.inverse = 1 / sqrtf(square / static_cast<float>(width) + eps);
    return m;
}

/* The bytes that row_norm_backward needs. */
size_t exo_cuda_row_norm_scratch(const exo_row_norm_shape *shape);
/* The bytes that batch_norm needs, and its backward. */
size_t exo_cuda_batch_norm_scratch(const exo_batch_norm_shape *shape);

#endif
