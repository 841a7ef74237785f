/* The mathematics of learning from sequences of tokens: masks, rewards, advantages, off-policy
 * corrections, and losses on the tape. docs/learning.md explains the formulas.
 *
 * A step of a trainer is
 *
 *     exo_token_rewards(&batch, behaviour, ref, scores, &reward_opts, rewards);
 *     exo_token_gae(&batch, rewards, values, 1, 0.95, advantages, returns);
 *     exo_whiten(batch.offsets[batch.sequences], batch.mask, true, advantages);
 *     exo_correct(&batch, &correction, behaviour, proximal, versions, version, old, importance);
 *     exo_token_weights(&batch, EXO_REDUCE_TOKENS, 0, weights);
 *     exo_tensor *loss = exo_token_loss(tape, &batch, &inputs, &loss_opts, NULL);
 *
 * Shapes: N sequences, T rows in all. A row is a token that a policy chose, or may have chosen;
 * exo_rows_of_tokens lays items out in the positions of a model. The log-probability of a row is
 * that of its token, the value that of the state before the token. Arrays of T or N numbers are the
 * caller's, in host memory. Sums are made in double.
 *
 * Functions without a tape are pure: any thread, no memory, and no errors except those of
 * exo_token_batch_check. Rows whose mask is 0 are not read, whatever values they have, and results
 * are 0 there. Numbers elsewhere are finite: the caller checks scores, which come from outside.
 */
#ifndef EXOGYM_LEARNING_H
#define EXOGYM_LEARNING_H

#include <exogym/loss.h>

EXO_DECLS_BEGIN

/* Sequences one after the other. The caller owns the arrays. */
typedef struct exo_token_batch {
    size_t sequences;      /* N */
    const size_t *offsets; /* (N + 1): the rows of sequence n are [offsets[n], offsets[n + 1]) */
    const float *mask;     /* (T): 1: the row is an action; 0: a prompt, padding, a tool's output */
} exo_token_batch;

/* INVAL: no sequences, offsets that do not begin at 0 or decrease, a mask other than 0 and 1, or a
 * score (N, may be NULL) that is not finite; the text names the place. */
EXO_API exo_status exo_token_batch_check(const exo_token_batch *batch, const float *scores,
                                         exo_err *err);

/* --- Masks of a sequence ---------------------------------------------------------------------- */

/* Marks the tokens after the first `prompt` ones, up to and including the first `eos` among them.
 * tokens, mask (count). A negative eos: up to the end. Returns the number of actions. */
EXO_API size_t exo_action_mask(size_t count, const int32_t *tokens, size_t prompt, int32_t eos,
                               float *mask);

/* A part of a sequence of several turns. */
typedef struct exo_turn {
    size_t tokens;
    bool action; /* true: the policy chose these tokens; false: a prompt, or the output of a tool */
} exo_turn;

/* Marks the tokens of the turns that are actions. Tokens after the last turn are none. mask
 * (count). Returns the number of actions. */
EXO_API size_t exo_turn_mask(size_t num_turns, const exo_turn *turns, size_t count, float *mask);

/* --- Rows of a model's positions --------------------------------------------------------------
 *
 * Items hold numbers of tokens: sequence n has the tokens [offsets[n], offsets[n + 1]). A model
 * that reads windows of S positions, filled from the left, predicts the token p + 1 at position p.
 * Its rows are the batch with offsets n S, in which row n S + p belongs to token p + 1. Tokens
 * after the first S + 1 of a sequence have no row. */

/* Writes what the model reads, inputs (N S), which is 0 after the end of a sequence, and targets (N
 * S) for exo_log_probs: the next token if it is an action, else -1. tokens, mask: by token. */
EXO_API void exo_rows_of_tokens(const exo_token_batch *batch, const int32_t *tokens,
                                size_t positions, int32_t *inputs, int32_t *targets);
/* Writes by_row (N S): the number of the next token, or 0 if there is none. The rows' mask is
 * exo_rows_of_numbers of the mask. */
EXO_API void exo_rows_of_numbers(const exo_token_batch *batch, const float *by_token,
                                 size_t positions, float *by_row);
/* The way back: writes the number of each token (T) from its row; 0 for tokens without one. */
EXO_API void exo_numbers_of_rows(const exo_token_batch *batch, const float *by_row,
                                 size_t positions, float *by_token);

/* --- Rewards ---------------------------------------------------------------------------------- */

/* Options of the rewards of a batch. */
typedef struct exo_reward_opts {
    double kl_coef;    /* of the penalty -kl_coef k(log pi - log pi_ref); 0: none */
    exo_kl_kind kl;    /* the estimator k. k1 is the penalty whose optimum is known (docs) */
    double score_clip; /* scores are clipped to [-score_clip, score_clip]; 0: not clipped */
} exo_reward_opts;

