/* Optimizers, element by element: formulas are device_impl.h's, in this order of operations. A
 * thread reads all that it needs before it writes, so that its reads are under way together. No
 * state. */
#include "nn/cuda/each.h"

__device__ static inline void
adam_at(const exo_adam_args &k, size_t i)
{
    const float param = k.param[i], grad = k.grad[i], old_m = k.exp_avg[i];
    const float old_v = k.exp_avg_sq[i], max = k.max_exp_avg_sq ? k.max_exp_avg_sq[i] : 0;
    const float g = grad + k.l2 * param;
    const float m = k.beta1 * old_m + k.one_minus_beta1 * g;
    float v = k.beta2 * old_v + k.one_minus_beta2 * g * g;
    k.exp_avg[i] = m;
    k.exp_avg_sq[i] = v;
    if (k.max_exp_avg_sq) {
        v = max > v ? max : v; /* v also if it is NaN: the NaN is kept */
        k.max_exp_avg_sq[i] = v;
    }
    k.param[i] =
        param * k.now.shrink - k.now.step_size * m / (sqrtf(v) / k.now.sqrt_correction2 + k.eps);
}

__device__ static inline void
sgd_at(const exo_sgd_args &k, size_t i)
{
    const float param = k.param[i], buffer = k.momentum_buffer ? k.momentum_buffer[i] : 0;
    float g = k.grad[i] + k.l2 * param;
    if (k.momentum_buffer) {
        const float b = k.now.momentum * buffer + k.now.one_minus_dampening * g;
        k.momentum_buffer[i] = b;
        g = k.nesterov ? g + k.now.momentum * b : b;
    }
    k.param[i] = param - k.now.lr * g;
}

__device__ static inline void
rmsprop_at(const exo_rmsprop_args &k, size_t i)
{
    const float param = k.param[i], grad = k.grad[i], old_v = k.square_avg[i];
    const float old_a = k.grad_avg ? k.grad_avg[i] : 0;
    const float buffer = k.momentum_buffer ? k.momentum_buffer[i] : 0;
    const float g = grad + k.l2 * param;
    float v = k.alpha * old_v + k.one_minus_alpha * g * g;
    k.square_avg[i] = v;
    if (k.grad_avg) {
        const float a = k.alpha * old_a + k.one_minus_alpha * g;
        k.grad_avg[i] = a;
        v = v - a * a;
        v = v < 0 ? 0 : v; /* a negative variance comes from rounding; a NaN stays */
    }
    const float denominator = sqrtf(v) + k.eps;
    if (k.momentum_buffer) {
        const float b = k.now.momentum * buffer + g / denominator;
        k.momentum_buffer[i] = b;
        k.param[i] = param - k.now.lr * b;
    } else {
        k.param[i] = param - k.now.lr * g / denominator;
    }
}

__device__ static inline void
adagrad_at(const exo_adagrad_args &k, size_t i)
{
    const float param = k.param[i], g = k.grad[i] + k.l2 * param, sum = k.sum[i] + g * g;
    k.sum[i] = sum;
    k.param[i] = param - k.now.lr * g / (sqrtf(sum) + k.eps);
}

EXO_CUDA_EACH_NOW(adam, adam_at(k, i))
EXO_CUDA_EACH_NOW(sgd, sgd_at(k, i))
EXO_CUDA_EACH_NOW(rmsprop, rmsprop_at(k, i))
EXO_CUDA_EACH_NOW(adagrad, adagrad_at(k, i))
