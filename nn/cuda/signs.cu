/* Signs as bits (nn/device/compress_args.h). State: the device's room for one sum, which its stream
 * guards. Read next: sums.cu. */
#include "nn/cuda/each.h"

/* Bytes of bits, and then scales, one of each chunk. */
__global__ static void
pack_each(exo_sign_pack_args k, const double *squares)
{
    const size_t bytes = k.chunk / 8;
    for (EXO_CUDA_EACH(b, k.chunks * bytes)) {
        unsigned byte = 0;
        for (size_t bit = 0; bit < 8; bit++)
            byte |= (b * 8 + bit < k.count && !(k.x[b * 8 + bit] < 0) ? 1u : 0u) << bit;
        k.bits[b / bytes * k.step + b % bytes] = static_cast<uint8_t>(byte);
    }
    for (EXO_CUDA_EACH(c, k.chunks))
        k.scale[c * k.step / sizeof *k.scale] =
            k.count ? static_cast<float>(sqrt(*squares / static_cast<double>(k.count))) : 0;
}

exo_status
exo_cuda_sign_pack(exo_device *device, const exo_sign_pack_args *k, exo_err *err)
{
    exo_sum_squares_args squares = {};
    squares.count = k->count;
    squares.x = k->x;
    squares.out = device->scalar;
    if (k->chunks == 0)
        return EXO_OK;
    const exo_status st = exo_cuda_sum_squares(device, &squares, err);
    if (st != EXO_OK)
        return st;
    exo_cuda_launch_each(pack_each, exo_cuda_blocks(k->chunks * k->chunk / 8, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k, device->scalar);
    return exo_cuda_launched("sign_pack", err);
}

__device__ static inline void
sign_mean_at(const exo_sign_mean_args &k, size_t i)
{
    const size_t chunk = i / k.chunk * k.chunk_step, bit = i % k.chunk;
    float sum = 0;
    for (size_t s = 0; s < k.senders; s++) {
        const size_t at = s * k.sender_step + chunk;
        const float scale = k.scale[at / sizeof scale];
        sum += k.bits[at + bit / 8] >> bit % 8 & 1 ? scale : -scale;
    }
    k.y[i] = sum / static_cast<float>(k.senders);
}

EXO_CUDA_EACH_KERNEL(sign_mean, sign_mean_at(k, i))
