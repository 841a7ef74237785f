/* Losses: operations of the tape (tensor.h) from the outputs of a model to one element, at which
 * backward starts.
 *
 * Shapes: R rows (samples, or tokens of all sequences), V classes (actions, or a vocabulary).
 * Targets are int32. A negative target means no target: its row does not count. Masks are fp32 (R)
 * and weigh the rows. A row with mask 0 is not read, whatever values it has. A NULL mask gives all
 * rows weight 1. All losses are fp32, also under autocast; terms of rows are computed in double. A
 * NULL operand gives NULL, and errors are kept by the tape.
 *
 * Softmaxes compute in fp32. Log-probabilities are those of the logits times 1 / temperature, each
 * product rounded to fp32 as in generation: they are off by up to 2^-23 of the largest |logit /
 * temperature|, and so, relative to themselves, are probabilities in gradients. An entropy depends
 * on differences of logits only, and has no such error. A NaN among the logits of a row makes its
 * result NaN.
 */
#ifndef EXOGYM_LOSS_H
#define EXOGYM_LOSS_H

#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* Logits (R, V): a tensor, or the product of features and a head. Losses compute the product a
 * piece at a time, so all logits are never in memory at once. Plain data, passed by value. */
typedef struct exo_logits {
    exo_tensor *x;      /* without `weight` the logits (R, V), else features (R, W) */
    exo_tensor *weight; /* (V, W): logits = x weight^T; NULL: x is the logits */
} exo_logits;

/* All logits as one tensor (R, V): x itself, or exo_linear(x, weight). */
EXO_API exo_tensor *exo_logits_tensor(exo_tape *tape, exo_logits logits);

/* The mean of -log softmax(logits)[target] over the rows that have a target -> one element; 0 if no
 * row has one. targets (R). Calls exo_softmax_cross_entropy or exo_linear_cross_entropy. INVAL: a
 * target of V or more. */
EXO_API exo_tensor *exo_cross_entropy(exo_tape *tape, exo_logits logits, exo_tensor *targets);
/* log softmax(logits / temperature)[target] of each row -> (R); 0 in rows without a target. In a
 * pass that is `invariant` (exo_pass) they are those of generation, to the bit. temperature 0
 * counts as 1. INVAL: a target of V or more, or a temperature that is negative or NaN, or whose
 * reciprocal is infinite. */
EXO_API exo_tensor *exo_log_probs(exo_tape *tape, exo_logits logits, exo_tensor *targets,
                                  float temperature);
/* The entropy of softmax(logits / temperature) in nats -> (R). temperature 0 counts as 1. INVAL: as
 * above. */
EXO_API exo_tensor *exo_entropy(exo_tape *tape, exo_logits logits, float temperature);

/* sum(mask x) / sum(mask) over the elements whose mask is not 0 -> one element; 0 if there is none.
 * x and mask have the same number of elements. A NULL mask: exo_mean. The mask gets no gradient. */
EXO_API exo_tensor *exo_masked_mean(exo_tape *tape, exo_tensor *x, exo_tensor *mask);

/* sum(mask x) over the elements whose mask is not 0 -> one element. The mask may have any weights,
 * and gets no gradient. A mean over tokens, or of the means of sequences, is such a sum
 * (exo_token_weights in learning.h). */
EXO_API exo_tensor *exo_masked_sum(exo_tape *tape, exo_tensor *x, exo_tensor *mask);
/* The sums of x over sequences, sum(mask x) over the rows [offsets[n], offsets[n + 1]) whose mask
 * is not 0 -> (N). x (R); mask (R) or NULL; offsets (N + 1) int32, an input of the pass, which do
 * not decrease and lie in [0, R]. Of log-probabilities this is that of each sequence. INVAL: other
 * offsets. */
EXO_API exo_tensor *exo_sequence_sum(exo_tape *tape, exo_tensor *x, exo_tensor *mask,
                                     exo_tensor *offsets);

/* PPO's clipped policy loss (Schulman et al., 2017, arXiv:1707.06347, eq. 7): the masked mean over
 * rows of
 *
 *     max(-rho A, -clip(rho, 1 - clip, 1 + clip) A), rho = exp(log_prob - old_log_prob)
 *
 * log_probs (R): of the actions under the policy that learns. old_log_probs (R): under the policy
 * that acted. advantages A (R). Only log_probs get gradients. INVAL: a clip that is negative or
 * NaN. */
EXO_API exo_tensor *exo_policy_loss(exo_tape *tape, exo_tensor *log_probs,
                                    exo_tensor *old_log_probs, exo_tensor *advantages,
                                    exo_tensor *mask, float clip);