/* The reward of each row: r_t = -kl_coef k(log pi - log pi_ref) of an action, plus the clipped
 * score of the sequence at its last action only (Ouyang et al., 2022, arXiv:2203.02155). log_probs,
 * ref_log_probs (T): under the policy that sampled, and the reference, which may be NULL without a
 * kl_coef. scores (N). rewards (T) is written. A sequence without actions has no reward. */
EXO_API void exo_token_rewards(const exo_token_batch *batch, const float *log_probs,
                               const float *ref_log_probs, const float *scores,
                               const exo_reward_opts *opts, float *rewards);
/* The sum of these rewards of each sequence, for advantages by sequence. rewards (N) is written. */
EXO_API void exo_sequence_rewards(const exo_token_batch *batch, const float *log_probs,
                                  const float *ref_log_probs, const float *scores,
                                  const exo_reward_opts *opts, float *rewards);
/* The mean over sequences of the sum of the estimates over a sequence, in nats. */
EXO_API double exo_sequence_kl(const exo_token_batch *batch, const float *log_probs,
                               const float *ref_log_probs, exo_kl_kind kind);

/* The coefficient of the KL penalty. Plain data. */
typedef struct exo_kl_control {
    double coef;    /* current value */
    double target;  /* nats a sequence; 0: the coefficient is fixed */
    double horizon; /* sequences; 0: each update has a gain of 0.1 */
} exo_kl_control;

/* Moves the coefficient towards the target (Ziegler et al., 2019, arXiv:1909.08593, sec. 2.2):
 *
 *     e = clip((kl - target) / target, -0.2, 0.2),  coef *= 1 + gain e
 *
 * The gain is sequences / horizon, and at most 1, so that the coefficient stays positive. It stays
 * between 1e-9 and 1e6, or its first value where that is beyond: a KL that never reaches the target
 * would let it overflow, and after a long time below the target it could not come back. kl: of the
 * latest batch of `sequences`, in nats a sequence. */
EXO_API void exo_kl_control_update(exo_kl_control *control, double kl, size_t sequences);

/* --- Advantages ------------------------------------------------------------------------------- */

/* Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438, eq. 16) over the
 * actions of each sequence:
 *
 *     delta_t = r_t + gamma V_t+1 - V_t,  A_t = delta_t + gamma lambda A_t+1
 *
 * t + 1 is the next action, across rows that are none; after the last action V and A are 0.
 * values (T), or NULL: 0, so that with lambda 1 advantages are the discounted sums of rewards
 * (REINFORCE++). advantages (T) and returns = advantages + values (T, may be NULL) are written. */
EXO_API void exo_token_gae(const exo_token_batch *batch, const float *rewards, const float *values,
                           double gamma, double lambda, float *advantages, float *returns);

/* Makes x (count) have variance 1, and mean 0 or with `shift` false its own mean, over the rows of
 * the mask: (x - mean) / sqrt(variance + 1e-8), where the variance's divisor is the number of rows
 * less 1. Rows whose mask is 0 become 0. With fewer than 2 rows only these change. mask NULL: all
 * rows. */
EXO_API void exo_whiten(size_t count, const float *mask, bool shift, float *x);

/* Advantages of whole sequences from the rewards of a group, the answers to one prompt. */
typedef enum exo_group_kind {
    /* (r - mean) / (deviation + 1e-4) (Shao et al., 2024, arXiv:2402.03300), divisor size - 1 */
    EXO_GROUP_GRPO,
    EXO_GROUP_GRPO_BATCH, /* the same with the deviation of all N rewards */
    EXO_GROUP_MEAN,       /* r - mean: Dr. GRPO (Liu et al., 2025, arXiv:2503.20783) */
    EXO_GROUP_RLOO        /* r - mean of the others (Ahmadian et al., 2024, arXiv:2402.14740) */
} exo_group_kind;

/* rewards, groups (N): sequences with equal numbers in `groups` are one group, in any order.
 * advantages (N) is written: 0 in a group of one. Takes N^2 time. */
EXO_API void exo_group_advantages(exo_group_kind kind, size_t sequences, const uint64_t *groups,
                                  const float *rewards, float *advantages);
/* Gives every action the number of its sequence. by_sequence (N); by_row (T) is written. */
EXO_API void exo_spread(const exo_token_batch *batch, const float *by_sequence, float *by_row);

