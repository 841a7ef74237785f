/* Elements of fp32 or bf16 arrays as floats. With a constant type, in a function that is inlined, each becomes one instruction, and loops of
 * them vector loops. */
#ifndef EXO_CPU_TYPED_H
#define EXO_CPU_TYPED_H

#include <exogym/tensor.h>

#include "base/bf16.h"

#define EXO_INLINED static inline __attribute__((always_inline))

/* A loop whose destination may be one of its sources, element by element: no iteration reads what another one writes. */
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
