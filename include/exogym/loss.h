/* Losses: operations of the tape over what models give, to the one element that backward starts
 * from.
 *
 * Shapes: R rows (samples, or tokens of all sequences), V classes (actions, or a vocabulary).
 * Targets are int32; a negative one is none: its row counts for nothing. Masks are fp32 (R): a row
 * with 0 is not looked at, whatever numbers it has, others weigh as much as their mask; NULL: all
 * rows weigh 1. Everything is in fp32, also under autocast, each row computed in double. NULL in,
 * NULL out; errors are the tape's.
 */
#ifndef EXOGYM_LOSS_H
#define EXOGYM_LOSS_H

#include <exogym/tensor.h>

EXO_DECLS_BEGIN

/* Logits (R, V): a tensor, or the product of features and a head, of which losses compute a piece
 * at a time so that all of them are never there at once. Plain data, passed by value. */
typedef struct exo_logits {
    exo_tensor *x;      /* without a weight the logits (R, V), else features (R, W) */
    exo_tensor *weight; /* (V, W): the logits are x weight^T; NULL: x has them */
} exo_logits;

/* All of them as one tensor (R, V): x itself, or exo_linear(x, weight). */
EXO_API exo_tensor *exo_logits_tensor(exo_tape *tape, exo_logits logits);

/* Mean of -log softmax(logits)[target] over the rows that have a target -> one element; 0 if none
 * has. targets (R). exo_softmax_cross_entropy or exo_linear_cross_entropy. INVAL: a target from V
 * on. */
EXO_API exo_tensor *exo_cross_entropy(exo_tape *tape, exo_logits logits, exo_tensor *targets);
/* log softmax(logits / temperature)[target] of each row -> (R); 0 where there is no target.
 * temperature 0 counts as 1. INVAL: as above, and a temperature that is negative or no number. */
EXO_API exo_tensor *exo_log_probs(exo_tape *tape, exo_logits logits, exo_tensor *targets,
                                  float temperature);
/* Entropy of softmax(logits / temperature) in nats -> (R). temperature 0 counts as 1; INVAL: as
 * above. */
EXO_API exo_tensor *exo_entropy(exo_tape *tape, exo_logits logits, float temperature);

/* sum(mask x) / sum(mask) over the elements whose mask is not 0 -> one element; 0 if there is none.
 * x and mask have equally many elements; a mask of NULL: exo_mean. No gradient goes into the
 * mask. */
EXO_API exo_tensor *exo_masked_mean(exo_tape *tape, exo_tensor *x, exo_tensor *mask);

/* PPO's clipped policy loss (Schulman et al., 2017, arXiv:1707.06347, eq. 7), the masked mean over
 * rows of
 *
 *     max(-rho A, -clip(rho, 1 - clip, 1 + clip) A), rho = exp(log_prob - old_log_prob)
 *
 * log_probs (R) of the actions under the policy that learns, old_log_probs under the one that
 * acted, advantages A: equally many elements. Gradients go into log_probs. INVAL: a clip that is
 * negative or no number. */
EXO_API exo_tensor *exo_policy_loss(exo_tape *tape, exo_tensor *log_probs,
                                    exo_tensor *old_log_probs, exo_tensor *advantages,
                                    exo_tensor *mask, float clip);
/* PPO's clipped value loss, the masked mean over rows of
 *
 *     0.5 max((V - R)^2, (V_old + clip(V - V_old, -clip, clip) - R)^2)
 *
 * values V, old_values V_old, returns R: equally many elements; clip 0: 0.5 (V - R)^2, and
 * old_values may be NULL. Gradients go into values. INVAL: a clip that is negative or no number. */
EXO_API exo_tensor *exo_value_loss(exo_tape *tape, exo_tensor *values, exo_tensor *old_values,
                                   exo_tensor *returns, exo_tensor *mask, float clip);
/* Pairwise ranking (Bradley & Terry, 1952; reward models as in Ouyang et al., 2022,
 * arXiv:2203.02155, eq. 1): the mean over N pairs of -log sigmoid(chosen - rejected). scores: 2 N
 * elements, in each pair the chosen one first. */
EXO_API exo_tensor *exo_ranking_loss(exo_tape *tape, exo_tensor *scores);

/* --- The terms of single rows, in double: for passes without a tape. Pure functions, any thread  */

/* A row of exo_policy_loss, with log_ratio = log_prob - old_log_prob, and its slope by
 * log_ratio. */
EXO_API double exo_policy_loss_term(double log_ratio, double advantage, double clip, double *slope);
/* A row of exo_value_loss, and its slope by `value`. */
EXO_API double exo_value_loss_term(double value, double old_value, double target, double clip,
                                   double *slope);
/* A pair of exo_ranking_loss by margin = chosen - rejected, and its slope by the margin. */
EXO_API double exo_ranking_loss_term(double margin, double *slope);
/* -sum_v p log p, log p = scale logits[v] - log_sum; logits (count). log_sum is log sum_v e^(scale
 * logits[v]). */
EXO_API double exo_entropy_term(size_t count, const float *logits, double scale, double log_sum);

EXO_DECLS_END

#endif
