/* Channels, pools and transpositions: images are channels-last (nn/device/op_args.h). No state. */
#include "nn/cuda/each.h"

template <typename T>
__device__ static inline void
channel_scale_at(const exo_channel_scale_args &k, size_t i)
{
    const size_t sample = i / k.channels / k.rows, c = i % k.channels;
    exo_cuda_store<T>(k.y, i, exo_cuda_load<T>(k.x, i) * k.factor[sample * k.channels + c], k.add);
}

EXO_CUDA_EACH_TYPED(channel_scale, (k.samples * k.rows * k.channels), channel_scale_at<T>(k, i))

/* --- Pools ------------------------------------------------------------------------------------ */

/* An output of a pool, by its parts. */
struct pooled {
    size_t sample, row, column, channel;
};

/* The parts of element i of images of (height, width, channels). */
__device__ static inline pooled
parts_of(size_t i, size_t height, size_t width, size_t channels)
{
    const size_t pixel = i / channels, line = pixel / width;
    return {line / height, line % height, pixel % width, i % channels};
}

template <typename T>
__device__ static inline void
max_pool_at(const exo_max_pool_args &k, size_t i)
{
    const pooled p = parts_of(i, k.height / k.size, k.width / k.size, k.channels);
    const size_t corner = (p.sample * k.height + p.row * k.size) * k.width + p.column * k.size;
    float best = -INFINITY;
    unsigned winner = 0;
    for (unsigned r = 0; r < k.size; r++)
        for (unsigned c = 0; c < k.size; c++) {
            const size_t pixel = corner + r * k.width + c;
            const float value = exo_cuda_load<T>(k.x, pixel * k.channels + p.channel);
            if (value > best) {
                best = value;
                winner = r * static_cast<unsigned>(k.size) + c;
            }
        }
    k.winner[i] = static_cast<uint8_t>(winner);
    exo_cuda_store<T>(k.y, i, best, false);
}

EXO_CUDA_EACH_TYPED(max_pool, (k.samples * (k.height / k.size) * (k.width / k.size) * k.channels),
                    max_pool_at<T>(k, i))

/* Windows do not overlap, so each element of dx has at most one dy. */
template <typename T>
__device__ static inline void
max_pool_backward_at(const exo_max_pool_backward_args &k, size_t i)
{
    const size_t height = k.height / k.size, width = k.width / k.size;
    const pooled p = parts_of(i, k.height, k.width, k.channels);
    const size_t row = p.row / k.size, column = p.column / k.size;
    const size_t out = ((p.sample * height + row) * width + column) * k.channels + p.channel;
    const size_t place = p.row % k.size * k.size + p.column % k.size;
    if (row < height && column < width && k.winner[out] == place)
        exo_cuda_store<T>(
            k.dx, i, (k.add ? exo_cuda_load<T>(k.dx, i) : 0) + exo_cuda_load<T>(k.dy, out), false);
    else if (!k.add)
        exo_cuda_store<T>(k.dx, i, 0, false);
}

EXO_CUDA_EACH_TYPED(max_pool_backward, (k.samples * k.height * k.width * k.channels),
                    max_pool_backward_at<T>(k, i))

/* --- Columns and transpositions --------------------------------------------------------------- */

__global__ static void
copy_columns_each(exo_copy_columns_args k)
{
    for (EXO_CUDA_EACH(i, k.rows * k.count)) {
        const size_t row = i / k.count, column = i % k.count;
        float *y = k.y + row * k.y_pitch + column;
        const float x = k.x[row * k.x_pitch + column];
        *y = k.add ? *y + x : x;
    }
}

exo_status
exo_cuda_copy_columns(exo_device *device, const exo_copy_columns_args *k, exo_err *err)
{
    const size_t count = k->rows * k->count;
    if (count == 0)
        return EXO_OK;
    exo_cuda_launch_each(copy_columns_each, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("copy_columns", err);
}

enum {
    SIDE = 32, /* of a tile */
    LINES = 8  /* of a tile that a block's threads cover at once */
};

/* A block brings tiles through shared memory, so that its reads and its writes both go along rows.
 * The padding puts a column of the tile into different banks. */
template <typename T>
__global__ static void
transpose_tiles(exo_transpose_args k, size_t across, size_t tiles)
{
    __shared__ float tile[SIDE][SIDE + 1];
    const size_t down = (k.rows + SIDE - 1) / SIDE;
    for (size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        const size_t sample = t / across / down * k.rows * k.columns;
        const size_t top = t / across % down * SIDE, left = t % across * SIDE;
        for (size_t r = threadIdx.y; r < SIDE; r += LINES)
            if (top + r < k.rows && left + threadIdx.x < k.columns)
                tile[r][threadIdx.x] =
                    exo_cuda_load<T>(k.x, sample + (top + r) * k.columns + left + threadIdx.x);
        __syncthreads();
        for (size_t c = threadIdx.y; c < SIDE; c += LINES)
            if (left + c < k.columns && top + threadIdx.x < k.rows)
                exo_cuda_store<T>(k.y, sample + (left + c) * k.rows + top + threadIdx.x,
                                  tile[threadIdx.x][c], k.add);
        __syncthreads();
    }
}

template <typename T>
static void
start_transpose(cudaStream_t stream, const exo_transpose_args *k)
{
    const size_t across = (k->columns + SIDE - 1) / SIDE, down = (k->rows + SIDE - 1) / SIDE;
    const size_t tiles = k->samples * across * down;
    exo_cuda_launch((transpose_tiles<T>), exo_cuda_blocks(tiles, 1), dim3(SIDE, LINES), 0, stream,
                    *k, across, tiles);
}

exo_status
exo_cuda_transpose(exo_device *device, const exo_transpose_args *k, exo_err *err)
{
    if (k->samples * k->rows * k->columns == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_transpose, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("transpose", err);
}
