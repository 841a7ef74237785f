/* The policy that plays an environment, and its critic: two networks, each with two tanh layers, as
 * in CleanRL (ppo.py, ppo_continuous_action.py). Discrete actions are drawn from the softmax of the
 * actor's outputs. Continuous ones are drawn from normal distributions: the actor's outputs are
 * their means, and the logarithms of their deviations are parameters that do not depend on the
 * observation. The critic's single output is the value.
 *
 * The parameters of a policy are one array of floats, which items carry, and exo_policy is a view of
 * it. A gradient is a view of another array. The gradients are written out by hand: with the batches
 * of four that playing needs, a tape would take most of the time. Every sum has a fixed order, so the
 * bits are the same on every machine with the same C library.
 *
 * Owner: the caller. Pure functions, any thread. Read next: ppo.h, the loss. */
#ifndef EXO_POLICY_H
#define EXO_POLICY_H

#include <stddef.h>

#include <exogym/environment.h>

#include "nn/cpu/small_layer.h"

enum {
    EXO_POLICY_UNITS_STEP = EXO_SMALL_STEP, /* the number of units is a multiple of it */
    EXO_POLICY_MAX_UNITS = 512,
    EXO_POLICY_MAX_OUTPUTS = EXO_ENVIRONMENT_MAX_ACTIONS
};

/* The sizes of a policy. */
typedef struct exo_policy_shape {
    size_t observation, units, outputs;
    bool box; /* actions are continuous, `outputs` numbers; otherwise one of `outputs` */
} exo_policy_shape;

/* The common part of both networks: observation -> tanh -> tanh. Weights are (in, out). */
typedef struct exo_policy_trunk {
    float *weight1, *bias1; /* (observation, units), (units) */
    float *weight2, *bias2; /* (units, units), (units) */
} exo_policy_trunk;

/* A view of `values`, in the order of the members. */
typedef struct exo_policy {
    exo_policy_shape shape;
    float *values; /* (exo_policy_numel) */
    exo_policy_trunk actor, critic;
    float *action_weight, *action_bias; /* (outputs, units), (outputs) */
    float *value_weight, *value_bias;   /* (units), (1) */
    float *log_deviation;               /* (outputs) if box, else (0) */
} exo_policy;

typedef struct exo_policy_output {
    /* Discrete: the log softmax of the actor's outputs. Continuous: the means. */
    float actions[EXO_POLICY_MAX_OUTPUTS];
    float value;
} exo_policy_output;

/* The activations of a forward pass that its backward needs. */
typedef struct exo_policy_pass {
    const float *observation; /* borrowed */
    float actor1[EXO_POLICY_MAX_UNITS], actor2[EXO_POLICY_MAX_UNITS];
    float critic1[EXO_POLICY_MAX_UNITS], critic2[EXO_POLICY_MAX_UNITS];
} exo_policy_pass;

/* The shape of a policy for an environment, with layers of `units`. */
exo_policy_shape exo_policy_shape_for(const exo_environment_shape *environment, size_t units);
/* The number of parameters. 4 observations, 64 units and 2 choices have 9,155. */
size_t exo_policy_numel(const exo_policy_shape *shape);
/* Views `values` (exo_policy_numel) as a policy. */
exo_policy exo_policy_view(const exo_policy_shape *shape, float *values);

/* Draws initial weights from the streams (seed, INIT, 0, layer): orthogonal weights (Saxe et al.,
 * 2014, arXiv:1312.6120) with gain sqrt 2, but 0.01 before the actions and 1 before the value.
 * Biases and logarithms of deviations are 0. */
void exo_policy_init(const exo_policy *policy, uint64_t seed);
/* Computes the outputs for one observation (observation). `pass` gets the activations; it may be
 * NULL. */
void exo_policy_forward(const exo_policy *policy, const float *observation, exo_policy_output *out,
                        exo_policy_pass *pass);
/* Backpropagates through a pass and adds to `gradient`. d_actions (outputs) and d_value are the
 * gradients of the loss with respect to the actor's outputs, before the softmax, and the value. */
void exo_policy_backward(const exo_policy *policy, const exo_policy_pass *pass,
                         const float *d_actions, float d_value, const exo_policy *gradient);

/* Draws an action, with one number of the stream if actions are discrete, else with `outputs` normal
 * ones, into `action`: int32 (1), or fp32 (outputs). Returns its log-probability, or log-density. */
float exo_policy_sample(const exo_policy *policy, const exo_policy_output *output, exo_rng *rng,
                        void *action);
/* Writes the most probable action, the first one of several. */
void exo_policy_best(const exo_policy *policy, const exo_policy_output *output, void *action);
/* The log-probability, or log-density, of an action. */
double exo_policy_log_prob(const exo_policy *policy, const exo_policy_output *output,
                           const void *action);

#endif
