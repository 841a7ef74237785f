/* Layer norm and RMS norm: a row is a block.
 *
 * Backward: with x^ = (x - mean) inverse and g = dy weight,
 *
 *     dx = inverse (g - mean(g) - x^ mean(g x^)), dweight = sum dy x^, dbias = sum dy;
 *
 * mean(g) only if centered. A block of backward has several rows, and adds up its share of dweight
 * and dbias; a second grid adds up the blocks in their order. No state. Read next: row_norm.h. */
#include "nn/cuda/row_norm.h"

#include "nn/cuda/columns.h"

enum {
    PARTS = 1024,           /* blocks of backward, at most */
    SHARED_WIDTH = 4 * 1024 /* rows whose sums fit into shared memory */
};

template <typename T>
__global__ static void
row_norm_rows(exo_row_norm_args k)
{
    const size_t width = k.shape.width;
    for (size_t r = blockIdx.x; r < k.shape.rows; r += gridDim.x) {
        const float *x = k.x + r * width;
        const exo_cuda_moments m = exo_cuda_row_moments(x, width, k.centered, k.eps);
        for (size_t i = threadIdx.x; i < width; i += blockDim.x)
            exo_cuda_store<T>(k.y, r * width + i,
                              exo_cuda_centered(m, x[i]) * m.inverse * k.weight[i] +
                                  (k.bias ? k.bias[i] : 0),
                              false);
        if (threadIdx.x == 0 && k.centered)
            k.mean[r] = m.mean;
        if (threadIdx.x == 0)
            k.inverse[r] = m.inverse;
    }
}

template <typename T>
static void
start_forward(cudaStream_t stream, const exo_row_norm_args *k)
{
    exo_cuda_launch((row_norm_rows<T>), exo_cuda_blocks(k->shape.rows, 1),
                    exo_cuda_row_block(k->shape.width), 0, stream, *k);
}

exo_status
exo_cuda_row_norm(exo_device *device, const exo_row_norm_args *k, exo_err *err)
{
    if (k->shape.rows * k->shape.width == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_forward, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("row_norm", err);
}

/* --- Backward --------------------------------------------------------------------------------- */

static size_t
parts_for(size_t rows)
{
    const size_t most = PARTS, parts = rows / 4 + 1;
    return parts < most ? parts : most;
}

size_t
exo_cuda_row_norm_scratch(const exo_row_norm_shape *shape)
{
    return parts_for(shape->rows) * 2 * shape->width * sizeof(float);
}

/* dx of row r. Adds to the block's sums (2, width), which may be NULL; each thread has its own
 * elements of them. */
template <typename T>
__device__ static inline void
row_norm_backward_row(const exo_row_norm_backward_args &k, size_t r, float *sums)
{
    __shared__ float room[2][EXO_CUDA_WARP];
    const size_t width = k.shape.width;
    const float *x = k.x + r * width, by = 1 / static_cast<float>(width);
    const float mean = k.centered ? k.mean[r] : 0, inverse = k.inverse[r];
    float g_sum = 0, gx_sum = 0;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float dy = exo_cuda_load<T>(k.dy, r * width + i), hat = (x[i] - mean) * inverse;
        g_sum += dy * k.weight[i];
        gx_sum += dy * k.weight[i] * hat;
        if (sums) {
            sums[i] += dy * hat;
            sums[width + i] += dy;
        }
    }
    const float g_mean = k.centered ? exo_cuda_block_sum(g_sum, room[0]) * by : 0;
    const float gx_mean = exo_cuda_block_sum(gx_sum, room[1]) * by;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float dy = exo_cuda_load<T>(k.dy, r * width + i), hat = (x[i] - mean) * inverse;
        const float own = (dy * k.weight[i] - g_mean - hat * gx_mean) * inverse;
        const float dx = k.add ? k.dx[r * width + i] + own : own;
        k.dx[r * width + i] = dx;
        if (k.rounded)
            exo_cuda_set(static_cast<exo_cuda_bf16 *>(k.rounded), r * width + i, dx);
    }
}

/* Sums (2, width) of the block are in shared memory if they fit, and end up in scratch, which is
 * NULL if nobody wants them. */
template <typename T>
__global__ static void
row_norm_backward_rows(exo_row_norm_backward_args k, bool fits)
{
    EXO_CUDA_SHARED(float, shared);
    const size_t both = 2 * k.shape.width;
    float *const out = k.scratch ? static_cast<float *>(k.scratch) + blockIdx.x * both
                                 : static_cast<float *>(NULL);
    float *const sums = out && fits ? shared : out;
    const size_t width = k.shape.width;
    for (size_t i = threadIdx.x; i < width && sums; i += blockDim.x)
        sums[i] = sums[width + i] = 0;
    for (size_t r = blockIdx.x; r < k.shape.rows; r += gridDim.x)
        row_norm_backward_row<T>(k, r, sums);
    for (size_t i = threadIdx.x; i < width && sums != out; i += blockDim.x) {
        out[i] = sums[i];
        out[width + i] = sums[width + i];
    }
}

/* A block has a group of columns. */
__global__ static void
__launch_bounds__(EXO_CUDA_COLUMN_BLOCK) add_parts(exo_row_norm_backward_args k, size_t parts)
{
    const size_t width = k.shape.width, i = exo_cuda_own_column();
    const double sum =
        exo_cuda_column_total(static_cast<const float *>(k.scratch), 2 * width, 0, parts);
    float *const to = i < width ? k.dweight : k.dbias;
    if (threadIdx.x < EXO_CUDA_COLUMNS && i < 2 * width && to)
        to[i % width] += static_cast<float>(sum);
}

template <typename T>
static void
start_backward(cudaStream_t stream, const exo_row_norm_backward_args *k)
{
    const size_t rows = k->shape.rows, width = k->shape.width;
    const bool wanted = k->dweight || k->dbias, fits = width <= SHARED_WIDTH;
    const size_t parts = wanted ? parts_for(rows) : exo_cuda_blocks(rows, 1);
    exo_row_norm_backward_args args = *k;
    args.scratch = wanted ? k->scratch : NULL;
    exo_cuda_launch((row_norm_backward_rows<T>), static_cast<unsigned>(parts),
                    exo_cuda_row_block(width), wanted && fits ? 2 * width * sizeof(float) : 0,
                    stream, args, fits);
    const size_t groups = (2 * width + EXO_CUDA_COLUMNS - 1) / EXO_CUDA_COLUMNS;
    if (wanted)
        exo_cuda_launch(add_parts, static_cast<unsigned>(groups), EXO_CUDA_COLUMN_BLOCK, 0, stream,
                        args, parts);
}

exo_status
exo_cuda_row_norm_backward(exo_device *device, const exo_row_norm_backward_args *k, exo_err *err)
{
    if (k->shape.rows * k->shape.width == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_backward, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("row_norm_backward", err);
}
