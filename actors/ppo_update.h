/* Learns: from rollouts to the next version of a policy, by PPO. No actor stuff; an actor that learns is learner.c.
 *
 * An update goes over its samples `epochs` times, each time in a new order and in `minibatches` steps of the optimizer. The caller goes
 * from minibatch to minibatch, so that several that learn as one can add up their gradients in between:
 *
 *     exo_ppo_update_begin(update, rollouts, count, err);
 *     for (uint64_t i = 0; i < exo_ppo_update_steps(update); i++) {
 *         exo_ppo_update_gradient(update);
 *         exo_all_reduce(group, exo_host_array(EXO_F32, exo_ppo_update_sums(update), EXO_PPO_SUMS), EXO_SUM, err);
 *         exo_ppo_update_apply(update);
 *     }
 *     exo_ppo_update_end(update);
 *
 * What is added up are sums over samples, and their number: so the step is that of the mean over the samples of all, however many each
 * has; who has none only takes part. All begin with one policy, and have one forever: sums are the same to the bit on every member.
 *
 * Owner: the caller, one thread at a time. Read next: ppo.h, the maths. */
#ifndef EXO_PPO_UPDATE_H
#define EXO_PPO_UPDATE_H

#include <exogym/status.h>

#include "actors/ppo.h"

typedef struct exo_ppo_update_opts {
    exo_ppo_opts loss;
    uint64_t epochs, minibatches;
    uint64_t updates; /* the learning rate goes linearly from lr to 0 over as many */
    double lr, gamma, lambda;
    double max_norm; /* of a gradient; 0: it is not clipped */
    uint64_t repeat; /* each gradient is computed so many times, for tests with a slow one: 1 */
} exo_ppo_update_opts;

enum {
    EXO_PPO_SUMS = EXO_POLICY_NUMEL + 2 /* the gradient, the loss, the samples */
};

typedef struct exo_ppo_update exo_ppo_update;

/* A learner with the policy that `seed` draws. Orders are drawn from (order_seed, SHUFFLE, 0, epoch). */
exo_status exo_ppo_update_new(exo_ppo_update **out, const exo_ppo_update_opts *opts, uint64_t seed,
                              uint64_t order_seed, exo_err *err);
void exo_ppo_update_free(exo_ppo_update **update);

/* Copies the rollouts' samples; count may be 0. NOMEM. */
exo_status exo_ppo_update_begin(exo_ppo_update *update, const exo_rollout *rollouts, size_t count,
                                exo_err *err);
/* Steps of an update: epochs * minibatches. */
uint64_t exo_ppo_update_steps(const exo_ppo_update *update);
/* Computes the sums of the next minibatch. */
void exo_ppo_update_gradient(exo_ppo_update *update);
/* (EXO_PPO_SUMS) of that minibatch, to be added up in place. */
float *exo_ppo_update_sums(exo_ppo_update *update);
/* Takes the optimizer's step: gradient of the mean, its norm clipped, Adam. None if there are no samples. */
void exo_ppo_update_apply(exo_ppo_update *update);
/* The policy has its next version now. */
void exo_ppo_update_end(exo_ppo_update *update);

const exo_policy *exo_ppo_update_policy(const exo_ppo_update *update);
uint64_t
exo_ppo_update_count(const exo_ppo_update *update); /* updates done: the policy's version */
double
exo_ppo_update_loss(const exo_ppo_update *update); /* mean over the samples of the last update */

#endif
