/* The kernels of exogym/compress.h as their definitions read. No state. */
#include "nn/ref/ref_kernels.h"

#include <math.h>

#define KERNEL(NAME)                                                                               \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)

/* Gram-Schmidt, with each projection twice: the second one removes the rounding of the first. */
KERNEL(orthonormalize)
{
    double *work = k->scratch;
    (void)device;
    (void)err;
    for (size_t v = 0; v < k->vectors; v++) {
        double *x = work + v * k->length, squares = 0;
        for (size_t i = 0; i < k->length; i++)
            x[i] = (double)k->x[v * k->vector_step + i * k->element_step];
        for (size_t j = 0; j < 2 * v; j++) {
            const double *other = work + j / 2 * k->length;
            double product = 0;
            for (size_t i = 0; i < k->length; i++)
                product += x[i] * other[i];
            for (size_t i = 0; i < k->length; i++)
                x[i] -= product * other[i];
        }
        for (size_t i = 0; i < k->length; i++)
            squares += x[i] * x[i];
        for (size_t i = 0; i < k->length; i++) {
            x[i] /= sqrt(squares);
            k->x[v * k->vector_step + i * k->element_step] = (float)x[i];
        }
    }
    return EXO_OK;
}
