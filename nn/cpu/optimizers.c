/* Steps of optimizers, in pieces: plain loops that compilers vectorize. No branch depends on data,
 * and square root and division are those of IEEE 754. So the results do not depend on the width of
 * vectors or on the pieces. No state. Read next: nn/ref/ref_device.c, the same rules without
 * pieces. */
#include "nn/cpu/cpu_device.h"

#include <math.h>

static void
sweep_adam(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
           float *restrict exp_avg_sq, const exo_adam_args *args)
{
    const exo_adam_args s = *args;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float m = s.beta1 * exp_avg[i] + s.one_minus_beta1 * g;
        float v = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        float denominator = sqrtf(v) / s.now.sqrt_correction2 + s.eps;
        param[i] = param[i] * s.now.shrink - s.now.step_size * m / denominator;
    }
}

static void
sweep_amsgrad(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
              float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, const exo_adam_args *args)
{
    const exo_adam_args s = *args;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float m = s.beta1 * exp_avg[i] + s.one_minus_beta1 * g;
        float v = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * g * g;
        float top = max_exp_avg_sq[i] > v ? max_exp_avg_sq[i] : v; /* NaN if v is NaN */
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        max_exp_avg_sq[i] = top;
        float denominator = sqrtf(top) / s.now.sqrt_correction2 + s.eps;
        param[i] = param[i] * s.now.shrink - s.now.step_size * m / denominator;
    }
}

static void
sweep_sgd(size_t n, float *restrict param, const float *restrict grad,
          float *restrict momentum_buffer, const exo_sgd_args *args)
{
    const exo_sgd_args s = *args;
    if (!momentum_buffer) {
        for (size_t i = 0; i < n; i++)
            param[i] -= s.now.lr * (grad[i] + s.l2 * param[i]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float b = s.now.momentum * momentum_buffer[i] + s.now.one_minus_dampening * g;
        momentum_buffer[i] = b;
        param[i] -= s.now.lr * (s.nesterov ? g + s.now.momentum * b : b);
    }
}

static void
sweep_rmsprop(size_t n, float *restrict param, const float *restrict grad,
              float *restrict square_avg, float *restrict grad_avg, float *restrict momentum_buffer,
              const exo_rmsprop_args *args)
{
    const exo_rmsprop_args s = *args;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float v = s.alpha * square_avg[i] + s.one_minus_alpha * g * g;
        square_avg[i] = v;
        if (grad_avg) {
            float a = s.alpha * grad_avg[i] + s.one_minus_alpha * g;
            grad_avg[i] = a;
            v -= a * a;
            /* A negative variance comes from rounding; PyTorch returns NaN for it. A NaN stays. */
            v = v < 0.0f ? 0.0f : v;
        }
        float denominator = sqrtf(v) + s.eps;
        if (momentum_buffer) {
            float b = s.now.momentum * momentum_buffer[i] + g / denominator;
            momentum_buffer[i] = b;
            param[i] -= s.now.lr * b;
        } else {
            param[i] -= s.now.lr * g / denominator;
        }
    }
}

static void
sweep_adagrad(size_t n, float *restrict param, const float *restrict grad, float *restrict sum,
              const exo_adagrad_args *args)
{
    const exo_adagrad_args s = *args;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float v = sum[i] + g * g;
        sum[i] = v;
        param[i] -= s.now.lr * g / (sqrtf(v) + s.eps);
    }
}

/* --- In pieces -------------------------------------------------------------------------------- */

/* The part of a buffer that begins at element `first`; NULL for a buffer that the rule lacks. */
static float *
part(float *buffer, size_t first)
{
    return buffer ? buffer + first : NULL;
}

static void
adam_piece(void *args, size_t piece)
{
    const exo_adam_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    if (k->max_exp_avg_sq)
        sweep_amsgrad(end - first, k->param + first, k->grad + first, k->exp_avg + first,
                      k->exp_avg_sq + first, k->max_exp_avg_sq + first, k);
    else
        sweep_adam(end - first, k->param + first, k->grad + first, k->exp_avg + first,
                   k->exp_avg_sq + first, k);
}

static void
sgd_piece(void *args, size_t piece)
{
    const exo_sgd_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    sweep_sgd(end - first, k->param + first, k->grad + first, part(k->momentum_buffer, first), k);
}

static void
rmsprop_piece(void *args, size_t piece)
{
    const exo_rmsprop_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    sweep_rmsprop(end - first, k->param + first, k->grad + first, k->square_avg + first,
                  part(k->grad_avg, first), part(k->momentum_buffer, first), k);
}

static void
adagrad_piece(void *args, size_t piece)
{
    const exo_adagrad_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    sweep_adagrad(end - first, k->param + first, k->grad + first, k->sum + first, k);
}

#define STEP(NAME)                                                                                 \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        return exo_cpu_sweep(args->count, NAME##_piece, args);                                     \
    }

STEP(adam)
STEP(sgd)
STEP(rmsprop)
STEP(adagrad)
