/* The loops of the value codecs: floats.c for formats without a scale, blocks.c for blocks with a
 * scale. No state.
 *
 * The loops have no branches on values, so gcc and clang vectorize them. They use integers and IEEE
 * operations only, with one rounding each, so the bits are the same with any compiler and
 * processor. Bytes need no alignment. */
#ifndef EXO_CODEC_KERNELS_H
#define EXO_CODEC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t exo_any_u16 __attribute__((aligned(1), may_alias));

static inline uint32_t
exo_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float
exo_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#define EXO_MAGNITUDE 0x7FFFFFFFu /* a float's bits without the sign */
#define EXO_INFINITY  0x7F800000u
#define EXO_QUIET_NAN 0x7FC00000u

/* The largest finite magnitude; 0 if there is none. */
float exo_kernel_largest(const float *x, size_t n);

void exo_kernel_to_fp16(const float *x, uint8_t *out, size_t n);
void exo_kernel_from_fp16(const uint8_t *in, float *x, size_t n);
void exo_kernel_to_bf16(const float *x, uint8_t *out, size_t n);
void exo_kernel_from_bf16(const uint8_t *in, float *x, size_t n);

/* A block of fp8 numbers: x / 2^exponent, and back. exponent in [-127, 127]. */
void exo_kernel_to_e4m3(const float *x, int exponent, uint8_t *out, size_t n);
void exo_kernel_from_e4m3(const uint8_t *in, int exponent, float *x, size_t n);
void exo_kernel_to_e5m2(const float *x, int exponent, uint8_t *out, size_t n);
void exo_kernel_from_e5m2(const uint8_t *in, int exponent, float *x, size_t n);

/* A block with a scale; scale 0: all values are 0. With four bits, byte j has element j in its
 * lower half and element j + ceil(n / 2) in its upper half; with an odd n, the upper half of the
 * last byte is 0. False: bytes that `to` does not make. */
void exo_kernel_to_int8(const float *x, float scale, uint8_t *out, size_t n);
bool exo_kernel_from_int8(const uint8_t *in, float scale, float *x, size_t n);
void exo_kernel_to_int4(const float *x, float scale, uint8_t *out, size_t n);
bool exo_kernel_from_int4(const uint8_t *in, float scale, float *x, size_t n);
void exo_kernel_to_e3m0(const float *x, float scale, uint8_t *out, size_t n);
bool exo_kernel_from_e3m0(const uint8_t *in, float scale, float *x, size_t n);

/* A block of values in four bins, with two bits for each: negative numbers below their mean and the
 * others, and likewise numbers from 0 on. means: of the numbers in each bin, 0 if it is empty. Byte
 * j has the elements j, j + q, j + 2 q, j + 3 q, from the lowest bits on, with q = ceil(n / 4);
 * bits without an element are 0. False: bytes that `to` does not make. */
void exo_kernel_to_bins(const float *x, float means[4], uint8_t *out, size_t n);
bool exo_kernel_from_bins(const uint8_t *in, const float means[4], float *x, size_t n);

#endif
