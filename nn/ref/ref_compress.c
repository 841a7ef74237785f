/* The kernels of exogym/compress.h as their definitions read. No state. */
#include "nn/ref/ref_kernels.h"

#include <math.h>

#include <stdint.h>

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

/* --- int8 ------------------------------------------------------------------------------------- */

KERNEL(largest)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float magnitude = isnan(k->x[i]) ? INFINITY : fabsf(k->x[i]);
        float *y = &k->y[i / k->chunk];
        *y = i % k->chunk == 0 || magnitude > *y ? magnitude : *y;
    }
    return EXO_OK;
}

static float
scale_of(const float *scales, size_t rows, size_t chunks, size_t chunk)
{
    float scale = 0;
    for (size_t r = 0; r < rows; r++)
        scale = fmaxf(scale, scales[r * chunks + chunk]);
    return scale;
}

KERNEL(quantize)
{
    const size_t chunks = (k->count + k->chunk - 1) / k->chunk;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float scale = scale_of(k->scales, k->rows, chunks, i / k->chunk);
        k->y[i] = (int8_t)(scale > 0 && isfinite(scale) ? rintf(k->x[i] / scale * 127.0f) : 0.0f);
    }
    return EXO_OK;
}

KERNEL(dequantize)
{
    const size_t chunks = (k->count + k->chunk - 1) / k->chunk;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        int32_t sum = 0;
        for (size_t s = 0; s < k->senders; s++)
            sum += k->x[s * k->count + i];
        k->y[i] = (float)sum * scale_of(k->scales, k->rows, chunks, i / k->chunk) / k->divisor;
    }
    return EXO_OK;
}
