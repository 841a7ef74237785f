/* Operations on images; a piece is one sample. No state. Read next: kernels.h. */
#include "nn/cpu/cpu_device.h"

#include "base/parallel.h"
#include "nn/cpu/kernels.h"

/* The address of element `first` of x. */
static const void *
from(exo_dtype dtype, const void *x, size_t first)
{
    return (const char *)x + first * exo_dtype_size(dtype);
}

static void *
into(exo_dtype dtype, void *y, size_t first)
{
    return (char *)y + first * exo_dtype_size(dtype);
}

/* Defines a kernel. NAME_sample computes one sample. */
#define SAMPLES(NAME)                                                                              \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        exo_parallel_for(args->samples, NAME##_sample, (void *)(uintptr_t)args);                   \
        return EXO_OK;                                                                             \
    }

static void
channel_scale_sample(void *args, size_t sample)
{
    const exo_channel_scale_args *k = args;
    size_t skip = sample * k->rows * k->channels;
    exo_channel_scale(k->dtype, from(k->dtype, k->x, skip), into(k->dtype, k->y, skip),
                      k->factor + sample * k->channels, k->rows, k->channels, k->add);
}
SAMPLES(channel_scale)

static void
max_pool_sample(void *args, size_t sample)
{
    const exo_max_pool_args *k = args;
    size_t in = sample * k->height * k->width * k->channels;
    size_t out = sample * (k->height / k->size) * (k->width / k->size) * k->channels;
    exo_max_pool_forward(k->dtype, from(k->dtype, k->x, in), into(k->dtype, k->y, out),
                         k->winner + out, k->height, k->width, k->channels, k->size);
}
SAMPLES(max_pool)

static void
max_pool_backward_sample(void *args, size_t sample)
{
    const exo_max_pool_backward_args *k = args;
    size_t in = sample * k->height * k->width * k->channels;
    size_t out = sample * (k->height / k->size) * (k->width / k->size) * k->channels;
    exo_max_pool_backward(k->dtype, from(k->dtype, k->dy, out), k->winner + out,
                          into(k->dtype, k->dx, in), k->height, k->width, k->channels, k->size,
                          k->add);
}
SAMPLES(max_pool_backward)

static void
transpose_sample(void *args, size_t sample)
{
    const exo_transpose_args *k = args;
    size_t skip = sample * k->rows * k->columns;
    exo_transpose(k->dtype, from(k->dtype, k->x, skip), into(k->dtype, k->y, skip), k->rows,
                  k->columns, k->add);
}
SAMPLES(transpose)
