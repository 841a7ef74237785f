/* Kernels of the tape's operations, written as their definitions: one loop for each dimension, one
 * statement for each operation. Values of any type are computed as floats. No state. Read next:
 * ref_losses.c. */
#include "nn/ref/ref_kernels.h"

#include <math.h>

#include <exogym/rng.h>

#include "nn/ref/ref_values.h"

#define KERNEL(NAME, STATEMENT)                                                                    \
    exo_status exo_reference_##NAME(exo_device *device, const exo_##NAME##_args *k, exo_err *err)  \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        for (size_t i = 0; i < k->count; i++)                                                      \
            STATEMENT;                                                                             \
        return EXO_OK;                                                                             \
    }

KERNEL(relu,
       exo_ref_store(k->dtype, k->y, i,
                     exo_ref_load(k->dtype, k->x, i) < 0 ? 0 : exo_ref_load(k->dtype, k->x, i),
                     false))
KERNEL(relu_backward,
       exo_ref_store(k->dtype, k->dx, i,
                     exo_ref_load(k->dtype, k->y, i) > 0 ? exo_ref_load(k->dtype, k->dy, i) : 0,
                     k->add))
KERNEL(tanh, k->y[i] = tanhf(k->x[i]))
KERNEL(tanh_backward, exo_ref_store(EXO_F32, k->dx, i, k->dy[i] * (1 - k->y[i] * k->y[i]), k->add))
KERNEL(dropout, exo_ref_store(k->dtype, k->y, i,
                              k->keep[i] ? exo_ref_load(k->dtype, k->x, i) * k->factor : 0, k->add))
KERNEL(select, k->y[i] = k->keep[i] ? k->value : 0)
KERNEL(mean_backward, exo_ref_store(EXO_F32, k->dx, i, k->dy[0] / (float)k->count, k->add))

exo_status
exo_reference_mean(exo_device *device, const exo_mean_args *k, exo_err *err)
{
    double sum = 0;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++)
        sum += (double)k->x[i];
    k->y[0] = (float)(sum / (double)k->count);
    return EXO_OK;
}

/* Draws one number at a time, each from its own position in the stream. */
exo_status
exo_reference_dropout_draw(exo_device *device, const exo_dropout_draw_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (uint64_t i = 0; i < k->count; i++) {
        uint64_t block = i / 4,
                 step = k->step ^ block / 4194304 << 48 ^ (uint64_t)(k->ordinal / 1024) << 40;
        uint32_t numbers[4];
        exo_rng rng;
        exo_rng_init(&rng, k->seed, EXO_RNG_DROPOUT, k->node, step);
        exo_rng_block(&rng, k->ordinal % 1024 * 4194304 + (uint32_t)(block % 4194304), numbers);
        k->keep[i] = numbers[i % 4] >= k->threshold;
    }
    return EXO_OK;
}

/* --- Images ----------------------------------------------------------------------------------- */

exo_status
exo_reference_channel_scale(exo_device *device, const exo_channel_scale_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t n = 0; n < k->samples; n++)
        for (size_t r = 0; r < k->rows; r++)
            for (size_t c = 0; c < k->channels; c++) {
                size_t i = (n * k->rows + r) * k->channels + c;
                exo_ref_store(k->dtype, k->y, i,
                              exo_ref_load(k->dtype, k->x, i) * k->factor[n * k->channels + c],
                              k->add);
            }
    return EXO_OK;
}

exo_status
exo_reference_max_pool(exo_device *device, const exo_max_pool_args *k, exo_err *err)
{
    size_t height = k->height / k->size, width = k->width / k->size, out = 0;
    (void)device;
    (void)err;
    for (size_t n = 0; n < k->samples; n++)
        for (size_t h = 0; h < height; h++)
            for (size_t w = 0; w < width; w++)
                for (size_t c = 0; c < k->channels; c++, out++) {
                    float best = -INFINITY;
                    k->winner[out] = 0;
                    for (size_t p = 0; p < k->size * k->size; p++) {
                        size_t y = h * k->size + p / k->size, x = w * k->size + p % k->size;
                        float value = exo_ref_load(
                            k->dtype, k->x, ((n * k->height + y) * k->width + x) * k->channels + c);
                        if (value > best) {
                            best = value;
                            k->winner[out] = (uint8_t)p;
                        }
                    }
                    exo_ref_store(k->dtype, k->y, out, best, false);
                }
    return EXO_OK;
}

