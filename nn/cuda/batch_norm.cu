/* Batch normalization (Ioffe & Szegedy, 2015) of channels-last values, with ReLU in the same sweep
 * if wanted. nn/cpu/batch_norm.c has the formulas.
 *
 * Sums over the rows are in double: a grid adds up parts of the rows, and a second one the parts in
 * their order. Those of x are taken around the first row's values, so that a large mean costs no
 * digits. No state. Read next: row_norm.h, for the scratch. */
#include "nn/cuda/map.h"
#include "nn/cuda/row_norm.h"

enum {
    PARTS = 128,    /* of the rows, at most */
    PART_ROWS = 32, /* at least */
    LINES = 8       /* rows that a block covers at once, of EXO_CUDA_WARP channels */
};

/* Parts never exceed the samples, because scratch is asked for without the number of rows. */
static size_t
most_parts(size_t samples)
{
    const size_t most = PARTS;
    return samples < most ? samples : most;
}

static size_t
parts_for(size_t samples, size_t rows)
{
    const size_t most = most_parts(samples), parts = (rows + PART_ROWS - 1) / PART_ROWS;
    return parts < most ? parts : most;
}

/* Two sums of each channel, (2, channels), in all and then of each part. */
size_t
exo_cuda_batch_norm_scratch(const exo_batch_norm_shape *shape)
{
    return (most_parts(shape->samples) + 1) * 2 * shape->channels * sizeof(double);
}

/* --- Sums of channels ------------------------------------------------------------------------- */

/* The terms of two sums. */
struct pair {
    double first, second;
};

/* Of the statistics: the distance from the first row, and its square. */
template <typename T> struct statistics {
    const void *x;
    size_t channels;
    __device__ pair operator()(size_t row, size_t c) const
    {
        const double origin = static_cast<double>(exo_cuda_load<T>(x, c));
        const double apart = static_cast<double>(exo_cuda_load<T>(x, row * channels + c)) - origin;
        return {apart, apart * apart};
    }
};

/* dy of channel c, behind the ReLU; and x^ there. */
__device__ static inline float
gradient_at(const exo_batch_norm_backward_args &k, size_t c, float x, float dy, float *hat)
{
    const size_t channels = k.shape.channels;
    *hat = (x - k.kept[c]) * k.kept[3 * channels + c];
    return k.relu && k.kept[channels + c] * x + k.kept[2 * channels + c] <= 0 ? 0 : dy;
}

/* Of backward: dy, and dy x^. */
template <typename T> struct gradients {
    exo_batch_norm_backward_args k;
    __device__ pair operator()(size_t row, size_t c) const
    {
        const size_t i = row * k.shape.channels + c;
        float hat;
        const double dy = static_cast<double>(
            gradient_at(k, c, exo_cuda_load<T>(k.x, i), exo_cuda_load<T>(k.dy, i), &hat));
        return {dy, dy * static_cast<double>(hat)};
    }
};

/* sums (parts, 2, channels). A block has one part (y) of EXO_CUDA_WARP channels (x). */
template <typename Terms>
__global__ static void
sum_parts(Terms terms, size_t rows, size_t channels, size_t part_rows, double *sums)
{
    __shared__ pair lines[LINES][EXO_CUDA_WARP];
    const size_t c = static_cast<size_t>(blockIdx.x) * EXO_CUDA_WARP + threadIdx.x;
    const size_t first = blockIdx.y * part_rows;
    const size_t end = first + part_rows < rows ? first + part_rows : rows;
    pair own = {0, 0};
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(row, first + threadIdx.y, c < channels ? end : 0, LINES)) {
        const pair term = terms(row, c);
        own.first += term.first;
        own.second += term.second;
    }
    lines[threadIdx.y][threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.y > 0 || c >= channels)
        return;
    for (unsigned line = 1; line < LINES; line++) {
        own.first += lines[line][threadIdx.x].first;
        own.second += lines[line][threadIdx.x].second;
    }
    sums[blockIdx.y * 2 * channels + c] = own.first;
    sums[(blockIdx.y * 2 + 1) * channels + c] = own.second;
}

