/* Floats of 16 and 8 bits; all round to nearest, ties to even. No state.
 *
 * fp16   IEEE 754 binary16: subnormals, overflow to infinity, NaN keeps the upper bits of its
 *        payload.
 * bf16   the upper half of an fp32 number (bf16.h).
 * e4m3   OCP 8-bit floating point 1.0: largest 448, no infinity, one NaN of each sign; saturates.
 * e5m2   OCP 8-bit floating point 1.0: largest 57344, infinities and NaN; finite values saturate,
 *        infinities stay.
 *
 * Subnormals are rounded by a float addition: the addend is a power of two whose last place is the
 * format's smallest number. */
#include "codec/kernels.h"

#include "base/bf16.h"

void
exo_kernel_to_fp16(const float *x, uint8_t *out, size_t n)
{
    /* 0.5, the last place of which is 2^-24 */
    const uint32_t magic = (uint32_t)(127 - 15 + 23 - 10 + 1) << 23;
    exo_any_u16 *half = (exo_any_u16 *)out;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = exo_bits_of(x[i]), size = bits & EXO_MAGNITUDE;
        uint32_t normal = (size + 0xFFFu + (size >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
        uint32_t tiny = exo_bits_of(exo_float_of(size) + exo_float_of(magic)) - magic;
        uint32_t nan = 0x7E00u | (size >> 13 & 0x3FFu);
        uint32_t code = size < 0x38800000u ? tiny : normal; /* below 2^-14: subnormal */
        /* from 2^16 on; the values just below round to infinity by themselves */
        code = size >= 0x47800000u ? 0x7C00u : code;
        code = size > EXO_INFINITY ? nan : code;
        half[i] = (uint16_t)(code | (bits >> 16 & 0x8000u));
    }
}

void
exo_kernel_from_fp16(const uint8_t *in, float *x, size_t n)
{
    const exo_any_u16 *half = (const exo_any_u16 *)in;
    for (size_t i = 0; i < n; i++) {
        uint32_t h = half[i], size = h & 0x7FFFu;
        uint32_t normal = (size << 13) + ((127u - 15u) << 23);
        uint32_t tiny = exo_bits_of((float)(int32_t)size * 0x1p-24f);
        uint32_t bits = size < 0x0400u ? tiny : normal;
        bits = size >= 0x7C00u ? EXO_INFINITY | (size & 0x3FFu) << 13 : bits;
        x[i] = exo_float_of(bits | (h & 0x8000u) << 16);
    }
}

void
exo_kernel_to_bf16(const float *x, uint8_t *out, size_t n)
{
    exo_any_u16 *upper = (exo_any_u16 *)out;
    for (size_t i = 0; i < n; i++)
        upper[i] = exo_to_bf16(x[i]);
}

void
exo_kernel_from_bf16(const uint8_t *in, float *x, size_t n)
{
    const exo_any_u16 *upper = (const exo_any_u16 *)in;
    for (size_t i = 0; i < n; i++)
        x[i] = exo_from_bf16(upper[i]);
}

/* --- 8 bits ----------------------------------------------------------------------------------- */

/* 2^exponent, exponent in [-127, 127]. */
static float
power_of_two(int exponent)
{
    return exponent < -126 ? 0x1p-127f : exo_float_of((uint32_t)(exponent + 127) << 23);
}

/* A format of 8 bits: bits of the mantissa, bias of the exponent, and codes. Constant at each
 * call. */
typedef struct fp8 {
    unsigned mantissa, bias;
    uint32_t largest, infinity, nan; /* infinity: 0 if the format has none */
} fp8;

static const fp8 e4m3 = {.mantissa = 3, .bias = 7, .largest = 0x7E, .nan = 0x7F};
static const fp8 e5m2 = {.mantissa = 2, .bias = 15, .largest = 0x7B, .infinity = 0x7C, .nan = 0x7E};

static inline __attribute__((always_inline)) void
to_fp8(const fp8 format, const float *x, int exponent, uint8_t *out, size_t n)
{
    const float inverse = power_of_two(-exponent);
    const unsigned shift = 23 - format.mantissa;
    const uint32_t rebias = (127 - format.bias) << 23, smallest_normal = (128 - format.bias) << 23;
    const uint32_t magic = (127 + 1 - format.bias + 23 - format.mantissa) << 23;
    const uint32_t largest = (format.largest << shift) + rebias;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = exo_bits_of(x[i]), size = bits & EXO_MAGNITUDE;
        uint32_t scaled = exo_bits_of(exo_float_of(size) * inverse);
        scaled = scaled > largest ? largest : scaled;
        uint32_t normal =
            (scaled + ((1u << (shift - 1)) - 1) + (scaled >> shift & 1u) - rebias) >> shift;
        uint32_t tiny = exo_bits_of(exo_float_of(scaled) + exo_float_of(magic)) - magic;
        uint32_t code = scaled < smallest_normal ? tiny : normal;
        if (format.infinity)
            code = size == EXO_INFINITY ? format.infinity : code;
        code = size > EXO_INFINITY ? format.nan : code;
        out[i] = (uint8_t)(code | (bits >> 24 & 0x80u));
    }
}

static inline __attribute__((always_inline)) void
from_fp8(const fp8 format, const uint8_t *in, int exponent, float *x, size_t n)
{
    const float scale = power_of_two(exponent);
    const unsigned shift = 23 - format.mantissa;
    const uint32_t rebias = (127 - format.bias) << 23;
    const float smallest = exo_float_of((127 + 1 - format.bias - format.mantissa) << 23);
    for (size_t i = 0; i < n; i++) {
        uint32_t code = in[i], size = code & 0x7Fu;
        float tiny = (float)(int32_t)size * smallest,
              normal = exo_float_of((size << shift) + rebias);
        uint32_t bits = exo_bits_of((size < 1u << format.mantissa ? tiny : normal) * scale);
        bits = size > format.largest ? EXO_QUIET_NAN : bits;
        if (format.infinity)
            bits = size == format.infinity ? EXO_INFINITY : bits;
        x[i] = exo_float_of(bits | (code & 0x80u) << 24);
    }
}

void
exo_kernel_to_e4m3(const float *x, int exponent, uint8_t *out, size_t n)
{
    to_fp8(e4m3, x, exponent, out, n);
}

void
exo_kernel_from_e4m3(const uint8_t *in, int exponent, float *x, size_t n)
{
    from_fp8(e4m3, in, exponent, x, n);
}

void
exo_kernel_to_e5m2(const float *x, int exponent, uint8_t *out, size_t n)
{
    to_fp8(e5m2, x, exponent, out, n);
}

void
exo_kernel_from_e5m2(const uint8_t *in, int exponent, float *x, size_t n)
{
    from_fp8(e5m2, in, exponent, x, n);
}
