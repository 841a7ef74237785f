/* The numbers of exogym/rng.h on a GPU: Philox4x32-10, with the bits of the host. No state. */
#ifndef EXO_CUDA_PHILOX_H
#define EXO_CUDA_PHILOX_H

#include "nn/cuda/grid.h"

enum {
    EXO_CUDA_DROPOUT_BLOCKS = 1 << 22 /* of an operation in one step (op_args.h) */
};

/* exo_rng_block of the stream (seed, purpose, node, step). */
__device__ static inline void
exo_cuda_draw(uint64_t seed, uint32_t purpose, uint32_t node, uint64_t step, uint32_t index,
              uint32_t out[4])
{
    uint32_t c0 = index, c1 = purpose << 24 | (node & 0xFFFFFFu);
    uint32_t c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
        const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(p1);
        c3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
