/* bfloat16, the upper half of an fp32 number. Conversion rounds to nearest, ties to even; NaN stays
 * NaN. */
#ifndef EXO_BASE_BF16_H
#define EXO_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float
exo_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

static inline uint16_t
exo_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    /* rounding could turn a NaN into infinity */
    uint32_t nan = bits | 0x00400000u;
    return (uint16_t)((x != x ? nan : rounded) >> 16);
}

#endif
