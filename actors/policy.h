/* The policy that plays CartPole, and its critic: two networks of two tanh layers of 64, CleanRL's (ppo.py). Actions are drawn from the
 * softmax of the actor's outputs; the critic's one output is the value.
 *
 * A policy is a plain struct of floats, which is what the parameters' items carry; a gradient is another one. Gradients are written out
 * by hand: at a batch of four, which is what playing needs, a tape would be most of the time. Every sum has one order, so the bits are
 * the same on every machine with one C library.
 *
 * Owner: the caller. Pure functions, any thread. Read next: ppo.h, the loss. */
#ifndef EXO_POLICY_H
#define EXO_POLICY_H

#include <stddef.h>

#include <exogym/rng.h>

#include "actors/cartpole.h"

enum {
    EXO_POLICY_HIDDEN = 64
};

/* What both networks have: observation -> tanh -> tanh. Weights (in, out). */
typedef struct exo_policy_trunk {
    float weight1[EXO_CARTPOLE_OBSERVATION][EXO_POLICY_HIDDEN], bias1[EXO_POLICY_HIDDEN];
    float weight2[EXO_POLICY_HIDDEN][EXO_POLICY_HIDDEN], bias2[EXO_POLICY_HIDDEN];
} exo_policy_trunk;

typedef struct exo_policy {
    exo_policy_trunk actor, critic;
    float action_weight[EXO_CARTPOLE_ACTIONS][EXO_POLICY_HIDDEN], action_bias[EXO_CARTPOLE_ACTIONS];
    float value_weight[EXO_POLICY_HIDDEN], value_bias[1];
} exo_policy;

enum {
    EXO_POLICY_NUMEL = sizeof(exo_policy) / sizeof(float) /* 9,155 */
};

typedef struct exo_policy_output {
    float log_probs[EXO_CARTPOLE_ACTIONS]; /* log softmax of the actor's outputs */
    float value;
} exo_policy_output;

/* Of a pass, what its way back needs. */
typedef struct exo_policy_pass {
    float observation[EXO_CARTPOLE_OBSERVATION];
    float actor1[EXO_POLICY_HIDDEN], actor2[EXO_POLICY_HIDDEN];
    float critic1[EXO_POLICY_HIDDEN], critic2[EXO_POLICY_HIDDEN];
} exo_policy_pass;

/* Orthogonal weights (Saxe et al., 2014, arXiv:1312.6120), of gain sqrt 2, of 0.01 before the actions and 1 before the value; biases 0.
 * Drawn from the streams (seed, INIT, 0, layer). */
void exo_policy_init(exo_policy *policy, uint64_t seed);
/* One observation (4). `pass` may be NULL. */
void exo_policy_forward(const exo_policy *policy, const float *observation, exo_policy_output *out,
                        exo_policy_pass *pass);
/* Adds to `gradient` what d_logits, the loss's gradient by the actor's outputs (2), and d_value give. */
void exo_policy_backward(const exo_policy *policy, const exo_policy_pass *pass,
                         const float *d_logits, float d_value, exo_policy *gradient);
/* Draws an action from `output`: one number of the stream. */
int exo_policy_sample(const exo_policy_output *output, exo_rng *rng);

#endif
