/* Channels, pools and transpositions: images are channels-last (nn/device/op_args.h). No state. */
#include "nn/cuda/each.h"
#include "nn/cuda/map.h"

/* A thread has N channels of a pixel, 4 or 1, so that it divides by the sides of an image once for all
 * of them. */
#define START(NAME, CHANNELS, FOURS, COUNT)                                                        \
    template <typename T>                                                                          \
    static void NAME##_start(cudaStream_t stream, const exo_##NAME##_args &k, size_t count)        \
    {                                                                                              \
        if ((CHANNELS) % 4 == 0 && (FOURS))                                                        \
            exo_cuda_launch_each((NAME##_each<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),  \
                                 EXO_CUDA_BLOCK, stream, k, count / 4);                            \
        else                                                                                       \
            exo_cuda_launch_each((NAME##_each<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),      \
                                 EXO_CUDA_BLOCK, stream, k, count);                                \
    }                                                                                              \
    EXO_CUDA_EACH_TYPED_START(NAME, COUNT)

template <typename T, int N>
__global__ static void
channel_scale_each(exo_channel_scale_args k, size_t groups)
{
    for (EXO_CUDA_EACH(group, groups)) {
        const size_t i = group * N, row = i / k.channels, c = i - row * k.channels;
        const float *const factor = k.factor + row / k.rows * k.channels + c;
        float x[N], y[N] = {};
        exo_cuda_read<N>(static_cast<const T *>(k.x), i, x);
        if (k.add)
            exo_cuda_read<N>(static_cast<const T *>(k.y), i, y);
        for (int j = 0; j < N; j++)
            y[j] = k.add ? y[j] + x[j] * factor[j] : x[j] * factor[j];
        exo_cuda_write<N>(static_cast<T *>(k.y), i, y);
    }
}

START(channel_scale, k.channels,
      exo_cuda_has_fours(exo_cuda_from<T>(k.x)) && exo_cuda_has_fours(exo_cuda_from<T>(k.y)),
      (k.samples * k.rows * k.channels))

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

/* The places of the largest elements in the windows of N outputs. */
template <int N> struct alignas(N) winners {
    uint8_t at[N];
};

template <typename T, int N>
__global__ static void
max_pool_each(exo_max_pool_args k, size_t groups)
{
    for (EXO_CUDA_EACH(group, groups)) {
        const size_t i = group * N;
        const pooled p = parts_of(i, k.height / k.size, k.width / k.size, k.channels);
        const size_t corner = (p.sample * k.height + p.row * k.size) * k.width + p.column * k.size;
        float best[N], value[N];
        winners<N> winner = {};
        for (int j = 0; j < N; j++)
            best[j] = -INFINITY;
        for (unsigned r = 0; r < k.size; r++)
            for (unsigned c = 0; c < k.size; c++) {
                const size_t pixel = corner + r * k.width + c;
                exo_cuda_read<N>(static_cast<const T *>(k.x), pixel * k.channels + p.channel,
                                 value);
                for (int j = 0; j < N; j++)
                    if (value[j] > best[j]) {
                        best[j] = value[j];
                        winner.at[j] = static_cast<uint8_t>(r * static_cast<unsigned>(k.size) + c);
                    }
            }
        *reinterpret_cast<winners<N> *>(k.winner + i) = winner;
        exo_cuda_write<N>(static_cast<T *>(k.y), i, best);
    }
}

START(max_pool, k.channels,
      exo_cuda_has_fours(exo_cuda_from<T>(k.x)) && exo_cuda_has_fours(exo_cuda_from<T>(k.y)) &&
          exo_cuda_has_fours(k.winner),
      (k.samples * (k.height / k.size) * (k.width / k.size) * k.channels))

/* Windows do not overlap, so each element of dx has at most one dy. */
template <typename T, int N>
__global__ static void
max_pool_backward_each(exo_max_pool_backward_args k, size_t groups)
{
    const size_t height = k.height / k.size, width = k.width / k.size;
    for (EXO_CUDA_EACH(group, groups)) {
        const size_t i = group * N;
        const pooled p = parts_of(i, k.height, k.width, k.channels);
        const size_t row = p.row / k.size, column = p.column / k.size;
        const size_t out = ((p.sample * height + row) * width + column) * k.channels + p.channel;
        const size_t place = (p.row - row * k.size) * k.size + (p.column - column * k.size);
        const bool pools = row < height && column < width;
        float dx[N] = {}, dy[N];
        if (!pools && k.add)
            continue;
        if (k.add)
            exo_cuda_read<N>(static_cast<const T *>(k.dx), i, dx);
        if (pools) {
            const winners<N> winner = *reinterpret_cast<const winners<N> *>(k.winner + out);
            exo_cuda_read<N>(static_cast<const T *>(k.dy), out, dy);
            for (int j = 0; j < N; j++)
                dx[j] = winner.at[j] == place ? dx[j] + dy[j] : dx[j];
        }
        exo_cuda_write<N>(static_cast<T *>(k.dx), i, dx);
    }
}

START(max_pool_backward, k.channels,
      exo_cuda_has_fours(exo_cuda_from<T>(k.dx)) && exo_cuda_has_fours(exo_cuda_from<T>(k.dy)) &&
          exo_cuda_has_fours(k.winner),
      (k.samples * k.height * k.width * k.channels))

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
