/* Gradient clipping by the global norm. No state. Read next: optim.c. */
#include <exogym/optim.h>

#include <assert.h>
#include <math.h>

#include "nn/device/device_impl.h"

exo_status
exo_clip_grad_norm(exo_array grads, float max_norm, float *norm, exo_err *err)
{
    double sum = 0;
    exo_status st = exo_vec_sum_squares(grads, 0, &sum, err);
    if (st != EXO_OK)
        return st;
    *norm = (float)sqrt(sum);
    exo_clip_to_norm(grads, max_norm, *norm);
    return EXO_OK;
}

void
exo_clip_to_norm(exo_array grads, float max_norm, float norm)
{
    float factor = max_norm / (norm + 1e-6f);
    if (!(factor >= 1.0f)) /* also for NaN, which then spreads */
        exo_vec_scale(grads, factor);
}

void
exo_clip_count(exo_array square, exo_array grads, bool add)
{
    assert(square.device == grads.device && square.count == sizeof(double));
    assert(square.dtype == EXO_U8 && grads.dtype == EXO_F32);
    exo_device_run(grads.device, sum_squares, .count = grads.count, .x = grads.data,
                   .out = square.data, .add = add);
}

void
exo_clip_add_up(exo_array square, exo_array squares)
{
    assert(square.device == squares.device && square.count == sizeof(double));
    assert(square.dtype == EXO_U8 && squares.dtype == EXO_U8);
    assert(squares.count % sizeof(double) == 0);
    exo_device_run(square.device, clip, .squares = squares.data,
                   .parts = squares.count / sizeof(double), .sum = square.data);
}

void
exo_clip_scale(exo_array grads, float max_norm, exo_array squares, exo_array norm)
{
    assert(squares.device == grads.device && norm.device == grads.device);
    assert(squares.dtype == EXO_U8 && squares.count % sizeof(double) == 0);
    assert(grads.dtype == EXO_F32 && norm.dtype == EXO_F32 && norm.count == 1);
    exo_device_run(grads.device, clip, .count = grads.count, .y = grads.data, .max_norm = max_norm,
                   .squares = squares.data, .parts = squares.count / sizeof(double),
                   .norm = norm.data);
}
