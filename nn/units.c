/* Copies of a model by units, and which units have memory. See exogym/units.h. State: the copy's
 * pages, which belong to the thread of the copy. Read next: nn/device/device_impl.h. */
#include <exogym/units.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "nn/params_impl.h"

static exo_device *
device_of(const exo_params *params)
{
    return params->device ? params->device : exo_device_cpu();
}

static size_t
unit_bytes(const exo_params *params, size_t unit)
{
    return params->units[unit].count * sizeof(float);
}

exo_status
exo_params_reserve(exo_params *params, exo_err *err)
{
    exo_device *device = device_of(params);
    params->pages = exo_calloc(params->num_units + 1, sizeof *params->pages);
    if (!params->pages)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu units", params->num_units);
    for (size_t u = 0; u < params->num_units; u++) {
        exo_unit_pages *p = &params->pages[u];
        const size_t bytes = unit_bytes(params, u);
        exo_err reason = {0};
        exo_status st = device->device_class->pages_reserve(device, bytes, &p->values, &reason);
        if (st == EXO_OK)
            st = device->device_class->pages_reserve(device, bytes, &p->grads, &reason);
        if (st != EXO_OK)
            return exo_fail(err, st, "no addresses for the unit '%s' of %zu parameters: %s",
                            params->units[u].name, params->units[u].count, reason.text);
    }
    return EXO_OK;
}

void
exo_params_unreserve(exo_params *params)
{
    exo_device *device = device_of(params);
    for (size_t u = 0; params->pages && u < params->num_units; u++) {
        device->device_class->pages_free(device, params->pages[u].values, unit_bytes(params, u));
        device->device_class->pages_free(device, params->pages[u].grads, unit_bytes(params, u));
    }
    exo_free(params->pages);
    params->pages = NULL;
}

float *
exo_params_address(const exo_params *params, size_t index)
{
    const exo_param_info *info = &params->infos[index];
    if (info->is_buffer)
        return params->buffers + info->offset;
    if (!params->pages)
        return params->values + info->offset;
    return (float *)params->pages[info->unit].values +
           (info->offset - params->units[info->unit].first);
}

float *
exo_params_grad_address(const exo_params *params, size_t index)
{
    const exo_param_info *info = &params->infos[index];
    if (info->is_buffer)
        return NULL;
    if (!params->pages)
        return params->grads ? params->grads + info->offset : NULL;
    return (float *)params->pages[info->unit].grads +
           (info->offset - params->units[info->unit].first);
}

bool
exo_params_by_units(const exo_params *params)
{
    return params->pages != NULL;
}

size_t
exo_params_num_units(const exo_params *params)
{
    return params->num_units;
}

const exo_unit_info *
exo_params_units(const exo_params *params)
{
    return params->units;
}

/* The unit's elements: in `all`, the values or gradients of a flat copy, or else in `pages`. */
static exo_array
range(const exo_params *params, size_t unit, float *all, void *pages)
{
    const exo_unit_info *info = &params->units[unit];
    return (exo_array){.device = device_of(params),
                       .data = all ? all + info->first : pages,
                       .count = info->count,
                       .dtype = EXO_F32};
}

static exo_status
open_pages(exo_params *params, size_t unit, void *pages, bool *open, exo_err *err)
{
    size_t bytes = unit_bytes(params, unit);
    if (*open)
        return EXO_OK;
    exo_device *device = device_of(params);
    exo_err reason = {0};
    exo_status st = device->device_class->pages_open(device, pages, bytes, &reason);
    if (st != EXO_OK)
        return exo_fail(err, st, "no memory for the unit '%s' of %zu parameters: %s",
                        params->units[unit].name, params->units[unit].count, reason.text);
    *open = true;
    params->open_bytes += bytes;
    if (params->open_bytes > params->most_open_bytes)
        params->most_open_bytes = params->open_bytes;
    return EXO_OK;
}

static void
close_pages(exo_params *params, size_t unit, void *pages, bool *open)
{
    if (!*open)
        return;
    exo_device *device = device_of(params);
    device->device_class->pages_close(device, pages, unit_bytes(params, unit));
    params->open_bytes -= unit_bytes(params, unit);
    *open = false;
}

exo_status
exo_unit_open(exo_params *params, size_t unit, exo_array *values, exo_err *err)
{
    exo_unit_pages *p = params->pages ? &params->pages[unit] : NULL;
    exo_status st = p ? open_pages(params, unit, p->values, &p->open, err) : EXO_OK;
    *values = exo_unit_values(params, unit);
    return st;
}

void
exo_unit_close(exo_params *params, size_t unit)
{
    if (params->pages)
        close_pages(params, unit, params->pages[unit].values, &params->pages[unit].open);
}

exo_array
exo_unit_values(exo_params *params, size_t unit)
{
    const exo_unit_pages *p = params->pages ? &params->pages[unit] : NULL;
    return range(params, unit, params->values, p && p->open ? p->values : NULL);
}

exo_status
exo_unit_open_grads(exo_params *params, size_t unit, exo_array *grads, exo_err *err)
{
    exo_unit_pages *p = params->pages ? &params->pages[unit] : NULL;
    exo_status st = p ? open_pages(params, unit, p->grads, &p->grads_open, err) : EXO_OK;
    *grads = range(params, unit, params->grads, p && p->grads_open ? p->grads : NULL);
    return st;
}

void
exo_unit_close_grads(exo_params *params, size_t unit)
{
    if (params->pages)
        close_pages(params, unit, params->pages[unit].grads, &params->pages[unit].grads_open);
}

static size_t
flat_bytes(const exo_params *params)
{
    return params->numel * sizeof(float) * (params->grads ? 2 : 1);
}

size_t
exo_params_open_bytes(const exo_params *params)
{
    return params->pages ? params->open_bytes : flat_bytes(params);
}

size_t
exo_params_most_open_bytes(const exo_params *params)
{
    return params->pages ? params->most_open_bytes : flat_bytes(params);
}
