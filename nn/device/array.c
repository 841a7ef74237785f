/* Arrays: allocation of device memory, parts, and copies to and from the host. Also the error that
 * a device remembers, and plans. State: the device's first failure (exo_device.failed). Read next:
 * vec.c. */
#include "nn/device/device_impl.h"

#include <assert.h>
#include <string.h>

static size_t
bytes_of(exo_array array)
{
    return array.count * exo_dtype_size(array.dtype);
}

const char *
exo_device_name(const exo_device *device)
{
    return device->device_class->name;
}

bool
exo_device_is_host(const exo_device *device)
{
    return device->device_class->is_host;
}

void
exo_device_note(exo_device *device, exo_status status, const exo_err *err)
{
    if (status == EXO_OK)
        return;
    /* Many threads share a host's device, so it remembers no failure; its array kernels cannot
     * fail. */
    assert(!device->device_class->is_host);
    if (device->failed.code == EXO_OK) {
        device->failed = *err;
        device->failed.code = status;
    }
}

void
exo_device_section_begin(exo_device *device)
{
    if (device->device_class->section_begin)
        device->device_class->section_begin(device);
}

exo_status
exo_device_section_end(exo_device *device, exo_err *err)
{
    return device->device_class->section_end ? device->device_class->section_end(device, err)
                                             : EXO_OK;
}

exo_status
exo_device_synchronize(exo_device *device, exo_err *err)
{
    exo_err later = {0};
    exo_device_note(device, device->device_class->synchronize(device, &later), &later);
    if (device->failed.code != EXO_OK && err)
        *err = device->failed;
    return device->failed.code;
}

exo_status
exo_array_init(exo_array *out, exo_device *device, exo_dtype dtype, size_t count, exo_err *err)
{
    void *data = NULL;
    size_t bytes;
    *out = (exo_array){0};
    if (__builtin_mul_overflow(count, exo_dtype_size(dtype), &bytes))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu elements", count);
    exo_status st = device->device_class->alloc(device, bytes, &data, err);
    if (st == EXO_OK)
        *out = (exo_array){
            .device = device, .data = data, .count = count, .dtype = dtype, .owned = true};
    return st;
}

void
exo_array_release(exo_array *array)
{
    if (array->owned)
        array->device->device_class->free(array->device, array->data, bytes_of(*array));
    *array = (exo_array){0};
}

exo_status
exo_array_import(exo_array *out, exo_device *device, exo_dtype dtype, const void *data,
                 size_t count, exo_err *err)
{
    if (device->device_class->is_host) {
        *out = (exo_array){
            .device = device, .data = (void *)(uintptr_t)data, .count = count, .dtype = dtype};
        return EXO_OK;
    }
    exo_status st = exo_array_init(out, device, dtype, count, err);
    if (st == EXO_OK)
        st = device->device_class->copy(device, out->data, data, bytes_of(*out), EXO_COPY_TO_DEVICE,
                                        err);
    if (st != EXO_OK)
        exo_array_release(out);
    return st;
}

exo_array
exo_array_part(exo_array array, size_t first, size_t count)
{
    assert(first <= array.count && count <= array.count - first);
    if (array.data)
        array.data = (char *)array.data + first * exo_dtype_size(array.dtype);
    array.count = count;
    array.owned = false;
    return array;
}

void *
exo_array_host(exo_array array)
{
    return array.device && array.device->device_class->is_host ? array.data : NULL;
}

exo_status
exo_array_read(exo_array array, void *to, exo_err *err)
{
    exo_err reason = {0};
    exo_device *device = array.device;
    if (array.count > 0)
        exo_device_note(device,
                        device->device_class->copy(device, to, array.data, bytes_of(array),
                                                   EXO_COPY_FROM_DEVICE, &reason),
                        &reason);
    return exo_device_synchronize(device, err);
}

void
exo_array_send(exo_array array, const void *from)
{
    exo_err reason = {0};
    exo_device *device = array.device;
    if (array.count > 0)
        exo_device_note(device,
                        device->device_class->copy(device, array.data, from, bytes_of(array),
                                                   EXO_COPY_TO_DEVICE, &reason),
                        &reason);
}

exo_status
exo_array_write(exo_array array, const void *from, exo_err *err)
{
    exo_array_send(array, from);
    return exo_device_synchronize(array.device, err);
}

void
exo_vec_copy(exo_array to, exo_array from)
{
    exo_err reason = {0};
    exo_device *device = to.device;
    assert(device == from.device && to.count == from.count && to.dtype == from.dtype);
    if (to.count > 0 && to.data != from.data)
        exo_device_note(device,
                        device->device_class->copy(device, to.data, from.data, bytes_of(to),
                                                   EXO_COPY_ON_DEVICE, &reason),
                        &reason);
}

exo_status
exo_plan_new(exo_plan **out, exo_device *device, exo_shape_kind kind, const void *shape,
             exo_err *err)
{
    *out = NULL;
    exo_status st = device->device_class->plan_new(out, device, kind, shape, err);
    if (st == EXO_OK) {
        (*out)->device = device;
        (*out)->kind = kind;
    }
    return st;
}

void
exo_plan_free(exo_plan **plan)
{
    if (*plan)
        (*plan)->device->device_class->plan_free(*plan);
    *plan = NULL;
}
