/* The terms of losses (exogym/loss.h), row by row in double. Kernels of losses and hand-written
 * gradients share them. Pure functions. */
#include <exogym/loss.h>

#include <math.h>

static double
clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

double
exo_policy_term(double log_ratio, double advantage, exo_policy_clip clip, double *slope)
{
    double ratio = exp(log_ratio);
    double loss = -ratio * advantage;
    double clipped = -clamp(ratio, 1 - clip.low, 1 + clip.high) * advantage;
    *slope = clipped > loss ? 0 : loss; /* d ratio / d log_ratio = ratio */
    loss = fmax(loss, clipped);
    if (clip.dual > 0 && advantage < 0 && loss > -clip.dual * advantage) {
        loss = -clip.dual * advantage;
        *slope = 0;
    }
    return loss;
}

double
exo_policy_loss_term(double log_ratio, double advantage, double clip, double *slope)
{
    return exo_policy_term(log_ratio, advantage, (exo_policy_clip){.low = clip, .high = clip},
                           slope);
}

double
exo_kl_term(exo_kl_kind kind, double log_ratio, double *slope)
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

double
exo_value_loss_term(double value, double old_value, double target, double clip, double *slope)
{
    double loss = (value - target) * (value - target);
    *slope = value - target;
    if (clip > 0) {
        double near = old_value + clamp(value - old_value, -clip, clip);
        double clipped = (near - target) * (near - target);
        if (clipped > loss) {
            loss = clipped;
            *slope = 0; /* `near` is at its bound: it differs from `value` */
        }
    }
    return 0.5 * loss;
}

double
exo_ranking_loss_term(double margin, double *slope)
{
    double small = exp(-fabs(margin)); /* the exponent is at most 0: no overflow */
    *slope = -(margin > 0 ? small : 1) / (1 + small);
    return log1p(small) + (margin > 0 ? 0 : -margin);
}

double
exo_entropy_term(size_t count, const float *logits, double scale, double log_sum)
{
    double entropy = 0;
    for (size_t v = 0; v < count; v++) {
        double log_p = (double)logits[v] * scale - log_sum, p = exp(log_p);
        if (p > 0) /* 0 log 0 counts as 0, although log 0 is infinite */
            entropy -= p * log_p;
    }
    return entropy;
}
