/* fp8: the numbers of codes, and the codes of numbers, by plain integer arithmetic, which every GPU
 * and the host have. Functions of a thread. No state. Read next: fp8.cu, nn/device/layer_args.h. */
#ifndef EXO_CUDA_FP8_H
#define EXO_CUDA_FP8_H

#include "nn/cuda/device.h"
#include "nn/cuda/grid.h"

/* BEHIND bits of mantissa, and LEAST, the exponent of the smallest normal number. */
template <exo_fp8 FORMAT> struct exo_cuda_fp8_format {
    static constexpr int behind = FORMAT == EXO_E4M3 ? 3 : 2, least = FORMAT == EXO_E4M3 ? -6 : -14;
    static constexpr uint32_t most = FORMAT == EXO_E4M3 ? 0x7E : 0x7B, /* 448; 57,344 */
        infinite = FORMAT == EXO_E4M3 ? 0x7F : 0x7C;                   /* NaN in E4M3 */
};

/* A code, of an array of operands. */
template <exo_fp8 FORMAT> struct exo_cuda_fp8 {
    uint8_t bits;
};
typedef exo_cuda_fp8<EXO_E4M3> exo_cuda_e4m3;
typedef exo_cuda_fp8<EXO_E5M2> exo_cuda_e5m2;

template <exo_fp8 FORMAT>
__device__ static inline uint8_t
exo_cuda_fp8_code(float x)
{
    typedef exo_cuda_fp8_format<FORMAT> format;
    constexpr int dropped = 23 - format::behind; /* bits of fp32 */
    const uint32_t bits = exo_cuda_bits(x), size = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
    uint32_t code;
    if (size >= 0x7F800000u) {
        code = size == 0x7F800000u ? format::infinite : 0x7Fu;
    } else if (size < static_cast<uint32_t>(127 + format::least) << 23) {
        /* in a sum with this number, the last place is that of the smallest codes */
        constexpr uint32_t shift = static_cast<uint32_t>(127 + format::least + dropped) << 23;
        code = exo_cuda_bits(exo_cuda_float(size) + exo_cuda_float(shift)) - shift;
    } else {
        const uint32_t even = size >> dropped & 1u;
        const uint32_t rounded = (size + (1u << (dropped - 1)) - 1 + even) >> dropped;
        code = rounded - (static_cast<uint32_t>(126 + format::least) << format::behind);
        code = code < format::most ? code : format::most;
    }
    return static_cast<uint8_t>(code | sign);
}

template <exo_fp8 FORMAT>
__device__ static inline float
exo_cuda_get(const exo_cuda_fp8<FORMAT> *x, size_t i)
{
    typedef exo_cuda_fp8_format<FORMAT> format;
    constexpr int dropped = 23 - format::behind;
    const uint32_t code = x[i].bits & 0x7Fu, sign = static_cast<uint32_t>(x[i].bits & 0x80u) << 24;
    uint32_t size = (code << dropped) + (static_cast<uint32_t>(126 + format::least) << 23);
    if (code > format::most)
        size = code == 0x7Cu && FORMAT == EXO_E5M2 ? 0x7F800000u : 0x7FC00000u;
    else if (code >> format::behind == 0) /* no power of two is hidden before the point */
        size = exo_cuda_bits(exo_cuda_float(size + (1u << 23)) -
                             exo_cuda_float(static_cast<uint32_t>(127 + format::least) << 23));
    return exo_cuda_float(size | sign);
}

/* The scale of a matrix whose largest magnitude has these bits (exo_to_fp8_args). */
template <exo_fp8 FORMAT>
__device__ static inline float
exo_cuda_fp8_scale(uint32_t most)
{
    constexpr uint32_t largest = FORMAT == EXO_E4M3 ? 8 : 15; /* the exponent of 448 and 57,344 */
    constexpr uint32_t least = 127 + EXO_FP8_LEAST_EXPONENT, half = 0x600000; /* 1.75 */
    if (most == 0 || most >= 0x7F800000u)
        return 1;
    const uint32_t exponent = (most >> 23) + ((most & 0x7FFFFFu) > half ? 1 : 0);
    return exo_cuda_float((exponent > least + largest ? exponent - largest : least) << 23);
}

#endif