/* Bounds of a policy loss. Plain data, passed by value. */
typedef struct exo_policy_clip {
    /* The ratio is clipped to [1 - low, 1 + high]. Bounds that differ: arXiv:2503.14476.
     * INFINITY: no bound. */
    double low, high;
    /* The term of a row with A < 0 is at most -dual A (Ye et al., 2020, arXiv:1912.09729);
     * above 1. 0: no bound. */
    double dual;
} exo_policy_clip;

/* The terms of exo_policy_loss, one of each row, with other bounds -> (R):
 *
 *     term = max(-rho A, -clip(rho, 1 - low, 1 + high) A), and min(term, -dual A) where A < 0
 *
 * 0 where the mask is 0. Their sum by weights is a loss (exo_masked_sum). A row may be a whole
 * sequence (exo_sequence_sum). INVAL: a bound that is negative or NaN, or dual in (0, 1]. */
EXO_API exo_tensor *exo_policy_terms(exo_tape *tape, exo_tensor *log_probs,
                                     exo_tensor *old_log_probs, exo_tensor *advantages,
                                     exo_tensor *mask, exo_policy_clip clip);

/* Estimators of KL(pi || ref) from a sample of pi (Schulman, 2020, "Approximating KL divergence"),
 * with l = log pi - log ref. k1 and k3 are unbiased. The mean of their gradients differs: that of
 * k2 is the gradient of KL(pi || ref), that of k3 the gradient of KL(ref || pi), that of k1 is
 * 0. */
typedef enum exo_kl_kind {
    EXO_KL_K1, /* l */
    EXO_KL_K2, /* l^2 / 2 */
    EXO_KL_K3, /* exp(-l) - 1 + l; never negative */
} exo_kl_kind;

/* The estimate of each row -> (R), 0 where the mask is 0. log_probs, ref_log_probs (R); mask (R) or
 * NULL. Only log_probs get gradients. */
EXO_API exo_tensor *exo_kl_terms(exo_tape *tape, exo_tensor *log_probs, exo_tensor *ref_log_probs,
                                 exo_tensor *mask, exo_kl_kind kind);
/* PPO's clipped value loss: the masked mean over rows of
 *
 *     0.5 max((V - R)^2, (V_old + clip(V - V_old, -clip, clip) - R)^2)
 *
 * values V, old_values V_old, returns R have the same number of elements. With clip 0 it is 0.5 (V
 * - R)^2, and old_values may be NULL. Only values get gradients. INVAL: a clip that is negative or
 * NaN. */
EXO_API exo_tensor *exo_value_loss(exo_tape *tape, exo_tensor *values, exo_tensor *old_values,
                                   exo_tensor *returns, exo_tensor *mask, float clip);
/* Pairwise ranking loss (Bradley & Terry, 1952; reward models as in Ouyang et al., 2022,
 * arXiv:2203.02155, eq. 1): the mean over N pairs of -log sigmoid(chosen - rejected). scores: 2 N
 * elements, the chosen one first in each pair. */
EXO_API exo_tensor *exo_ranking_loss(exo_tape *tape, exo_tensor *scores);
/* The same if a pair is the wrong way round with probability `smoothing`: the mean of
 *
 *     -(1 - smoothing) log sigmoid(chosen - rejected) - smoothing log sigmoid(rejected - chosen)
 *
 * INVAL: smoothing outside [0, 0.5]. */
EXO_API exo_tensor *exo_smoothed_ranking_loss(exo_tape *tape, exo_tensor *scores, float smoothing);

/* --- Terms of single rows, in double, for code without a tape. Pure functions; any thread. ---- */

/* The term of a row in exo_policy_loss, with log_ratio = log_prob - old_log_prob, and its
 * derivative by log_ratio in *slope. */
EXO_API double exo_policy_loss_term(double log_ratio, double advantage, double clip, double *slope);
/* The same of a row in exo_policy_terms. */
EXO_API double exo_policy_term(double log_ratio, double advantage, exo_policy_clip clip,
                               double *slope);
/* The term of a row in exo_kl_terms, with log_ratio = log_prob - ref_log_prob, and its derivative
 * by log_ratio in *slope. */
EXO_API double exo_kl_term(exo_kl_kind kind, double log_ratio, double *slope);
/* The term of a row in exo_value_loss, and its derivative by `value` in *slope. */
EXO_API double exo_value_loss_term(double value, double old_value, double target, double clip,
                                   double *slope);
/* The term of a pair in exo_ranking_loss, with margin = chosen - rejected, and its derivative by
 * the margin in *slope. */
EXO_API double exo_ranking_loss_term(double margin, double *slope);
/* The entropy -sum_v p log p, where log p = scale logits[v] - log_sum and log_sum = log sum_v
 * exp(scale logits[v]). logits (count). */
EXO_API double exo_entropy_term(size_t count, const float *logits, double scale, double log_sum);

EXO_DECLS_END

#endif
