/* Updates of a policy by PPO: from rollouts to the next version of the policy. It is independent of
 * actors; learner.c is the actor that learns.
 *
 * An update passes over its samples `epochs` times, each time in a new order and in `minibatches`
 * steps of the optimizer. The caller makes the loop over the minibatches, so that several learners
 * can add up their gradients in each step and learn as one:
 *
 *     exo_ppo_update_begin(update, rollouts, count, err);
 *     for (uint64_t i = 0; i < exo_ppo_update_steps(update); i++) {
 *         exo_ppo_update_gradient(update);
 *         exo_all_reduce(group,
 *                        exo_host_array(EXO_F32, exo_ppo_update_sums(update), count),
 *                        EXO_SUM, err);
 *         exo_ppo_update_apply(update, err);
 *     }
 *     exo_ppo_update_end(update);
 *
 * The learners add up sums over their samples and the numbers of samples. So the step is that of
 * the mean over the samples of all learners, however many each has. A learner without samples only
 * takes part. All learners begin with the same policy and keep it equal, because the sums are equal
 * to the bit on every member.
 *
 * Owner: the caller, one thread at a time. Read next: ppo.h, the mathematics. */
#ifndef EXO_PPO_UPDATE_H
#define EXO_PPO_UPDATE_H

#include <exogym/status.h>

#include "actors/ppo.h"

typedef struct exo_ppo_update_opts {
    exo_ppo_opts loss;
    uint64_t epochs, minibatches;
    uint64_t updates; /* over them the learning rate falls linearly from lr to 0 */
    double lr, gamma, lambda;
    double max_norm; /* limit of a gradient's norm; 0: none */
    /* The coefficient of the entropy goes linearly from loss.entropy to this over the updates. */
    double last_entropy;
    uint64_t repeat; /* 1; tests compute each gradient more often, to slow the learner down */
} exo_ppo_update_opts;

typedef struct exo_ppo_update exo_ppo_update;

/* Makes a learner with the policy that `seed` draws. The orders of samples are drawn from
 * (order_seed, SHUFFLE, 0, epoch). The caller frees it. NOMEM. */
exo_status exo_ppo_update_new(exo_ppo_update **out, const exo_ppo_update_opts *opts,
                              const exo_policy_shape *shape, uint64_t seed, uint64_t order_seed,
                              exo_err *err);
void exo_ppo_update_free(exo_ppo_update **update);

/* Begins an update: copies the samples of rollouts of the policy's shape. count may be 0. NOMEM. */
exo_status exo_ppo_update_begin(exo_ppo_update *update, const exo_rollout *rollouts, size_t count,
                                exo_err *err);
/* The number of steps of an update: epochs * minibatches. */
uint64_t exo_ppo_update_steps(const exo_ppo_update *update);
/* Computes the sums of the next minibatch. */
void exo_ppo_update_gradient(exo_ppo_update *update);
/* The sums of that minibatch: the gradient, the loss, the number of samples. An all-reduce adds to
 * them in place. */
float *exo_ppo_update_sums(exo_ppo_update *update);
/* The number of elements of the sums: exo_policy_numel + 2. */
size_t exo_ppo_update_num_sums(const exo_ppo_update *update);
/* Takes a step of Adam with the gradient of the mean, after its norm was clipped. Without samples
 * it does nothing. FAILED: the loss or the gradient is not finite, and the policy is unchanged. */
exo_status exo_ppo_update_apply(exo_ppo_update *update, exo_err *err);
/* Ends the update: the policy has its next version. */
void exo_ppo_update_end(exo_ppo_update *update);

/* The current policy; borrowed. */
const exo_policy *exo_ppo_update_policy(const exo_ppo_update *update);
/* The number of complete updates, which is the policy's version. */
uint64_t exo_ppo_update_count(const exo_ppo_update *update);
/* The mean loss over the samples of the last update. */
double exo_ppo_update_loss(const exo_ppo_update *update);

#endif
