/* Copies of a model's numbers on a device, and their arrays. Owner: whoever owns the copy. */
#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/params_impl.h"

exo_device *
exo_params_device(const exo_params *params)
{
    return params->device ? params->device : exo_device_cpu();
}

static exo_array
array_of(const exo_params *params, float *data, size_t count)
{
    return (exo_array){.device = exo_params_device(params), .data = data, .count = data ? count : 0, .dtype = EXO_F32};
}

exo_array
exo_params_values_array(const exo_params *params)
{
    return array_of(params, params->values, params->numel);
}

exo_array
exo_params_grads_array(const exo_params *params)
{
    return array_of(params, params->grads, params->numel);
}

exo_array
exo_params_buffers_array(const exo_params *params)
{
    return array_of(params, params->buffers, params->buffer_numel);
}

void
exo_params_release_far(exo_params *params)
{
    exo_device *device = params->device;
    size_t bytes = params->numel * sizeof(float);
    device->device_class->free(device, params->values, bytes);
    device->device_class->free(device, params->grads, bytes);
    device->device_class->free(device, params->buffers, params->buffer_numel * sizeof(float));
}

static exo_status
take_memory(exo_params *p, bool learns, exo_err *err)
{
    exo_device *device = p->device;
    size_t bytes = p->numel * sizeof(float);
    void *values = NULL, *grads = NULL, *buffers = NULL;
    exo_status st = device->device_class->alloc(device, bytes, &values, err);
    if (st == EXO_OK && learns)
        st = device->device_class->alloc(device, bytes, &grads, err);
    if (st == EXO_OK)
        st = device->device_class->alloc(device, p->buffer_numel * sizeof(float), &buffers, err);
    p->values = values;
    p->grads = grads;
    p->buffers = buffers;
    return st;
}

exo_status
exo_params_to(exo_params **out, const exo_params *params, exo_device *device, exo_err *err)
{
    exo_params *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu parameters", params->numel);
    *p = *params;
    p->device = device;
    p->phantom = false;
    exo_status st = take_memory(p, params->grads != NULL, err);
    if (st == EXO_OK)
        st = exo_array_write(exo_params_values_array(p), params->values, err);
    if (st == EXO_OK)
        st = exo_array_write(exo_params_buffers_array(p), params->buffers, err);
    if (st == EXO_OK) {
        *out = p;
        p = NULL;
    }
    exo_params_free(&p);
    return st;
}
