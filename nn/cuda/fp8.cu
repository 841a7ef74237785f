/* Matrices as fp8 (nn/device/layer_args.h). The first grid leaves the largest magnitude of each of its
 * blocks. The blocks of the second one, which have a tile each, find the scale from these, so the host
 * waits for nothing; the first block writes it for the product. A tile is turned in shared memory.
 * State: partials of the device, which its stream guards. Read next: fp8.h, linear.cu. */
#include "nn/cuda/fp8.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/map.h"

enum {
    TILE = 64,             /* rows and columns of a block */
    PITCH = TILE + 4,      /* of a tile in shared memory, against conflicts of banks */
    FOURS = TILE / 4,      /* of a row of a tile */
    PARTS = EXO_CUDA_BLOCK /* blocks of the first grid, at most: a thread takes each one's number */
};

/* The largest of the block's numbers, in each thread. room: shared, 32 elements. */
__device__ static uint32_t
largest_of(uint32_t own, uint32_t *room)
{
    for (int step = EXO_CUDA_WARP / 2; step > 0; step /= 2) {
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, own, step);
        own = other > own ? other : own;
    }
    if (threadIdx.x % EXO_CUDA_WARP == 0)
        room[threadIdx.x / EXO_CUDA_WARP] = own;
    __syncthreads();
    uint32_t most = 0;
    for (unsigned w = 0; w < EXO_CUDA_BLOCK / EXO_CUDA_WARP; w++)
        most = room[w] > most ? room[w] : most;
    return most;
}

/* Magnitudes are compared as bits, where NaN is above all numbers. */
template <typename T>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK)
    find_largest(const T *x, size_t count, bool fours, uint32_t *parts)
{
    __shared__ uint32_t room[EXO_CUDA_WARP];
    uint32_t most = 0;
    for (EXO_CUDA_EACH(group, count / 4)) {
        float four[4];
        if (fours)
            exo_cuda_get_four(x, group * 4, four);
        for (size_t j = 0; j < 4; j++) {
            const float value = fours ? four[j] : exo_cuda_get(x, group * 4 + j);
            const uint32_t size = exo_cuda_bits(value) & 0x7FFFFFFFu;
            most = size > most ? size : most;
        }
    }
    most = largest_of(most, room);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = most;
}

/* The scale, in each thread of each block. */
template <exo_fp8 FORMAT>
__device__ static float
find_scale(const exo_to_fp8_args &k, const uint32_t *parts, unsigned num_parts)
{
    __shared__ uint32_t room[EXO_CUDA_WARP];
    if (k.scaled)
        return *k.scale;
    const uint32_t most = largest_of(threadIdx.x < num_parts ? parts[threadIdx.x] : 0, room);
    const float scale = exo_cuda_fp8_scale<FORMAT>(most);
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0)
        *k.scale = scale;
    return scale;
}

/* Columns lie side by side: y (rows, columns), four codes a word. */
__device__ static void
put_four(uint8_t *y, size_t at, uint32_t four)
{
    *reinterpret_cast<uint32_t *>(y + at) = four;
}

template <typename T, exo_fp8 FORMAT>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK)
    write_codes(exo_to_fp8_args k, bool fours, const uint32_t *parts, unsigned num_parts)
{
    __shared__ __align__(4) uint8_t tile[TILE * PITCH];
    const float inverse =
        1 / find_scale<FORMAT>(k, parts, num_parts); /* of a power of two: exact */
    const size_t row = static_cast<size_t>(blockIdx.x) * TILE,
                 column = static_cast<size_t>(blockIdx.y) * TILE;
    const unsigned own = threadIdx.x / FOURS, first = threadIdx.x % FOURS * 4;
    const T *x = static_cast<const T *>(k.x);
    for (unsigned r = own; r < TILE; r += EXO_CUDA_BLOCK / FOURS) {
        const size_t at = (row + r) * k.columns + column + first;
        uint32_t codes = 0;
        float four[4];
        if (row + r >= k.rows || column + first >= k.columns)
            continue;
        if (fours)
            exo_cuda_get_four(x, at, four);
        for (unsigned j = 0; j < 4; j++) {
            const float value = fours ? four[j] : exo_cuda_get(x, at + j);
            /* a GPU's product of a NaN has lost the sign */
            const float scaled = value != value ? value : value * inverse;
            codes |= static_cast<uint32_t>(exo_cuda_fp8_code<FORMAT>(scaled)) << 8 * j;
        }
        if (k.codes)
            put_four(k.codes, at, codes);
        put_four(tile, r * PITCH + first, codes);
    }
    __syncthreads();
    for (unsigned c = own; c < TILE && k.transposed; c += EXO_CUDA_BLOCK / FOURS) {
        uint32_t codes = 0;
        if (column + c >= k.columns || row + first >= k.rows)
            continue;
        for (unsigned j = 0; j < 4; j++)
            codes |= static_cast<uint32_t>(tile[(first + j) * PITCH + c]) << 8 * j;
        put_four(k.transposed, (column + c) * k.rows + row + first, codes);
    }
}

template <typename T, exo_fp8 FORMAT>
static void
start(exo_cuda_device *cuda, const exo_to_fp8_args *k)
{
    const T *x = static_cast<const T *>(k->x);
    const size_t count = k->rows * k->columns, each = static_cast<size_t>(EXO_CUDA_BLOCK) * 16;
    const size_t most = PARTS, parts = count / each + 1 < most ? count / each + 1 : most;
    const bool fours = exo_cuda_has_fours(x), writes = k->codes || k->transposed;
    uint32_t *const partials = reinterpret_cast<uint32_t *>(cuda->partials);
    const dim3 grid(static_cast<unsigned>(writes ? (k->rows + TILE - 1) / TILE : 1),
                    static_cast<unsigned>(writes ? (k->columns + TILE - 1) / TILE : 1));
    if (!k->scaled)
        exo_cuda_launch(find_largest<T>, static_cast<unsigned>(parts), EXO_CUDA_BLOCK, 0,
                        cuda->stream, x, count, fours, partials);
    exo_cuda_launch((write_codes<T, FORMAT>), grid, EXO_CUDA_BLOCK, 0, cuda->stream, *k, fours,
                    partials, static_cast<unsigned>(parts));
}

template <typename T>
static void
start_format(exo_cuda_device *cuda, const exo_to_fp8_args *k)
{
    if (k->format == EXO_E5M2)
        start<T, EXO_E5M2>(cuda, k);
    else
        start<T, EXO_E4M3>(cuda, k);
}

exo_status
exo_cuda_to_fp8(exo_device *device, const exo_to_fp8_args *k, exo_err *err)
{
    if (k->rows * k->columns == 0)
        return EXO_OK;
    EXO_CUDA_BY_TYPE(k->dtype, start_format, exo_cuda_of(device), k);
    return exo_cuda_launched("to_fp8", err);
}
