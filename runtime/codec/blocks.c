/* Blocks of small numbers with one scale. No state.
 *
 * int8, int4   round(x / scale), ties to even, limited to +-127 or +-7.
 * e3m0         a sign and 3 bits of exponent e: 0 is zero, otherwise the value is 2^(e - 7) of the
 *              scale, that is 1, 1/2, ... 1/64; to nearest, ties to the even code. Streaming
 *              DiLoCo (arXiv:2501.18512) sends its outer gradients in this format.
 *
 * bins         two bits: the mean of one of four bins (arXiv:2508.15706 sends such values)
 *
 * None of them has infinities or NaN: infinities become the largest value, NaN becomes 0. */
#include "codec/kernels.h"

#include <float.h>

float
exo_kernel_largest(const float *x, size_t n)
{
    int32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t size = exo_bits_of(x[i]) & EXO_MAGNITUDE;
        /* gcc does not vectorize a conditional expression here */
        int32_t finite = (int32_t)(size & (0u - (size < EXO_INFINITY)));
        largest = finite > largest ? finite : largest;
    }
    return exo_float_of((uint32_t)largest);
}

/* The divisor of a block. With scale 0 all finite magnitudes are below 2^-119, so dividing by 2^100
 * rounds them to 0. */
static float
divisor_of(float scale)
{
    return scale > 0 ? scale : 0x1p100f;
}

/* round(x / divisor) in the lowest bits, in two's complement: 1.5 * 2^23, which is added, has a
 * last place of 1. */
static inline uint32_t
quotient(float x, float divisor, float limit)
{
    float v = x / divisor;
    v = v > limit ? limit : v;
    v = v < -limit ? -limit : v;
    v = v == v ? v : 0.0f;
    return exo_bits_of(v + 12582912.0f);
}

/* Limits a product to the largest float, which it exceeds slightly if the scale was rounded up. */
static inline float
within_range(float x)
{
    x = x > FLT_MAX ? FLT_MAX : x;
    return x < -FLT_MAX ? -FLT_MAX : x;
}

void
exo_kernel_to_int8(const float *x, float scale, uint8_t *out, size_t n)
{
    const float divisor = divisor_of(scale);
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)quotient(x[i], divisor, 127.0f);
}

bool
exo_kernel_from_int8(const uint8_t *in, float scale, float *x, size_t n)
{
    uint8_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        wrong |= in[i] == 0x80;
        x[i] = within_range((float)(int8_t)in[i] * scale);
    }
    return !wrong;
}

void
exo_kernel_to_int4(const float *x, float scale, uint8_t *out, size_t n)
{
    const float divisor = divisor_of(scale);
    const size_t half = n - n / 2;
    for (size_t i = 0; i < n / 2; i++)
        out[i] = (uint8_t)((quotient(x[i], divisor, 7.0f) & 15u) |
                           quotient(x[i + half], divisor, 7.0f) << 4);
    if (n % 2)
        out[half - 1] = (uint8_t)(quotient(x[half - 1], divisor, 7.0f) & 15u);
}

static inline float
from_nibble(uint32_t code, float scale)
{
    return within_range((float)((int32_t)(code ^ 8u) - 8) * scale);
}

bool
exo_kernel_from_int4(const uint8_t *in, float scale, float *x, size_t n)
{
    const size_t half = n - n / 2;
    uint8_t wrong = 0;
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t low = in[i] & 15u, high = (uint32_t)in[i] >> 4;
        wrong |= (uint8_t)((low == 8) | (high == 8));
        x[i] = from_nibble(low, scale);
        x[i + half] = from_nibble(high, scale);
    }
    if (n % 2) {
        wrong |= in[half - 1] == 8 || in[half - 1] > 15;
        x[half - 1] = from_nibble(in[half - 1] & 15u, scale);
    }
    return !wrong;
}

