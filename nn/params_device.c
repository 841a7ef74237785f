/* Copies of a model's numbers on a device. A copy belongs to its user. Read next: params.c. */
#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/host_params.h"
#include "nn/params_impl.h"

static exo_status
take(exo_params *p, size_t count, float **out, exo_err *err)
{
    void *memory = NULL;
    exo_device *device = p->device;
    exo_status st = device->device_class->alloc(device, count * sizeof(float), &memory, err);
    *out = memory;
    return st;
}

/* The memory of a flat copy, and its values. */
static exo_status
copy_flat(exo_params *p, const exo_params *from, exo_err *err)
{
    exo_status st = take(p, p->numel, &p->values, err);
    if (st == EXO_OK && from->grads)
        st = take(p, p->numel, &p->grads, err);
    return st == EXO_OK ? exo_array_write(exo_params_values_array(p), from->values, err) : st;
}

/* The addresses of a copy by units, and the values of its open units. */
static exo_status
copy_units(exo_params *p, const exo_params *from, exo_err *err)
{
    exo_status st = exo_params_reserve(p, err);
    for (size_t u = 0; st == EXO_OK && u < p->num_units; u++) {
        exo_array values;
        if (!from->pages[u].open)
            continue;
        st = exo_unit_open(p, u, &values, err);
        if (st == EXO_OK)
            st = exo_array_write(values, from->pages[u].values, err);
    }
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
    p->values = p->grads = p->buffers = NULL;
    p->pages = NULL;
    p->open_bytes = p->most_open_bytes = 0;
    exo_status st = (params->pages ? copy_units : copy_flat)(p, params, err);
    if (st == EXO_OK)
        st = take(p, p->buffer_numel, &p->buffers, err);
    if (st == EXO_OK)
        st = exo_array_write(exo_params_buffers_array(p), params->buffers, err);
    if (st == EXO_OK) {
        *out = p;
        p = NULL;
    }
    exo_params_free(&p);
    return st;
}

exo_status
exo_params_move(exo_params **params, exo_device *device, exo_err *err)
{
    exo_params *there = NULL;
    if (exo_device_is_host(device))
        return EXO_OK;
    exo_status st = exo_params_to(&there, *params, device, err);
    if (st != EXO_OK)
        return st;
    exo_params_free(params);
    *params = there;
    return EXO_OK;
}

exo_status
exo_host_params_take(exo_params **out, exo_model *model, exo_params *params, exo_err *err)
{
    *out = NULL;
    if (exo_device_is_host(exo_params_device(params))) {
        *out = params;
        return EXO_OK;
    }
    exo_status st = exo_model_copy(model, out, err);
    if (st == EXO_OK)
        st = exo_array_read(exo_params_values_array(params), exo_params_values(*out), err);
    if (st == EXO_OK)
        st = exo_array_read(exo_params_buffers_array(params), exo_params_buffers(*out), err);
    if (st != EXO_OK)
        exo_params_free(out);
    return st;
}

void
exo_host_params_give_back(exo_params **host, const exo_params *params)
{
    if (*host == params)
        *host = NULL;
    exo_params_free(host);
}
