/* The second grid of a sum of all elements: one block adds up what the blocks of the first one have
 * left in the device's partials. No state. Read next: sums.cu, softmax.cu. */
#ifndef EXO_CUDA_PARTIALS_H
#define EXO_CUDA_PARTIALS_H

#include "nn/cuda/grid.h"

/* out (+)= the sum of the partials of `count` blocks. For one block. */
template <typename Out>
__global__ static void
exo_cuda_add_partials(size_t count, const double *partials, Out *out, bool add)
{
    __shared__ double room[EXO_CUDA_WARP];
    double own = 0;
    EXO_CUDA_READ_AHEAD(8)
    for (EXO_CUDA_ROUNDS(i, threadIdx.x, count, blockDim.x))
        own += partials[i];
    own = exo_cuda_block_sum(own, room);
    if (threadIdx.x == 0)
        *out = add ? *out + static_cast<Out>(own) : static_cast<Out>(own);
}

#endif