/* Options of exo_vtrace. */
typedef struct exo_vtrace_opts {
    double gamma, lambda; /* lambda multiplies c, as in the paper's remark 2 */
    double rho_bar;       /* bound of rho: which policy the values become those of; 0: 1 */
    double c_bar;         /* bound of c: how far corrections reach; 0: 1 */
} exo_vtrace_opts;

/* V-trace (Espeholt et al., 2018, arXiv:1802.01561, eq. 1): with the ratio w_t = pi / mu of the
 * current policy to the one that sampled, rho_t = min(rho_bar, w_t), c_t = lambda min(c_bar, w_t),
 *
 *     v_t = V_t + rho_t (r_t + gamma V_t+1 - V_t) + gamma c_t (v_t+1 - V_t+1)
 *     A_t = rho_t (r_t + gamma v_t+1 - V_t)
 *
 * As exo_token_gae otherwise. log_probs, behaviour (T): under pi and mu. advantages (T) and targets
 * v (T, may be NULL) are written. rho is in the advantages, so the correction of the loss is
 * EXO_CORRECTION_VTRACE. */
EXO_API void exo_vtrace(const exo_token_batch *batch, const float *log_probs,
                        const float *behaviour, const float *rewards, const float *values,
                        const exo_vtrace_opts *opts, float *advantages, float *targets);

/* --- Off-policy corrections ------------------------------------------------------------------- */

/* Three policies occur: the behaviour policy mu sampled the token; the proximal policy is that of
 * the trainer when it took the batch; the current one is being changed. A correction sets the
 * policy that the ratio of the loss refers to, and an importance weight. */
typedef enum exo_correction {
    EXO_CORRECTION_NONE,               /* the ratio is pi / mu; weight 1 */
    EXO_CORRECTION_TRUNCATED_TOKEN,    /* pi / prox; weight clip(prox / mu, min, max) */
    EXO_CORRECTION_TRUNCATED_SEQUENCE, /* the same with the product of the ratios of a sequence */
    EXO_CORRECTION_MASKED_TOKEN,       /* pi / prox; prox / mu, or 0 outside [min, max] */
    EXO_CORRECTION_MASKED_SEQUENCE,    /* the same with the product of the ratios of a sequence */
    EXO_CORRECTION_VTRACE,             /* pi / prox; weight 1: rho is in the advantages */
    /* pi / prox; weight prox / mu (Hilton et al., 2021, arXiv:2110.00641; Fu et al., 2025,
     * arXiv:2505.24298), or 0 outside [min, max] if these are given */
    EXO_CORRECTION_DECOUPLED,
    /* The same with an interpolated proximal policy, which needs no forward pass (Li et al., 2025,
     * arXiv:2512.06547): log prox = log mu + a (log pi - log mu), where a token of staleness d has
     * a = (d - 1) / d, and 0 for d = 0. */
    EXO_CORRECTION_INTERPOLATED
} exo_correction;

/* Options of exo_correct. */
typedef struct exo_correction_opts {
    exo_correction kind; /* see there */
    double min, max;     /* bounds of the weight; max 0: none */
} exo_correction_opts;

/* Writes old (T), the log-probabilities that the loss's ratio refers to, and importance (T), the
 * weights. behaviour (T). proximal (T): log-probabilities under the proximal policy, or under the
 * current one for EXO_CORRECTION_INTERPOLATED; not read by EXO_CORRECTION_NONE. versions (T): the
 * policy that sampled a token; version: the current one. Only EXO_CORRECTION_INTERPOLATED reads
 * them. */
EXO_API void exo_correct(const exo_token_batch *batch, const exo_correction_opts *opts,
                         const float *behaviour, const float *proximal, const uint64_t *versions,
                         uint64_t version, float *old, float *importance);

/* Figures of a batch, by the ratios w = pi / mu of its actions. Those by sequence use the products
 * of a sequence's ratios; a sequence without actions is not counted. */
typedef struct exo_policy_figures {
    size_t tokens;               /* actions */
    double kl;                   /* KL(mu || pi) a token by k3: the mean of w - 1 - log w */
    double kl_k1;                /* by k1: the mean of -log w */
    double chi_squared;          /* chi^2(pi || mu) a token: the mean of w^2, less 1 */
    double sequence_chi_squared; /* the same by sequence */
    double effective;            /* effective sample size (sum w)^2 / sum w^2 as a share of T */
    double effective_sequences;  /* the same by sequence, as a share of these */
    double clip_fraction;        /* share of actions whose ratio pi / old is outside the clip */
    double ratio_min, ratio_max; /* of w */
} exo_policy_figures;

/* log_probs, behaviour, old (T): under pi and mu, and from exo_correct. All zero, and ratios of 1,
 * if there is no action. A trainer with a target KL stops its epochs when `kl`, of old in place of
 * behaviour, is above the target. */
