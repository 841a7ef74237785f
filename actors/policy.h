/* The policy that plays CartPole, and its critic: two networks, each with two tanh layers of 64
 * units, as in CleanRL (ppo.py). Actions are drawn from the softmax of the actor's outputs. The
 * critic's single output is the value.
 *
 * A policy is a plain struct of floats, and items with parameters carry this struct. A gradient is
 * a struct of the same type. The gradients are written out by hand: with the batches of four that
 * playing needs, a tape would take most of the time. Every sum has a fixed order, so the bits are
 * the same on every machine with the same C library.
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

/* The common part of both networks: observation -> tanh -> tanh. Weights are (in, out). */
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

/* The activations of a forward pass that its backward needs. */
typedef struct exo_policy_pass {
    float observation[EXO_CARTPOLE_OBSERVATION];
    float actor1[EXO_POLICY_HIDDEN], actor2[EXO_POLICY_HIDDEN];
    float critic1[EXO_POLICY_HIDDEN], critic2[EXO_POLICY_HIDDEN];
} exo_policy_pass;

/* Draws initial weights from the streams (seed, INIT, 0, layer): orthogonal weights (Saxe et al.,
 * 2014, arXiv:1312.6120) with gain sqrt 2, but 0.01 before the actions and 1 before the value.
 * Biases are 0. */
void exo_policy_init(exo_policy *policy, uint64_t seed);
/* Computes the outputs for one observation (4). `pass` gets the activations; it may be NULL. */
void exo_policy_forward(const exo_policy *policy, const float *observation, exo_policy_output *out,
                        exo_policy_pass *pass);
/* Backpropagates through a pass and adds to `gradient`. d_logits (2) and d_value are the gradients
 * of the loss with respect to the actor's outputs and the value. */
void exo_policy_backward(const exo_policy *policy, const exo_policy_pass *pass,
                         const float *d_logits, float d_value, exo_policy *gradient);
/* Draws an action from `output`, with one number of the stream. */
int exo_policy_sample(const exo_policy_output *output, exo_rng *rng);

#endif
