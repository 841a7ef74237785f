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

/* The experience of a policy in `environments` (N) environments at once, for `steps` (T) steps. The
 * caller owns the arrays. O, A and P are the environment's numbers of an observation, of a continuous
 * action and of players. */
typedef struct exo_rollout {
    size_t steps, environments;
    size_t box;          /* A; 0: actions are discrete */
    size_t num_players;  /* P */
    float *observations; /* (T, N, O) before the step, of the player whose turn it was */
    int32_t *choices;    /* (T, N) actions, if they are discrete; else NULL */
    float *boxes;        /* (T, N, A) actions, if they are continuous; else NULL */
    /* (T, N) logarithms of the actions' probabilities or densities, under the distribution they were
     * drawn from */
    float *log_probs;
    float *values;  /* (T, N) of the observations, by the critic of the acting policy */
    float *rewards; /* (T, N, P) */
    uint8_t *dones; /* (T, N) exo_episode: the end of an episode at the step */
    /* (T, N) The value of the last observation of an episode that was truncated at the step, else
     * 0. */
    float *final_values;
    /* (T, N) return of the whole episode that ended at the step, else 0; in a game that of the first
     * player */
    float *returns;
    float *bootstrap; /* (N) value of the observation after the last step */
    uint8_t *players; /* (T + 1, N) whose turn it was, and is after the last step; NULL if P is 1 */
} exo_rollout;

/* The place of action `i` of (T N). */
void *exo_rollout_action(const exo_rollout *rollout, size_t i);

/* Generalized advantage estimation (Schulman et al., 2016, arXiv:1506.02438, eq. 16):
 *
 *     delta_t = r_t + gamma V_t+1 - V_t
 *     A_t     = delta_t + gamma lambda A_t+1
 *
 * At the end of an episode A_t = delta_t, with V_t+1 = 0, or final_values if it was truncated.
 * advantages (T, N) is written.
 *
 * In a game of several players, t counts the turns of one player in an episode: r_t is the sum of
 * the player's rewards from one turn to its next, V_t+1 the value at that next turn. Where the next
 * turn lies beyond the rollout, or the episode was truncated before it, A_t = 0: nothing is learnt
 * from that step. */
void exo_gae(const exo_rollout *rollout, double gamma, double lambda, float *advantages);

typedef struct exo_ppo_opts {
    double clip, value_clip; /* of the terms in exogym/loss.h */
    /* Coefficients of the loss: policy loss - entropy * H + value * value loss. */
    double entropy, value;
} exo_ppo_opts;

/* The samples of an update. The arrays without a comment have the shape (count). */
typedef struct exo_ppo_samples {
    size_t count;
    size_t observation, box; /* O; A, or 0 */
    float *observations;     /* (count, O) */
    int32_t *choices;        /* (count), or NULL */
    float *boxes;            /* (count, A), or NULL */
    float *log_probs, *values;
    float *advantages, *targets; /* a target is advantage + value */
} exo_ppo_samples;

/* Adds the gradient of the loss, summed over the samples order[0..count), to `gradient`, and
 * returns the sum of the loss. Advantages are normalized over these samples: (A - mean) /
 * (deviation + 1e-8), where the deviation's divisor is count - 1. The advantage of a single sample
 * is not normalized. */
double exo_ppo_gradient(const exo_policy *policy, const exo_ppo_samples *samples,
                        const uint32_t *order, size_t count, const exo_ppo_opts *opts,
                        const exo_policy *gradient);

#endif