static inline uint32_t
to_e3m0(float x, float divisor)
{
    uint32_t bits = exo_bits_of(x / divisor), size = bits & EXO_MAGNITUDE;
    /* fp32's exponent, rounded: 127 means 1 */
    uint32_t e = (size + 0x3FFFFFu + (size >> 23 & 1u)) >> 23;
    e = e < 121 ? 121 : e; /* at least 2^-6 */
    e = e > 127 ? 127 : e;
    uint32_t code = (e - 120) | (bits >> 28 & 8u);
    /* 2^-7 and below is zero */
    code = size > 0x3C000000u ? code : 0;
    return size > EXO_INFINITY ? 0 : code; /* NaN */
}

void
exo_kernel_to_e3m0(const float *x, float scale, uint8_t *out, size_t n)
{
    const float divisor = divisor_of(scale);
    const size_t half = n - n / 2;
    for (size_t i = 0; i < n / 2; i++)
        out[i] = (uint8_t)(to_e3m0(x[i], divisor) | to_e3m0(x[i + half], divisor) << 4);
    if (n % 2)
        out[half - 1] = (uint8_t)to_e3m0(x[half - 1], divisor);
}

static inline float
from_e3m0(uint32_t code, float scale)
{
    uint32_t e = code & 7u;
    float size = exo_float_of((e + 120) << 23) * scale;
    uint32_t bits = e ? exo_bits_of(size) : 0;
    return exo_float_of(bits | (code & 8u) << 28);
}

bool
exo_kernel_from_e3m0(const uint8_t *in, float scale, float *x, size_t n)
{
    const size_t half = n - n / 2;
    uint8_t wrong = 0;
    for (size_t i = 0; i < n / 2; i++) {
        uint32_t low = in[i] & 15u, high = (uint32_t)in[i] >> 4;
        wrong |= (uint8_t)((low == 8) | (high == 8)); /* zero has no sign */
        x[i] = from_e3m0(low, scale);
        x[i + half] = from_e3m0(high, scale);
    }
    if (n % 2) {
        wrong |= in[half - 1] == 8 || in[half - 1] > 15;
        x[half - 1] = from_e3m0(in[half - 1] & 15u, scale);
    }
    return !wrong;
}

/* --- Bins ------------------------------------------------------------------------------------- */

/* A value as the bins see it: NaN is 0, and infinities are the largest finite magnitude. */
static inline double
finite_of(float x, float largest)
{
    float v = x > largest ? largest : x;
    v = v < -largest ? -largest : v;
    return v == v ? (double)v : 0.0;
}

void
exo_kernel_to_bins(const float *x, float means[4], uint8_t *out, size_t n)
{
    const float largest = exo_kernel_largest(x, n);
    const size_t quarter = n / 4 + (n % 4 != 0);
    double sums[4] = {0}, below = 0, above = 0;
    size_t counts[4] = {0}, negative = 0;
    for (size_t i = 0; i < n; i++) {
        double v = finite_of(x[i], largest);
        below += v < 0 ? v : 0;
        above += v < 0 ? 0 : v;
        negative += v < 0;
    }
    below /= negative ? (double)negative : 1;
    above /= n > negative ? (double)(n - negative) : 1;
    memset(out, 0, quarter);
    for (size_t i = 0; i < n; i++) {
        double v = finite_of(x[i], largest);
        unsigned bin = v < 0 ? v >= below : 2u + (v >= above);
        sums[bin] += v;
        counts[bin]++;
        out[i % quarter] |= (uint8_t)(bin << 2 * (i / quarter));
    }
    for (size_t b = 0; b < 4; b++)
        means[b] = counts[b] ? (float)(sums[b] / (double)counts[b]) : 0;
}

bool
exo_kernel_from_bins(const uint8_t *in, const float means[4], float *x, size_t n)
{
    const size_t quarter = n / 4 + (n % 4 != 0);
    uint8_t wrong = 0;
    for (size_t i = 0; i < 4 * quarter; i++) {
        unsigned bin = (unsigned)in[i % quarter] >> 2 * (i / quarter) & 3u;
        if (i < n)
            x[i] = means[bin];
        else
            wrong |= bin != 0;
    }
    return !wrong;
}
