/* Tensors: types, shapes, and reading them as plain fp32. No state. Read next: tape_impl.h for
 * layouts. */
#include <exogym/tensor.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "base/fp16.h"
#include "nn/tape_run.h"

size_t
exo_tensor_dims(const exo_tensor *tensor, size_t *dims)
{
    memcpy(dims, tensor->dims, tensor->num_dims * sizeof *dims);
    return tensor->num_dims;
}

size_t
exo_tensor_numel(const exo_tensor *tensor)
{
    return tensor->numel;
}

exo_dtype
exo_tensor_dtype(const exo_tensor *tensor)
{
    return tensor->dtype;
}

static float
element(const void *data, exo_dtype dtype, size_t i)
{
    switch (dtype) {
    case EXO_F32:
        return ((const float *)data)[i];
    case EXO_BF16:
        return exo_from_bf16(((const uint16_t *)data)[i]);
    case EXO_I32:
        return (float)((const int32_t *)data)[i];
    case EXO_U8:
        return (float)((const uint8_t *)data)[i];
    case EXO_I8:
        return (float)((const int8_t *)data)[i];
    case EXO_I64:
        return (float)((const int64_t *)data)[i];
    case EXO_F16:
        return exo_from_fp16(((const uint16_t *)data)[i]);
    }
    return 0.0f;
}

const void *
exo_tensor_host(const exo_tensor *t)
{
    return t->host ? t->host : exo_device_is_host(exo_tape_device(t->tape)) ? t->data : NULL;
}

static void
read_elements(const exo_tensor *t, const void *data, exo_dtype dtype, float *out)
{
    if (t->layout == EXO_ROW_MAJOR) {
        for (size_t i = 0; i < t->numel; i++)
            out[i] = element(data, dtype, i);
        return;
    }
    size_t channels = t->dims[1], area = t->dims[2] * t->dims[3];
    for (size_t n = 0; n < t->dims[0]; n++)
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < area; p++)
                out[(n * channels + c) * area + p] =
                    element(data, dtype, (n * area + p) * channels + c);
}

/* Reads elements on a device through a copy in host memory. If that fails, it writes NaN, and the
 * tape records the error. */
static void
fetch_elements(const exo_tensor *t, const void *data, exo_dtype dtype, float *out)
{
    size_t bytes = t->numel * exo_dtype_size(dtype);
    void *copy = exo_alloc_aligned(bytes);
    if (!copy)
        exo_tape_fail(t->tape, EXO_NOMEM, "no memory for a copy of a tensor");
    if (copy && exo_tape_read(t->tape, copy, data, bytes) == EXO_OK) {
        read_elements(t, copy, dtype, out);
    } else {
        for (size_t i = 0; i < t->numel; i++)
            out[i] = NAN;
    }
    exo_free(copy);
}

void
exo_tensor_read(const exo_tensor *tensor, float *out)
{
    const void *here = exo_tensor_host(tensor);
    if (here)
        read_elements(tensor, here, tensor->dtype, out);
    else
        fetch_elements(tensor, tensor->data, tensor->dtype, out);
}

void
exo_tensor_grad(const exo_tensor *tensor, float *out)
{
    if (!tensor->grad)
        memset(out, 0, tensor->numel * sizeof *out);
    else if (exo_device_is_host(exo_tape_device(tensor->tape)))
        read_elements(tensor, tensor->grad, tensor->dtype, out);
    else
        fetch_elements(tensor, tensor->grad, tensor->dtype, out);
}

float
exo_tensor_item(const exo_tensor *tensor)
{
    const void *here = exo_tensor_host(tensor);
    uint64_t first = 0; /* room for an element of any type */
    if (here)
        return element(here, tensor->dtype, 0);
    if (exo_tape_read(tensor->tape, &first, tensor->data, exo_dtype_size(tensor->dtype)) != EXO_OK)
        return NAN;
    return element(&first, tensor->dtype, 0);
}

const char *
exo_shape_text(const exo_tensor *t, char *out)
{
    size_t at = 0;
    out[at++] = '(';
    for (size_t d = 0; d < t->num_dims; d++)
        at += (size_t)snprintf(out + at, 24, "%s%zu", d ? ", " : "", t->dims[d]);
    out[at++] = ')';
    out[at] = '\0';
    return out;
}

bool
exo_same_shape(const exo_tensor *a, const exo_tensor *b)
{
    return a->num_dims == b->num_dims &&
           memcmp(a->dims, b->dims, a->num_dims * sizeof a->dims[0]) == 0;
}

bool
exo_is_float(const exo_tensor *t)
{
    return t->dtype == EXO_F32 || t->dtype == EXO_BF16;
}
