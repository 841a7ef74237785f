/* The terms of losses (exogym/loss.h), row by row in double: once for the host, in loss_terms.c, and
 * for the kernels of a GPU, in nn/cuda/losses.cu. Pure functions. */
#ifndef EXO_LOSS_TERMS_H
#define EXO_LOSS_TERMS_H

#include <math.h>

#include <exogym/loss.h>

#ifdef __CUDACC__
#define EXO_LOSS_TERM __host__ __device__ static inline double
#else
#define EXO_LOSS_TERM static inline double
#endif

EXO_LOSS_TERM
exo_term_clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

EXO_LOSS_TERM
exo_term_of_policy(double log_ratio, double advantage, exo_policy_clip clip, double *slope)
{
    double ratio = exp(log_ratio);
    if (advantage == 0 && isinf(ratio)) { /* infinity times 0 would be NaN */
        *slope = 0;
        return 0;
    }
    double loss = -ratio * advantage;
    double clipped = -exo_term_clamp(ratio, 1 - clip.low, 1 + clip.high) * advantage;
    *slope = clipped > loss ? 0 : loss; /* d ratio / d log_ratio = ratio */
    loss = fmax(loss, clipped);
    if (clip.dual > 0 && advantage < 0 && loss > -clip.dual * advantage) {
        loss = -clip.dual * advantage;
        *slope = 0;
    }
    return loss;
}

EXO_LOSS_TERM
exo_term_of_kl(exo_kl_kind kind, double log_ratio, double *slope)
{
    switch (kind) {
    case EXO_KL_K1:
        *slope = 1;
        return log_ratio;
    case EXO_KL_K2:
        *slope = log_ratio;
        return 0.5 * log_ratio * log_ratio;
    case EXO_KL_K3:
        break;
    }
    *slope = -expm1(-log_ratio);
    return log_ratio - *slope;
}

EXO_LOSS_TERM
exo_term_of_value(double value, double old_value, double target, double clip, double *slope)
{
    double loss = (value - target) * (value - target);
    *slope = value - target;
    if (clip > 0) {
        double near = old_value + exo_term_clamp(value - old_value, -clip, clip);
        double clipped = (near - target) * (near - target);
        if (clipped > loss) {
            loss = clipped;
            *slope = 0; /* `near` is at its bound: it differs from `value` */
        }
    }
    return 0.5 * loss;
}

EXO_LOSS_TERM
exo_term_of_ranking(double margin, double *slope)
{
    double small = exp(-fabs(margin)); /* the exponent is at most 0: no overflow */
    *slope = -(margin > 0 ? small : 1) / (1 + small);
    return log1p(small) + (margin > 0 ? 0 : -margin);
}

#endif