EXO_API void exo_policy_measure(const exo_token_batch *batch, const float *log_probs,
                                const float *behaviour, const float *old, exo_policy_clip clip,
                                exo_policy_figures *figures);

/* --- Losses ----------------------------------------------------------------------------------- */

/* How the terms of the rows become one loss: with the weights of the sum. */
typedef enum exo_reduction {
    EXO_REDUCE_TOKENS,    /* the mean over all actions: 1 / (all actions). TRL's bnpo */
    EXO_REDUCE_SEQUENCES, /* the mean of the means of sequences: 1 / (N actions of it). GRPO */
    EXO_REDUCE_CONSTANT   /* 1 / (N constant): Dr. GRPO, with the longest length of an answer */
} exo_reduction;

/* weights (T) is written. The constant is only read by EXO_REDUCE_CONSTANT, and above 0. */
EXO_API void exo_token_weights(const exo_token_batch *batch, exo_reduction reduction,
                               double constant, float *weights);

/* The inputs of exo_token_loss. All arrays are (T), and unchanged until the pass is over. */
typedef struct exo_token_loss_inputs {
    exo_tensor *log_probs;      /* of the tokens under the current policy (exo_log_probs) */
    exo_tensor *entropy;        /* exo_entropy, or NULL if opts.entropy is 0 */
    exo_tensor *values;         /* or NULL if opts.value is 0 */
    const float *old;           /* from exo_correct */
    const float *importance;    /* from exo_correct, or NULL: 1 */
    const float *advantages;    /* of the rows, without importance */
    const float *weights;       /* from exo_token_weights */
    const float *ref_log_probs; /* or NULL if opts.kl_coef is 0 */
    const float *old_values;    /* or NULL if opts.value_clip is 0 */
    const float *returns;       /* or NULL if opts.value is 0 */
} exo_token_loss_inputs;

/* Options of exo_token_loss; all zero but the clip: PPO's policy loss alone. */
typedef struct exo_token_loss_opts {
    exo_policy_clip clip; /* of exo_policy_terms */
    double kl_coef;       /* of the estimate of KL(pi || ref) as a term of the loss */
    exo_kl_kind kl;       /* its estimator */
    double entropy;       /* coefficient of the entropy, which is subtracted */
    double value;         /* coefficient of the value loss */
    double value_clip;    /* of exo_value_loss; 0: not clipped */
} exo_token_loss_opts;

/* The parts, each one element; NULL for one that the options leave out. */
typedef struct exo_token_loss_parts {
    exo_tensor *policy, *kl, *entropy, *value; /* without their coefficients */
} exo_token_loss_parts;

/* The loss of a minibatch -> one element:
 *
 *     sum(weights importance policy_term) + kl_coef sum(weights kl_term)
 *         - entropy mean(H) + value value_loss
 *
 * with exo_policy_terms, exo_kl_terms, and the mean of the entropy and exo_value_loss over all
 * actions. A loss on texts (ptx) is added by exo_add and exo_scale from exo_cross_entropy. `parts`
 * may be NULL. INVAL: an input that the options need is missing. */
EXO_API exo_tensor *exo_token_loss(exo_tape *tape, const exo_token_batch *batch,
                                   const exo_token_loss_inputs *inputs,
                                   const exo_token_loss_opts *opts, exo_token_loss_parts *parts);

/* Direct preference optimization (Rafailov et al., 2023, arXiv:2305.18290, eq. 7; label smoothing:
 * Mitchell, 2023, "A note on DPO with noisy preferences") over pairs of sequences, the chosen one
 * first -> one element: exo_smoothed_ranking_loss of beta (log pi(sequence) - log ref(sequence)).
 * log_probs (T) with gradients; ref_log_probs (T), mask (T) or NULL, offsets (2 pairs + 1) int32:
 * inputs of the pass. */
EXO_API exo_tensor *exo_dpo_loss(exo_tape *tape, exo_tensor *log_probs, exo_tensor *ref_log_probs,
                                 exo_tensor *mask, exo_tensor *offsets, float beta,
                                 float smoothing);

/* --- Names, for exo_config_choice: lists that end with NULL, in the order of the constants ---- */

EXO_API const char *const *exo_kl_names(void);         /* k1, k2, k3 */
EXO_API const char *const *exo_group_names(void);      /* grpo, grpo_batch, mean, rloo */
EXO_API const char *const *exo_correction_names(void); /* none, truncated_token, ... */
EXO_API const char *const *exo_reduction_names(void);  /* tokens, sequences, constant */

EXO_DECLS_END

#endif
