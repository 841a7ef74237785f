/* Signs as bits (nn/device/compress_args.h). State: the device's room for one sum, which its stream
 * guards. Read next: sums.cu. */
#include "nn/cuda/each.h"

/* Bytes of bits, and then scales, one of each chunk. A thread has a byte, and its warp reads the numbers
 * of 32 bytes side by side: those of four bytes in each round. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) pack(exo_sign_pack_args k, const double *squares)
{
    const size_t bytes = k.chunk / 8, all = k.chunks * bytes;
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP;
    for (EXO_CUDA_EACH(b, (all + EXO_CUDA_WARP - 1) / EXO_CUDA_WARP * EXO_CUDA_WARP)) {
        unsigned byte = 0;
        EXO_CUDA_UNROLL
        for (unsigned round = 0; round < 8; round++) {
            const size_t i = (b - lane) * 8 + round * EXO_CUDA_WARP + lane;
            const unsigned signs = __ballot_sync(0xFFFFFFFFu, i < k.count && !(k.x[i] < 0));
            byte = lane / 4 == round ? signs >> lane % 4 * 8 & 0xFFu : byte;
        }
        if (b < all)
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
    exo_cuda_launch(pack, exo_cuda_blocks(k->chunks * k->chunk / 8, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                    0, exo_cuda_of(device)->stream, *k, device->scalar);
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
