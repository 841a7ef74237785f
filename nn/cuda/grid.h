/* What the kernels of this folder are written with: how they are started, and small functions of a
 * thread or of a block.
 *
 * nvcc compiles the folder for a GPU. The tests compile the same files for the host, with the
 * cuda_runtime.h of tests/cuda before NVIDIA's: there the blocks of a grid are a loop, and the
 * threads of a block are fibers that change at barriers. So a kernel uses only what both know:
 * threadIdx, blockIdx, blockDim and gridDim, __shared__, __syncthreads, the shuffles of a warp, and
 * functions of math.h.
 *
 * Numbers: nothing is contracted (-fmad=false); a kernel that wants a fused product writes fmaf.
 *
 * No state. Read next: elements.cu, device.h. */
#ifndef EXO_CUDA_GRID_H
#define EXO_CUDA_GRID_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

enum {
    EXO_CUDA_WARP = 32,
    EXO_CUDA_BLOCK = 256 /* threads of a block, where a kernel does not say otherwise */
};

#ifdef __CUDACC__
/* Starts a kernel. Its threads may use barriers, shuffles, and `shared` bytes of EXO_CUDA_SHARED. */
#define exo_cuda_launch(kernel, grid, block, shared, stream, ...)                                  \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
/* Starts a kernel whose threads do nothing together, which the tests run as one loop. */
#define exo_cuda_launch_each(kernel, grid, block, stream, ...)                                     \
    kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
/* Declares `name`, a pointer to the launch's shared bytes. */
#define EXO_CUDA_SHARED(type, name)                                                                \
    extern __shared__ __align__(16) unsigned char exo_cuda_shared_bytes[];                         \
    type *const name = reinterpret_cast<type *>(exo_cuda_shared_bytes)
#else
#define exo_cuda_launch(kernel, grid, block, shared, stream, ...)                                  \
    emulated_launch(#kernel, kernel, (grid), (block), (shared), (stream), false, __VA_ARGS__)
#define exo_cuda_launch_each(kernel, grid, block, stream, ...)                                     \
    emulated_launch(#kernel, kernel, (grid), (block), 0, (stream), true, __VA_ARGS__)
#define EXO_CUDA_SHARED(type, name) type *const name = reinterpret_cast<type *>(emulated_shared())
#endif

/* Before a loop with constant bounds: it is unrolled, so that its arrays are registers. */
#ifdef __CUDACC__
#define EXO_CUDA_UNROLL _Pragma("unroll")
#else
#define EXO_CUDA_UNROLL
#endif
/* Before a loop that reads memory: its reads of so many rounds are under way together. What is left of
 * the rounds is read one by one. */
#ifdef __CUDACC__
#define EXO_CUDA_PRAGMA(text)       _Pragma(#text)
#define EXO_CUDA_READ_AHEAD(rounds) EXO_CUDA_PRAGMA(unroll rounds)
#else
#define EXO_CUDA_READ_AHEAD(rounds)
#endif

/* Lets a kernel's blocks have `bytes` of EXO_CUDA_SHARED: above 48 KiB, a launch needs it. */
template <typename Kernel>
static inline cudaError_t
exo_cuda_allow_shared(Kernel *kernel, size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
}

/* --- Grids ------------------------------------------------------------------------------------ */

/* The number of blocks for `count` threads or, beyond what a grid should have, fewer: kernels go on
 * in steps of the grid. */
static inline unsigned
exo_cuda_blocks(size_t count, unsigned block)
{
    const size_t most = 65535, blocks = (count + block - 1) / block;
    return static_cast<unsigned>(blocks == 0 ? 1 : blocks < most ? blocks : most);
}

/* for (EXO_CUDA_EACH(i, count)): the elements of this thread in a grid of one dimension. */
#define EXO_CUDA_EACH(i, count)                                                                    \
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;                         \
    i < (count);                                                                                   \
    i += static_cast<size_t>(gridDim.x) * blockDim.x

/* The rounds of a loop over i = first, first + step and so on below end. */
__device__ static inline size_t
exo_cuda_rounds(size_t first, size_t end, size_t step)
{
    return first < end ? (end - first - 1) / step + 1 : 0;
}

/* for (EXO_CUDA_ROUNDS(i, first, end, step)): the same loop with its rounds counted before, behind
 * EXO_CUDA_READ_AHEAD. For a sum that could wrap around, a compiler reads one round at a time. */
#define EXO_CUDA_ROUNDS(i, first, end, step)                                                       \
    size_t i = (first), i##_rounds = exo_cuda_rounds(i, end, step);                                \
    i##_rounds > 0;                                                                                \
    i##_rounds--, i += (step)

/* --- Types ------------------------------------------------------------------------------------ */

/* bf16 as base/bf16.h has it: rounds to nearest, ties to even; NaN stays NaN. */
typedef struct exo_cuda_bf16 {
    uint16_t bits;
} exo_cuda_bf16;

__device__ static inline float
exo_cuda_float(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } u;
    u.bits = bits;
    return u.value;
}

__device__ static inline uint32_t
exo_cuda_bits(float value)
{
    union {
        uint32_t bits;
        float value;
    } u;
    u.value = value;
    return u.bits;
}

__device__ static inline float
exo_cuda_get(const float *x, size_t i)
{
    return x[i];
}

__device__ static inline float
exo_cuda_get(const exo_cuda_bf16 *x, size_t i)
{
    return exo_cuda_float(static_cast<uint32_t>(x[i].bits) << 16);
}

__device__ static inline void
exo_cuda_set(float *y, size_t i, float value)
{
    y[i] = value;
}

__device__ static inline void
exo_cuda_set(exo_cuda_bf16 *y, size_t i, float value)
{
    const uint32_t bits = exo_cuda_bits(value);
    const uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u), nan = bits | 0x00400000u;
    y[i].bits = static_cast<uint16_t>((value != value ? nan : rounded) >> 16);
}