/* Behind the totals in scratch. */
template <typename Terms>
static void
start_sums(cudaStream_t stream, Terms terms, size_t rows, size_t channels, size_t parts,
           void *scratch)
{
    const dim3 grid(static_cast<unsigned>((channels + EXO_CUDA_WARP - 1) / EXO_CUDA_WARP),
                    static_cast<unsigned>(parts));
    exo_cuda_launch((sum_parts<Terms>), grid, dim3(EXO_CUDA_WARP, LINES), 0, stream, terms, rows,
                    channels, (rows + parts - 1) / parts,
                    static_cast<double *>(scratch) + 2 * channels);
}

/* The sums of channel c over the parts. */
__device__ static inline pair
total_of(const void *scratch, size_t channels, size_t parts, size_t c)
{
    const double *sums = static_cast<const double *>(scratch) + 2 * channels;
    pair total = {0, 0};
    EXO_CUDA_READ_AHEAD(8)
    for (size_t p = 0; p < parts; p++) {
        total.first += sums[p * 2 * channels + c];
        total.second += sums[(p * 2 + 1) * channels + c];
    }
    return total;
}

/* --- Forward ---------------------------------------------------------------------------------- */

/* kept: the mean, scale, shift and 1 / deviation of each channel; y = scale x + shift. */
template <typename T>
__global__ static void
keep_each(exo_batch_norm_args k, size_t rows, size_t parts)
{
    const size_t channels = k.shape.channels;
    const double count = static_cast<double>(rows);
    for (EXO_CUDA_EACH(c, channels)) {
        double mean = 0, variance = 0;
        if (k.train) {
            const pair total = total_of(k.scratch, channels, parts, c);
            const double squares = total.second - total.first * total.first / count;
            mean = static_cast<double>(exo_cuda_load<T>(k.x, c)) + total.first / count;
            variance = squares > 0 || squares != squares ? squares / count : 0;
        }
        if (k.train && k.move) {
            const double unbiased = rows > 1 ? variance * (count / (count - 1)) : variance;
            const float stay = 1 - k.momentum;
            k.running_mean[c] = stay * k.running_mean[c] + k.momentum * static_cast<float>(mean);
            k.running_var[c] = stay * k.running_var[c] + k.momentum * static_cast<float>(unbiased);
        }
        mean = k.train ? mean : static_cast<double>(k.running_mean[c]);
        variance = k.train ? variance : static_cast<double>(k.running_var[c]);
        const double inverse = 1 / sqrt(variance + static_cast<double>(k.eps));
        const double scale = static_cast<double>(k.weight[c]) * inverse;
        k.kept[c] = static_cast<float>(mean);
        k.kept[channels + c] = static_cast<float>(scale);
        k.kept[2 * channels + c] =
            static_cast<float>(static_cast<double>(k.bias[c]) - mean * scale);
        k.kept[3 * channels + c] = static_cast<float>(inverse);
    }
}

/* A thread has N channels of a row, 4 or 1. */
template <typename T, int N>
__global__ static void
apply_each(exo_batch_norm_args k, size_t groups)
{
    const size_t channels = k.shape.channels;
    for (EXO_CUDA_EACH(group, groups)) {
        const size_t i = group * N, c = i % channels;
        float x[N];
        exo_cuda_read<N>(static_cast<const T *>(k.x), i, x);
        for (int j = 0; j < N; j++) {
            const size_t at = c + static_cast<size_t>(j);
            const float y = x[j] * k.kept[channels + at] + k.kept[2 * channels + at];
            x[j] = k.relu && y < 0 ? 0 : y;
        }
        exo_cuda_write<N>(static_cast<T *>(k.y), i, x);
    }
}

