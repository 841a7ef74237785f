/* fp8 by its definition: the code of a number is that of the nearest of all numbers that a format
 * has. No state. Read next: nn/device/layer_args.h. */
#include <math.h>
#include <string.h>

#include "nn/ref/ref_kernels.h"
#include "nn/ref/ref_values.h"

enum {
    CODES = 128, /* of numbers that are not negative */
    NAN_CODE = 0x7F
};

float
exo_ref_fp8(exo_fp8 format, uint8_t code)
{
    const int behind = format == EXO_E4M3 ? 3 : 2, bias = format == EXO_E4M3 ? 7 : 15;
    const int top = format == EXO_E4M3 ? 16 : 31; /* of exponents with numbers, excluded */
    const int exponent = (code & 0x7F) >> behind, mantissa = code & ((1 << behind) - 1);
    const float sign = code & 0x80 ? -1.0f : 1.0f;
    if ((code & 0x7F) == NAN_CODE || (exponent == top && mantissa > 0))
        return NAN;
    if (exponent == top)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, 1 - bias - behind);
    return sign * ldexpf((float)(mantissa + (1 << behind)), exponent - bias - behind);
}

/* The largest number of a format. */
static float
largest_of(exo_fp8 format)
{
    return format == EXO_E4M3 ? 448.0f : 57344.0f;
}

static uint8_t
code_of(exo_fp8 format, double x)
{
    const double size = fmin(fabs(x), (double)largest_of(format));
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    double lower = 0; /* the number of the code before */
    if (isnan(x) || (isinf(x) && format == EXO_E4M3))
        return NAN_CODE | sign; /* fmin would drop it */
    if (isinf(x))
        return (uint8_t)(0x7C | sign);
    for (unsigned c = 0; c < CODES; c++) {
        const double here = (double)exo_ref_fp8(format, (uint8_t)c), far = size - lower;
        if (size <= here) /* the even one of two that are as near */
            return (uint8_t)((far < here - size || (far == here - size && c % 2) ? c - 1 : c) |
                             sign);
        lower = here;
    }
    return NAN_CODE;
}

/* The least power of two that `most` divided by is at most the largest number. */
static float
scale_of(exo_fp8 format, float most)
{
    int exponent = EXO_FP8_LEAST_EXPONENT;
    if (most == 0 || !isfinite(most))
        return 1;
    while (ldexp((double)most, -exponent) > (double)largest_of(format))
        exponent++;
    return ldexpf(1, exponent);
}

exo_status
exo_reference_to_fp8(exo_device *device, const exo_to_fp8_args *k, exo_err *err)
{
    float most = 0;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->rows * k->columns; i++) {
        const float size = fabsf(exo_ref_load(k->dtype, k->x, i));
        most = size > most || isnan(size) ? size : most;
        if (isnan(most))
            break;
    }
    if (!k->scaled)
        *k->scale = scale_of(k->format, most);
    for (size_t r = 0; r < k->rows; r++)
        for (size_t c = 0; c < k->columns; c++) {
            const float x = exo_ref_load(k->dtype, k->x, r * k->columns + c);
            const uint8_t code = code_of(k->format, (double)x / (double)*k->scale);
            if (k->codes)
                k->codes[r * k->columns + c] = code;
            if (k->transposed)
                k->transposed[c * k->rows + r] = code;
        }
    return EXO_OK;
}
