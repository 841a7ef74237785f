/* Elements of fp32 or bf16 arrays as floats. In an inlined function with a constant type, a load
 * or store is a single conversion, so that the compiler vectorizes loops of them. No state. */
#ifndef EXO_CPU_TYPED_H
#define EXO_CPU_TYPED_H

#include <exogym/tensor.h>

#include "base/bf16.h"

#define EXO_INLINED static inline __attribute__((always_inline))

/* For a loop whose output may be one of its inputs, element by element: no iteration reads the
 * output of another. */
#if defined(__clang__)
#define EXO_IN_PLACE _Pragma("clang loop vectorize(assume_safety)")
#else
#define EXO_IN_PLACE _Pragma("GCC ivdep")
#endif

EXO_INLINED float
exo_load(exo_dtype type, const void *x, size_t i)
{
    return type == EXO_BF16 ? exo_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

EXO_INLINED void
exo_store(exo_dtype type, void *y, size_t i, float value)
{
    if (type == EXO_BF16)
        ((uint16_t *)y)[i] = exo_to_bf16(value);
    else
        ((float *)y)[i] = value;
}

#endif
