/* Optimizer sweeps, written as plain loops that compilers vectorize: no branch depends on data, and square root and division
 * are IEEE's, so the results are the same with any width of vectors. */
#include "optim_kernels.h"

#include <math.h>

void
exo_kernel_adam(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
                float *restrict exp_avg_sq, const exo_adam_step *step)
{
    const exo_adam_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float m = s.beta1 * exp_avg[i] + s.one_minus_beta1 * g;
        float v = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * g * g;
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        float denominator = sqrtf(v) / s.sqrt_correction2 + s.eps;
        param[i] = param[i] * s.shrink - s.step_size * m / denominator;
    }
}

void
exo_kernel_amsgrad(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
                   float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, const exo_adam_step *step)
{
    const exo_adam_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float m = s.beta1 * exp_avg[i] + s.one_minus_beta1 * g;
        float v = s.beta2 * exp_avg_sq[i] + s.one_minus_beta2 * g * g;
        float top = max_exp_avg_sq[i] > v ? max_exp_avg_sq[i] : v; /* NaN, if v is: it stays so */
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
        max_exp_avg_sq[i] = top;
        float denominator = sqrtf(top) / s.sqrt_correction2 + s.eps;
        param[i] = param[i] * s.shrink - s.step_size * m / denominator;
    }
}

void
exo_kernel_sgd(size_t n, float *restrict param, const float *restrict grad, float *restrict momentum_buffer,
               const exo_sgd_step *step)
{
    const exo_sgd_step s = *step;
    if (!momentum_buffer) {
        for (size_t i = 0; i < n; i++)
            param[i] -= s.lr * (grad[i] + s.l2 * param[i]);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float b = s.momentum * momentum_buffer[i] + s.one_minus_dampening * g;
        momentum_buffer[i] = b;
        param[i] -= s.lr * (s.nesterov ? g + s.momentum * b : b);
    }
}

void
exo_kernel_rmsprop(size_t n, float *restrict param, const float *restrict grad, float *restrict square_avg,
                   float *restrict grad_avg, float *restrict momentum_buffer, const exo_rmsprop_step *step)
{
    const exo_rmsprop_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float v = s.alpha * square_avg[i] + s.one_minus_alpha * g * g;
        square_avg[i] = v;
        if (grad_avg) {
            float a = s.alpha * grad_avg[i] + s.one_minus_alpha * g;
            grad_avg[i] = a;
            v -= a * a;
            v = v < 0.0f ? 0.0f : v; /* a variance below zero is rounding; PyTorch gives NaN there. NaN stays NaN */
        }
        float denominator = sqrtf(v) + s.eps;
        if (momentum_buffer) {
            float b = s.momentum * momentum_buffer[i] + g / denominator;
            momentum_buffer[i] = b;
            param[i] -= s.lr * b;
        } else {
            param[i] -= s.lr * g / denominator;
        }
    }
}

void
exo_kernel_adagrad(size_t n, float *restrict param, const float *restrict grad, float *restrict sum,
                   const exo_adagrad_step *step)
{
    const exo_adagrad_step s = *step;
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] + s.l2 * param[i];
        float v = sum[i] + g * g;
        sum[i] = v;
        param[i] -= s.lr * g / (sqrtf(v) + s.eps);
    }
}

double
exo_kernel_sum_squares(size_t n, const float *x)
{
    /* As many chains of additions as fill the vector units; they are joined in a fixed order. */
    enum {
        LANES = 32
    };
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            lanes[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i < n; i++, l++)
        lanes[l] += (double)x[i] * (double)x[i];
    double sum = 0;
    for (size_t l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

void
exo_kernel_scale(size_t n, float *x, float factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}
