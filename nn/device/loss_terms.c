/* The terms of losses (exogym/loss.h) as functions. Kernels of losses and hand-written gradients
 * share them. Pure functions. Read next: loss_terms.h. */
#include "nn/device/loss_terms.h"

double
exo_policy_term(double log_ratio, double advantage, exo_policy_clip clip, double *slope)
{
    return exo_term_of_policy(log_ratio, advantage, clip, slope);
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
    return exo_term_of_kl(kind, log_ratio, slope);
}

double
exo_value_loss_term(double value, double old_value, double target, double clip, double *slope)
{
    return exo_term_of_value(value, old_value, target, clip, slope);
}

double
exo_ranking_loss_term(double margin, double *slope)
{
    return exo_term_of_ranking(margin, slope);
}

double
exo_entropy_term(size_t count, const float *logits, double scale, double log_sum)
{
    double entropy = 0;
    for (size_t v = 0; v < count; v++) {
        double log_p = (double)logits[v] * scale - log_sum, p = exp(log_p);
        if (p != 0) /* 0 log 0 counts as 0, although log 0 is infinite; a NaN spreads */
            entropy -= p * log_p;
    }
    return entropy;
}