template <typename T>
static void
start_apply(cudaStream_t stream, const exo_batch_norm_args *k, size_t count)
{
    const bool fours = k->shape.channels % 4 == 0 && exo_cuda_has_fours(exo_cuda_from<T>(k->x)) &&
                       exo_cuda_has_fours(exo_cuda_from<T>(k->y));
    if (fours)
        exo_cuda_launch_each((apply_each<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k, count / 4);
    else
        exo_cuda_launch_each((apply_each<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k, count);
}

template <typename T>
static void
start_forward(cudaStream_t stream, const exo_batch_norm_args *k)
{
    const size_t channels = k->shape.channels, rows = k->shape.samples * k->rows;
    const size_t parts = parts_for(k->shape.samples, rows), block = EXO_CUDA_BLOCK;
    if (k->train)
        start_sums(stream, statistics<T>{k->x, channels}, rows, channels, parts, k->scratch);
    exo_cuda_launch_each((keep_each<T>), exo_cuda_blocks(channels, block), block, stream, *k, rows,
                         parts);
    start_apply<T>(stream, k, rows * channels);
}

exo_status
exo_cuda_batch_norm(exo_device *device, const exo_batch_norm_args *k, exo_err *err)
{
    if (k->shape.samples * k->rows * k->shape.channels == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_forward, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("batch_norm", err);
}

/* --- Backward --------------------------------------------------------------------------------- */

/* The gradients of the parameters; and in scratch (2, channels) the means over the rows, for dx. */
__global__ static void
parameters_each(exo_batch_norm_backward_args k, size_t rows, size_t parts)
{
    const size_t channels = k.shape.channels;
    const double count = static_cast<double>(rows);
    float *const means = static_cast<float *>(k.scratch);
    for (EXO_CUDA_EACH(c, channels)) {
        const pair total = total_of(k.scratch, channels, parts, c);
        means[c] = static_cast<float>(total.first / count);
        means[channels + c] = static_cast<float>(total.second / count);
        if (k.dbias)
            k.dbias[c] = (k.add_bias ? k.dbias[c] : 0) + static_cast<float>(total.first);
        if (k.dweight)
            k.dweight[c] = (k.add_weight ? k.dweight[c] : 0) + static_cast<float>(total.second);
    }
}

/* A thread has N channels of a row, 4 or 1. */
template <typename T, int N>
__global__ static void
inputs_each(exo_batch_norm_backward_args k, size_t groups)
{
    const size_t channels = k.shape.channels;
    const float *const means = static_cast<const float *>(k.scratch);
    for (EXO_CUDA_EACH(group, groups)) {
        const size_t i = group * N, c = i % channels;
        float x[N], dy[N], dx[N] = {};
        exo_cuda_read<N>(static_cast<const T *>(k.x), i, x);
        exo_cuda_read<N>(static_cast<const T *>(k.dy), i, dy);
        if (k.add)
            exo_cuda_read<N>(static_cast<const T *>(k.dx), i, dx);
        for (int j = 0; j < N; j++) {
            const size_t at = c + static_cast<size_t>(j);
            float hat;
            const float own = gradient_at(k, at, x[j], dy[j], &hat);
            const float rest = k.train ? means[at] + hat * means[channels + at] : 0;
            const float value = k.kept[channels + at] * (own - rest);
            dx[j] = k.add ? dx[j] + value : value;
        }
        exo_cuda_write<N>(static_cast<T *>(k.dx), i, dx);
    }
}

template <typename T>
static void
start_inputs(cudaStream_t stream, const exo_batch_norm_backward_args *k, size_t count)
{
    const bool fours = k->shape.channels % 4 == 0 && exo_cuda_has_fours(exo_cuda_from<T>(k->x)) &&
                       exo_cuda_has_fours(exo_cuda_from<T>(k->dy)) &&
                       exo_cuda_has_fours(exo_cuda_from<T>(k->dx));
    if (fours)
        exo_cuda_launch_each((inputs_each<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k, count / 4);
    else
        exo_cuda_launch_each((inputs_each<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, stream, *k, count);
}

template <typename T>
static void
start_backward(cudaStream_t stream, const exo_batch_norm_backward_args *k)
{
    const size_t channels = k->shape.channels, rows = k->shape.samples * k->rows;
    const size_t parts = parts_for(k->shape.samples, rows), block = EXO_CUDA_BLOCK;
    if (k->train || k->dweight || k->dbias) {
        start_sums(stream, gradients<T>{*k}, rows, channels, parts, k->scratch);
        exo_cuda_launch_each(parameters_each, exo_cuda_blocks(channels, block), block, stream, *k,
                             rows, parts);
    }
    if (k->dx)
        start_inputs<T>(stream, k, rows * channels);
}

exo_status
exo_cuda_batch_norm_backward(exo_device *device, const exo_batch_norm_backward_args *k,
                             exo_err *err)
{
    if (k->shape.samples * k->rows * k->shape.channels == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_backward, exo_cuda_of(device)->stream, k);
    return exo_cuda_launched("batch_norm_backward", err);
}
