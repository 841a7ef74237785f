/* Copies of a model's numbers on a device. A copy belongs to its user. Read next: params.c. */
#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/params_impl.h"

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
    if (params->pages)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a copy by units stays on the host and cannot be copied to the device '%s'",
                        exo_device_name(device));
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
