/* The sweeps of the optimizers and of gradient clipping: one pass over n elements, nothing but arithmetic.
 *
 * Formulas and their order of operations are those of torch.optim, so that results agree to rounding. Elements do not depend
 * on each other: how a buffer is cut into calls does not change a bit of the result. Buffers do not overlap. Any thread.
 *
 * Read next: nn/optim.c, which computes the constants of a step and cuts the buffer.
 */
#ifndef EXO_NN_OPTIM_KERNELS_H
#define EXO_NN_OPTIM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* Adam (Kingma & Ba, 2015, arXiv:1412.6980) and AdamW (Loshchilov & Hutter, 2019, arXiv:1711.05101). */
typedef struct exo_adam_step {
    float l2;     /* Adam's weight decay, added to the gradient; AdamW: 0           */
    float shrink; /* AdamW's weight decay, 1 - lr wd, on the parameter; Adam: 1     */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float sqrt_correction2; /* sqrt(1 - beta2^t)                                       */
    float eps;
    float step_size; /* lr / (1 - beta1^t)                                             */
} exo_adam_step;

void exo_kernel_adam(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
                     float *restrict exp_avg_sq, const exo_adam_step *step);
/* AMSGrad (Reddi et al., 2018, arXiv:1904.09237): the largest second moment so far, max_exp_avg_sq, in the denominator. */
void exo_kernel_amsgrad(size_t n, float *restrict param, const float *restrict grad, float *restrict exp_avg,
                        float *restrict exp_avg_sq, float *restrict max_exp_avg_sq, const exo_adam_step *step);

typedef struct exo_sgd_step {
    float l2;
    float momentum;
    float one_minus_dampening; /* 1 at the first step: the buffer starts as the gradient */
    bool nesterov;
    float lr;
} exo_sgd_step;

/* momentum_buffer: NULL if momentum is 0. */
void exo_kernel_sgd(size_t n, float *restrict param, const float *restrict grad, float *restrict momentum_buffer,
                    const exo_sgd_step *step);

/* RMSprop (Hinton, lecture 6e; centered: Graves, 2013, arXiv:1308.0850). */
typedef struct exo_rmsprop_step {
    float l2;
    float alpha, one_minus_alpha;
    float eps;
    float momentum;
    float lr;
} exo_rmsprop_step;

/* grad_avg: NULL if not centered. momentum_buffer: NULL if momentum is 0. */
void exo_kernel_rmsprop(size_t n, float *restrict param, const float *restrict grad, float *restrict square_avg,
                        float *restrict grad_avg, float *restrict momentum_buffer, const exo_rmsprop_step *step);

/* Adagrad (Duchi et al., 2011). */
typedef struct exo_adagrad_step {
    float l2;
    float eps;
    float lr; /* lr / (1 + (t - 1) lr_decay) */
} exo_adagrad_step;

void exo_kernel_adagrad(size_t n, float *restrict param, const float *restrict grad, float *restrict sum,
                        const exo_adagrad_step *step);

/* The sum of squares in double, in an order that depends on n alone. */
double exo_kernel_sum_squares(size_t n, const float *x);
void exo_kernel_scale(size_t n, float *x, float factor);

#endif
