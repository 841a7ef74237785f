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
