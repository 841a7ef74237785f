/* The mathematics of PPO: advantages, and the gradient of a minibatch's loss, whose terms are those
 * of exogym/loss.h. Pure functions, any thread, independent of actors.
 *
 * Schulman, Wolski, Dhariwal, Radford and Klimov, 2017, "Proximal policy optimization algorithms",
 * arXiv:1707.06347; details as in Huang et al., 2022, "The 37 implementation details of proximal
 * policy optimization" (CleanRL). Read next: ppo_update.h, the updates of a policy. */
#ifndef EXO_PPO_H
#define EXO_PPO_H

#include <stddef.h>
#include <stdint.h>

#include "actors/policy.h"

/* The values of `dones`: the end of an episode, if a step was its last. */
enum {
    EXO_DONE_NOT = EXO_CARTPOLE_GOES_ON,
    /* Nothing follows: the value after the step is 0. */
    EXO_DONE_TERMINATED = EXO_CARTPOLE_TERMINATED,
    /* The episode was cut off: the value after the step is in `final_values`. */
    EXO_DONE_TRUNCATED = EXO_CARTPOLE_TRUNCATED
};

/* The experience of a policy in `environments` (N) environments at once, for `steps` (T) steps. The
 * caller owns the arrays. */
typedef struct exo_rollout {
    size_t steps, environments;
    float *observations; /* (T, N, 4) before the step */
    int32_t *actions;    /* (T, N) */
    float *log_probs;    /* (T, N) of the actions, under the distribution they were drawn from */
    float *values;       /* (T, N) of the observations, by the critic of the acting policy */
    float *rewards;      /* (T, N) */
    uint8_t *dones;      /* (T, N) EXO_DONE_...: the end of an episode at the step */
    /* (T, N) The value of the last observation of an episode that was truncated at the step, else
     * 0. */
    float *final_values;
    float *returns;   /* (T, N) return of the whole episode that ended at the step, else 0 */
    float *bootstrap; /* (N) value of the observation after the last step */
} exo_rollout;

/* Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438, eq. 16):
 *
 *     delta_t = r_t + gamma V_t+1 - V_t
 *     A_t     = delta_t + gamma lambda A_t+1
 *
 * At the end of an episode A_t = delta_t, with V_t+1 = 0, or final_values if it was truncated.
 * advantages (T, N) is written. */
void exo_gae(const exo_rollout *rollout, double gamma, double lambda, float *advantages);

typedef struct exo_ppo_opts {
    double clip, value_clip; /* of the terms in exogym/loss.h */
    /* Coefficients of the loss: policy loss - entropy * H + value * value loss. */
    double entropy, value;
} exo_ppo_opts;

/* The samples of an update. All arrays but observations have the shape (count). */
typedef struct exo_ppo_samples {
    size_t count;
    float *observations; /* (count, 4) */
    int32_t *actions;
    float *log_probs, *values;
    float *advantages, *targets; /* a target is advantage + value */
} exo_ppo_samples;

/* Adds the gradient of the loss, summed over the samples order[0..count), to `gradient`, and
 * returns the sum of the loss. Advantages are normalized over these samples: (A - mean) /
 * (deviation + 1e-8), where the deviation's divisor is count - 1. The advantage of a single sample
 * is not normalized. */
double exo_ppo_gradient(const exo_policy *policy, const exo_ppo_samples *samples,
                        const uint32_t *order, size_t count, const exo_ppo_opts *opts,
                        exo_policy *gradient);

#endif
