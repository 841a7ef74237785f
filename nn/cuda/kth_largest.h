/* The k-th largest of many numbers, by the threads of a block: its bits are found byte by byte, by
 * counting. No state. Read next: top_k.cu; choose.cu, which does so
 * with several blocks. */
#ifndef EXO_CUDA_KTH_LARGEST_H
#define EXO_CUDA_KTH_LARGEST_H

#include "nn/cuda/grid.h"

enum {
    EXO_CUDA_DIGITS = 256,                                      /* of a byte */
    EXO_CUDA_DIGIT_ROOM = EXO_CUDA_DIGITS + EXO_CUDA_DIGITS / 8 /* see exo_cuda_digit_place */
};

/* Where the count of a digit is: lanes that have eight digits each, side by side, read of different banks. */
__device__ static inline unsigned
exo_cuda_digit_place(unsigned digit)
{
    return digit + digit / 8;
}

/* A digit or a key, and how many of the elements with it belong to the k largest. */
typedef struct exo_cuda_threshold {
    uint32_t value, equal;
} exo_cuda_threshold;

/* For the first warp: the digit of the wanted-th largest element, from the number of elements of
 * each digit. Each lane has eight digits, the first lane the largest. */
__device__ static inline void
exo_cuda_find_digit(const unsigned *counts, uint32_t wanted, exo_cuda_threshold *out)
{
    const unsigned each = EXO_CUDA_DIGITS / EXO_CUDA_WARP, lane = threadIdx.x;
    unsigned own = 0, above = 0, top = EXO_CUDA_DIGITS - 1 - lane * each;
    for (unsigned d = 0; d < each; d++)
        own += counts[exo_cuda_digit_place(top - d)];
    unsigned upto = own;
    for (unsigned step = 1; step < EXO_CUDA_WARP; step *= 2) {
        const unsigned other = __shfl_up_sync(0xFFFFFFFFu, upto, step);
        upto += lane >= step ? other : 0;
    }
    above = upto - own;
    if (above >= wanted || upto < wanted)
        return;
    while (above + counts[exo_cuda_digit_place(top)] < wanted)
        above += counts[exo_cuda_digit_place(top--)];
    out->value = top;
    out->equal = wanted - above;
}

/* The k-th largest of key(0) to key(n - 1), which are uint32_t. All threads of the block call it.
 * counts: shared, EXO_CUDA_DIGIT_ROOM; digit: shared. */
template <typename Key>
__device__ static inline exo_cuda_threshold
exo_cuda_find_threshold(const Key &key, size_t n, size_t k, unsigned *counts,
                        exo_cuda_threshold *digit)
{
    exo_cuda_threshold t = {0, static_cast<uint32_t>(k)};
    uint32_t known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads(); /* counts and digit are free */
        for (unsigned d = threadIdx.x; d < EXO_CUDA_DIGITS; d += blockDim.x)
            counts[exo_cuda_digit_place(d)] = 0;
        __syncthreads();
        for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
            const uint32_t own = key(i);
            if ((own & known) == t.value)
                atomicAdd(&counts[exo_cuda_digit_place(own >> shift & 255)], 1u);
        }
        __syncthreads();
        if (threadIdx.x < EXO_CUDA_WARP)
            exo_cuda_find_digit(counts, t.equal, digit);
        __syncthreads();
        t.value |= digit->value << shift;
        t.equal = digit->equal;
        known |= 255u << shift;
    }
    return t;
}

#endif