exo_status
exo_reference_max_pool_backward(exo_device *device, const exo_max_pool_backward_args *k,
                                exo_err *err)
{
    size_t height = k->height / k->size, width = k->width / k->size, out = 0;
    (void)device;
    (void)err;
    for (size_t i = 0; !k->add && i < k->samples * k->height * k->width * k->channels; i++)
        exo_ref_store(k->dtype, k->dx, i, 0, false);
    for (size_t n = 0; n < k->samples; n++)
        for (size_t h = 0; h < height; h++)
            for (size_t w = 0; w < width; w++)
                for (size_t c = 0; c < k->channels; c++, out++) {
                    size_t y = h * k->size + k->winner[out] / k->size,
                           x = w * k->size + k->winner[out] % k->size;
                    exo_ref_store(k->dtype, k->dx,
                                  ((n * k->height + y) * k->width + x) * k->channels + c,
                                  exo_ref_load(k->dtype, k->dy, out), true);
                }
    return EXO_OK;
}

exo_status
exo_reference_copy_columns(exo_device *device, const exo_copy_columns_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->count; i++)
            exo_ref_store(EXO_F32, k->y, r * k->y_pitch + i,
                          exo_ref_load(EXO_F32, k->x, r * k->x_pitch + i), k->add);
    return EXO_OK;
}

exo_status
exo_reference_transpose(exo_device *device, const exo_transpose_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t n = 0; n < k->samples; n++)
        for (size_t r = 0; r < k->rows; r++)
            for (size_t c = 0; c < k->columns; c++)
                exo_ref_store(k->dtype, k->y, (n * k->columns + c) * k->rows + r,
                              exo_ref_load(k->dtype, k->x, (n * k->rows + r) * k->columns + c),
                              k->add);
    return EXO_OK;
}

/* --- Gates ------------------------------------------------------------------------------------ */

static double
value_of(exo_activation activation, double x)
{
    switch (activation) {
    case EXO_LINEAR:
        return x;
    case EXO_RELU:
        return x < 0 ? 0 : x;
    case EXO_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case EXO_GELU_TANH:
        return 0.5 * x *
               (1 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case EXO_SILU:
        return x / (1 + exp(-x));
    }
    return 0;
}

/* The derivative, by central differences. */
static double
slope_of(exo_activation activation, double x)
{
    const double h = 1e-5;
    if (activation == EXO_RELU)
        return x > 0;
    return (value_of(activation, x + h) - value_of(activation, x - h)) / (2 * h);
}

exo_status
exo_reference_gate(exo_device *device, const exo_gate_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->width; i++) {
            double gate = (double)exo_ref_load(k->dtype, k->x, 2 * r * k->width + i);
            double up = (double)exo_ref_load(k->dtype, k->x, (2 * r + 1) * k->width + i);
            exo_ref_store(k->dtype, k->y, r * k->width + i,
                          (float)(value_of(k->activation, gate) * up), false);
        }
    return EXO_OK;
}

exo_status
exo_reference_gate_backward(exo_device *device, const exo_gate_backward_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t i = 0; i < k->width; i++) {
            size_t at_gate = 2 * r * k->width + i, at_up = at_gate + k->width;
            double gate = (double)exo_ref_load(k->dtype, k->x, at_gate),
                   up = (double)exo_ref_load(k->dtype, k->x, at_up);
            double dy = (double)exo_ref_load(k->dtype, k->dy, r * k->width + i);
            exo_ref_store(k->dtype, k->dx, at_gate,
                          (float)(dy * up * slope_of(k->activation, gate)), k->add);
            exo_ref_store(k->dtype, k->dx, at_up, (float)(dy * value_of(k->activation, gate)),
                          k->add);
        }
    return EXO_OK;
}
