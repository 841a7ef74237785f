/* Exact conversion of IEEE 754 binary16 to fp32. The codecs have the other direction
 * (codec/kernels.h). */
#ifndef EXO_BASE_FP16_H
#define EXO_BASE_FP16_H

#include <stdint.h>
#include <string.h>

static inline float
exo_from_fp16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = x >> 10 & 0x1Fu,
             fraction = x & 0x3FFu, bits;
    float out;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, which fp32 holds exactly */
        out = (float)fraction * 0x1p-24f;
        memcpy(&bits, &out, sizeof bits);
        bits |= sign;
    } else {
        bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | fraction << 13;
    }
    memcpy(&out, &bits, sizeof out);
    return out;
}

#endif