/* Element i of an array of T behind an untyped address. */
template <typename T>
__device__ static inline float
exo_cuda_load(const void *x, size_t i)
{
    return exo_cuda_get(static_cast<const T *>(x), i);
}

/* y[i] (+)= value, as T. */
template <typename T>
__device__ static inline void
exo_cuda_store(void *y, size_t i, float value, bool add)
{
    exo_cuda_set(static_cast<T *>(y), i, add ? exo_cuda_load<T>(y, i) + value : value);
}

/* Calls the function template `name` with the type of `dtype` (EXO_F32 or EXO_BF16):
 *
 *     return EXO_CUDA_BY_TYPE(k->dtype, relu, device, k); */
#define EXO_CUDA_BY_TYPE(dtype, name, ...)                                                         \
    ((dtype) == EXO_BF16 ? name<exo_cuda_bf16>(__VA_ARGS__) : name<float>(__VA_ARGS__))

/* --- Sums of a block -------------------------------------------------------------------------- */

/* The sum of `value` over the threads of a block of up to 1024, a multiple of a warp, in an order
 * that depends on the block's size alone. Every thread gets it. room: shared, 32 elements. The
 * function has barriers: all threads call it. */
template <typename T>
__device__ static inline T
exo_cuda_block_sum(T value, T *room)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    for (unsigned step = EXO_CUDA_WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(step));
    __syncthreads(); /* room may still be read from the call before */
    if (lane == 0)
        room[warp] = value;
    __syncthreads();
    T sum = 0;
    for (unsigned w = 0; w < (blockDim.x + EXO_CUDA_WARP - 1) / EXO_CUDA_WARP; w++)
        sum += room[w];
    return sum;
}

/* Whether a thread of a block has set its flag. As above. */
__device__ static inline bool
exo_cuda_block_any(bool flag, unsigned *room)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    const unsigned set = __ballot_sync(0xFFFFFFFFu, flag);
    __syncthreads(); /* room may still be read from the call before */
    if (lane == 0)
        room[warp] = set;
    __syncthreads();
    return __ballot_sync(0xFFFFFFFFu, lane < blockDim.x / EXO_CUDA_WARP && room[lane] != 0) != 0;
}

/* How many threads of a block before this one have set their flag; *all: how many have it set. As
 * above. */
__device__ static inline unsigned
exo_cuda_block_rank(bool flag, unsigned *room, unsigned *all)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    const unsigned set = __ballot_sync(0xFFFFFFFFu, flag);
    unsigned before = static_cast<unsigned>(__popc(set & ((1u << lane) - 1)));
    __syncthreads(); /* room may still be read from the call before */
    if (lane == 0)
        room[warp] = static_cast<unsigned>(__popc(set));
    __syncthreads();
    *all = 0;
    for (unsigned w = 0; w < blockDim.x / EXO_CUDA_WARP; w++) {
        before += w < warp ? room[w] : 0;
        *all += room[w];
    }
    return before;
}

/* The largest `value` over the threads of a block; NaN if there is one. As above. */
__device__ static inline float
exo_cuda_block_max(float value, float *room)
{
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP;
    for (unsigned step = EXO_CUDA_WARP / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, value, static_cast<int>(step));
        value = other > value || other != other ? other : value;
    }
    __syncthreads();
    if (lane == 0)
        room[warp] = value;
    __syncthreads();
    float most = room[0];
    for (unsigned w = 1; w < (blockDim.x + EXO_CUDA_WARP - 1) / EXO_CUDA_WARP; w++)
        most = room[w] > most || room[w] != room[w] ? room[w] : most;
    return most;
}

#endif
