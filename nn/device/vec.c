/* Arithmetic on whole arrays: each function checks types and counts, then asks the device for one
 * kernel. No state. Read next: device_impl.h. */
#include "nn/device/device_impl.h"

#include <assert.h>

/* The elements as fp32. Arrays of another device, count or type are the caller's mistake, and so are
 * those without memory, as node->grads of a strategy that declares steps_alone. */
static float *
floats(exo_array array, exo_array like)
{
    assert(array.device == like.device && array.count == like.count && array.dtype == EXO_F32);
    assert((array.data || array.count == 0) && "an array without memory, perhaps of steps_alone");
    (void)like;
    return array.data;
}

void
exo_vec_fill(exo_array y, float value)
{
    exo_device_run(y.device, fill, .count = y.count, .y = floats(y, y), .value = value);
}

void
exo_vec_scale(exo_array y, float a)
{
    exo_device_run(y.device, scale, .count = y.count, .y = floats(y, y), .a = a, .x = y.data);
}

void
exo_vec_divide(exo_array y, float a)
{
    exo_device_run(y.device, divide, .count = y.count, .y = floats(y, y), .a = a);
}

void
exo_vec_axpy(exo_array y, float a, exo_array x)
{
    exo_device_run(y.device, axpy, .count = y.count, .y = floats(y, y), .a = a, .x = floats(x, y));
}

void
exo_vec_add(exo_array y, exo_array a, exo_array b)
{
    assert(a.device == y.device && a.count == y.count && a.dtype == y.dtype);
    assert(b.device == y.device && b.count == y.count && b.dtype == y.dtype);
    assert(y.dtype == EXO_F32 || y.dtype == EXO_BF16 || y.dtype == EXO_I32);
    exo_device_run(y.device, add, .count = y.count, .dtype = y.dtype, .y = y.data, .a = a.data,
                   .b = b.data);
}

void
exo_vec_sub(exo_array y, exo_array a, exo_array b)
{
    exo_device_run(y.device, sub, .count = y.count, .y = floats(y, y), .a = floats(a, y),
                   .b = floats(b, y));
}

void
exo_vec_mul(exo_array y, exo_array a, exo_array b)
{
    exo_device_run(y.device, mul, .count = y.count, .y = floats(y, y), .a = floats(a, y),
                   .b = floats(b, y));
}

void
exo_vec_lerp(exo_array y, float t, exo_array x)
{
    exo_device_run(y.device, lerp, .count = y.count, .y = floats(y, y), .t = t, .x = floats(x, y));
}

void
exo_vec_sign(exo_array y, exo_array x)
{
    exo_device_run(y.device, sign, .count = y.count, .y = floats(y, y), .x = floats(x, y));
}

void
exo_vec_standardize(exo_array y, exo_array x, double mean, double factor)
{
    exo_device_run(y.device, standardize, .count = y.count, .y = floats(y, y), .x = floats(x, y),
                   .mean = mean, .factor = factor);
}

void
exo_vec_cast(exo_array y, exo_array x)
{
    assert(y.device == x.device && y.count == x.count);
    if (y.dtype == x.dtype) {
        exo_vec_copy(y, x);
        return;
    }
    assert((y.dtype == EXO_F32 && x.dtype == EXO_BF16) ||
           (y.dtype == EXO_BF16 && x.dtype == EXO_F32));
    exo_device_run(y.device, cast, .count = y.count, .to = y.dtype, .from = x.dtype, .y = y.data,
                   .x = x.data);
}

void
exo_vec_gather(exo_array y, exo_array x, exo_array index)
{
    assert(x.device == y.device && x.dtype == EXO_F32);
    assert(index.device == y.device && index.count == y.count && index.dtype == EXO_I32);
    exo_device_run(y.device, gather, .count = y.count, .y = floats(y, y), .x = x.data,
                   .index = index.data);
}

void
exo_vec_scatter(exo_array y, exo_array index, exo_array x)
{
    assert(y.device == x.device && y.dtype == EXO_F32);
    assert(index.device == x.device && index.count == x.count && index.dtype == EXO_I32);
    exo_device_run(y.device, scatter, .count = x.count, .y = y.data, .index = index.data,
                   .x = floats(x, x));
}

void
exo_vec_trimmed_mean(exo_array y, exo_array x, size_t rows, size_t trim)
{
    assert(x.device == y.device && x.dtype == EXO_F32);
    assert(2 * trim < rows && y.count <= x.count / rows);
    exo_device_run(y.device, trimmed_mean, .count = y.count, .rows = rows, .pitch = x.count / rows,
                   .trim = trim, .y = floats(y, y), .x = x.data);
}

/* --- Sums: the device leaves one number, which the host waits for ----------------------------- */

static exo_status
fetch(exo_device *device, double *out, exo_err *err)
{
    if (!device->scalar)
        return exo_device_synchronize(device, err);
    exo_err reason = {0};
    *out = 0;
    exo_device_note(device,
                    device->device_class->copy(device, out, device->scalar, sizeof *out,
                                               EXO_COPY_FROM_DEVICE, &reason),
                    &reason);
    return exo_device_synchronize(device, err);
}

exo_status
exo_vec_sum(exo_array x, double *out, exo_err *err)
{
    double *at = x.device->scalar ? x.device->scalar : out;
    exo_device_run(x.device, sum, .count = x.count, .x = floats(x, x), .out = at);
    return fetch(x.device, out, err);
}

exo_status
exo_vec_sum_squares(exo_array x, double center, double *out, exo_err *err)
{
    double *at = x.device->scalar ? x.device->scalar : out;
    exo_device_run(x.device, sum_squares, .count = x.count, .x = floats(x, x), .center = center,
                   .out = at);
    return fetch(x.device, out, err);
}

exo_status
exo_vec_dot(exo_array a, exo_array b, double *out, exo_err *err)
{
    double *at = a.device->scalar ? a.device->scalar : out;
    exo_device_run(a.device, dot, .count = a.count, .a = floats(a, a), .b = floats(b, a),
                   .out = at);
    return fetch(a.device, out, err);
}
