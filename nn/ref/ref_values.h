/* Values of fp32 or bf16 as floats, for kernels of both. Private to nn/ref. */
#ifndef EXO_REF_VALUES_H
#define EXO_REF_VALUES_H

#include "base/bf16.h"
#include "nn/device/device_impl.h"

static inline float
exo_ref_load(exo_dtype dtype, const void *x, size_t i)
{
    return dtype == EXO_BF16 ? exo_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

/* The number of a code; ref_fp8.c. */
float exo_ref_fp8(exo_fp8 format, uint8_t code);

/* Element i of an operand: of `dtype`, or a code of a matrix with its scale. scale NULL: no code. */
static inline double
exo_ref_operand(exo_dtype dtype, exo_fp8 format, const float *scale, const void *x, size_t i)
{
    return scale ? (double)exo_ref_fp8(format, ((const uint8_t *)x)[i]) * (double)*scale
                 : (double)exo_ref_load(dtype, x, i);
}

/* y[i] (+)= value. */
static inline void
exo_ref_store(exo_dtype dtype, void *y, size_t i, float value, bool add)
{
    if (add)
        value = exo_ref_load(dtype, y, i) + value;
    if (dtype == EXO_BF16)
        ((uint16_t *)y)[i] = exo_to_bf16(value);
    else
        ((float *)y)[i] = value;
}

#endif
