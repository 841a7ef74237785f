/* int8 of chunks (nn/device/compress_args.h). No state. Read next: nn/cpu/quantize.c. */
#include <float.h>

#include "nn/cuda/each.h"

/* Blocks are chunks. */
__global__ static void
largest_chunks(exo_largest_args k, size_t chunks)
{
    __shared__ float room[EXO_CUDA_WARP];
    for (size_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        const size_t first = c * k.chunk, left = k.count - first;
        const size_t length = left < k.chunk ? left : k.chunk;
        float most = 0;
        for (size_t i = threadIdx.x; i < length; i += blockDim.x) {
            const float x = k.x[first + i], magnitude = x != x ? INFINITY : fabsf(x);
            most = magnitude > most ? magnitude : most;
        }
        most = exo_cuda_block_max(most, room);
        if (threadIdx.x == 0)
            k.y[c] = most;
    }
}

exo_status
exo_cuda_largest(exo_device *device, const exo_largest_args *k, exo_err *err)
{
    const size_t warp = EXO_CUDA_WARP, most = EXO_CUDA_BLOCK, warps = k->chunk / 4 / warp + 1;
    if (k->count == 0)
        return EXO_OK;
    const size_t chunks = (k->count + k->chunk - 1) / k->chunk;
    exo_cuda_launch(largest_chunks, exo_cuda_blocks(chunks, 1),
                    static_cast<unsigned>(warps * warp < most ? warps * warp : most), 0,
                    exo_cuda_of(device)->stream, *k, chunks);
    return exo_cuda_launched("largest", err);
}

/* The scale of element i: the largest of its chunk's column. */
__device__ static inline float
scale_of(const float *scales, size_t rows, size_t count, size_t chunk, size_t i)
{
    const size_t chunks = (count + chunk - 1) / chunk, column = i / chunk;
    float scale = 0;
    for (size_t r = 0; r < rows; r++)
        scale = fmaxf(scale, scales[r * chunks + column]);
    return scale;
}

__device__ static inline void
quantize_at(const exo_quantize_args &k, size_t i)
{
    const float scale = scale_of(k.scales, k.rows, k.count, k.chunk, i);
    const bool counts = scale > 0 && scale <= FLT_MAX;
    k.y[i] = static_cast<int8_t>(counts ? rintf(k.x[i] / scale * 127.0f) : 0.0f);
}

__device__ static inline void
dequantize_at(const exo_dequantize_args &k, size_t i)
{
    int32_t sum = 0;
    for (size_t s = 0; s < k.senders; s++)
        sum += k.x[s * k.count + i];
    k.y[i] = static_cast<float>(sum) * scale_of(k.scales, k.rows, k.count, k.chunk, i) / k.divisor;
}

EXO_CUDA_EACH_KERNEL(quantize, quantize_at(k, i))
EXO_CUDA_EACH_KERNEL(dequantize, dequantize_at(k, i))
