/* PPO's maths: advantages, and the gradient of a minibatch's loss, whose terms are those of exogym/loss.h. Pure functions, any thread; nothing of
 * actors here.
 *
 * Schulman, Wolski, Dhariwal, Radford and Klimov, 2017, "Proximal policy optimization algorithms", arXiv:1707.06347; details as in Huang et
 * al., 2022, "The 37 implementation details of proximal policy optimization" (CleanRL). Read next: ppo_update.h, which learns with it. */
#ifndef EXO_PPO_H
#define EXO_PPO_H

#include <stddef.h>
#include <stdint.h>

#include "actors/policy.h"

/* What a step ended, in arrays of `dones`. */
enum {
    EXO_DONE_NOT = EXO_CARTPOLE_GOES_ON,
    EXO_DONE_TERMINATED =
        EXO_CARTPOLE_TERMINATED, /* nothing comes after it: the value there is 0           */
    EXO_DONE_TRUNCATED =
        EXO_CARTPOLE_TRUNCATED /* it was cut: the value there is in `final_values`       */
};

/* What a policy saw and did in `environments` environments at once, for `steps` steps: T and N. */
typedef struct exo_rollout {
    size_t steps, environments;
    float *
        observations; /* (T, N, 4) before the step                                                       */
    int32_t *
        actions; /* (T, N)                                                                          */
    float *
        log_probs; /* (T, N) of the actions, under the distribution that they were drawn from         */
    float *
        values; /* (T, N) of the observations, by the critic of the policy that played             */
    float *
        rewards; /* (T, N)                                                                          */
    uint8_t *
        dones; /* (T, N) EXO_DONE_...: what the step ended                                        */
    float *
        final_values; /* (T, N) value of the last observation of an episode that was truncated there; 0 */
    float *
        returns; /* (T, N) return of the episode that ended there, since its beginning; 0           */
    float *
        bootstrap; /* (N)    value of the observation after the last step                             */
} exo_rollout;

/* Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438, eq. 16):
 * A_t = delta_t + gamma lambda A_t+1 and delta_t = r_t + gamma V_t+1 - V_t; at the end of an episode A_t = delta_t, with V_t+1 = 0, or
 * final_values where it was truncated. advantages (T, N) is written. */
void exo_gae(const exo_rollout *rollout, double gamma, double lambda, float *advantages);

typedef struct exo_ppo_opts {
    double clip, value_clip;
    double entropy, value; /* coefficients of the loss: policy - entropy * H + value * value loss */
} exo_ppo_opts;

/* Samples, one after the other. */
typedef struct exo_ppo_samples {
    size_t count;
    float *observations; /* (count, 4) */
    int32_t *actions;
    float *log_probs, *values;
    float *advantages, *targets; /* target: advantage + value */
} exo_ppo_samples;

/* Adds the gradient of the loss, summed over the samples order[0..count), to `gradient`, and gives that sum. Advantages are normalized
 * over these samples: (A - mean) / (deviation + 1e-8), the deviation's divisor count - 1; a single one is left as it is. */
double exo_ppo_gradient(const exo_policy *policy, const exo_ppo_samples *samples,
                        const uint32_t *order, size_t count, const exo_ppo_opts *opts,
                        exo_policy *gradient);

#endif
