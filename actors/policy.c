/* The policy and its critic: see policy.h. The inner loops run over the 64 units of a layer, a
 * constant that the compiler knows. */
#include "actors/policy.h"

#include <math.h>

enum {
    IN = EXO_CARTPOLE_OBSERVATION,
    UNITS = EXO_POLICY_HIDDEN,
    ACTIONS = EXO_CARTPOLE_ACTIONS,
    LANES = 16 /* partial sums of a product; the constant fixes the order of summation */
};

/* --- Initial values --------------------------------------------------------------------------- */

/* Draws orthogonal rows of length `gain`: normal numbers, made orthogonal by Gram-Schmidt. Each
 * projection is subtracted twice, because rounding leaves a part of it the first time. */
static void
orthogonal(float (*rows)[UNITS], size_t count, double gain, uint64_t seed, uint64_t layer)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_INIT, 0, layer);
    double row[UNITS], other[UNITS];
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < UNITS; k++)
            row[k] = (double)exo_rng_normal(&rng);
        for (size_t j = 0; j < 2 * i; j++) {
            double product = 0;
            for (size_t k = 0; k < UNITS; k++) {
                other[k] = (double)rows[j % i][k] / gain;
                product += row[k] * other[k];
            }
            for (size_t k = 0; k < UNITS; k++)
                row[k] -= product * other[k];
        }
        double squares = 0;
        for (size_t k = 0; k < UNITS; k++)
            squares += row[k] * row[k];
        for (size_t k = 0; k < UNITS; k++)
            rows[i][k] = (float)(gain * row[k] / sqrt(squares));
    }
}

void
exo_policy_init(exo_policy *policy, uint64_t seed)
{
    *policy = (exo_policy){0};
    orthogonal(policy->actor.weight1, IN, sqrt(2), seed, 0);
    orthogonal(policy->actor.weight2, UNITS, sqrt(2), seed, 1);
    orthogonal(policy->action_weight, ACTIONS, 0.01, seed, 2);
    orthogonal(policy->critic.weight1, IN, sqrt(2), seed, 3);
    orthogonal(policy->critic.weight2, UNITS, sqrt(2), seed, 4);
    orthogonal(&policy->value_weight, 1, 1, seed, 5);
}

/* --- Forward ---------------------------------------------------------------------------------- */

static float
product(const float *a, const float *b)
{
    float sums[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < UNITS; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            sums[k] += a[i + k] * b[i + k];
    for (size_t k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}

/* y (64) += x w */
static void
add_scaled(float *restrict y, const float *restrict w, float x)
{
    for (size_t k = 0; k < UNITS; k++)
        y[k] += x * w[k];
}

static void
squash(float *y)
{
    for (size_t k = 0; k < UNITS; k++)
        y[k] = tanhf(y[k]);
}

static void
trunk_forward(const exo_policy_trunk *trunk, const float *x, float *first, float *second)
{
    for (size_t k = 0; k < UNITS; k++) {
        first[k] = trunk->bias1[k];
        second[k] = trunk->bias2[k];
    }
    for (size_t i = 0; i < IN; i++)
        add_scaled(first, trunk->weight1[i], x[i]);
    squash(first);
    for (size_t i = 0; i < UNITS; i++)
        add_scaled(second, trunk->weight2[i], first[i]);
    squash(second);
}

void
exo_policy_forward(const exo_policy *policy, const float *observation, exo_policy_output *out,
                   exo_policy_pass *pass)
{
    exo_policy_pass local;
    exo_policy_pass *p = pass ? pass : &local;
    for (size_t i = 0; i < IN; i++)
        p->observation[i] = observation[i];
    trunk_forward(&policy->actor, p->observation, p->actor1, p->actor2);
    trunk_forward(&policy->critic, p->observation, p->critic1, p->critic2);

    float logits[ACTIONS], largest = -INFINITY, sum = 0;
    for (size_t a = 0; a < ACTIONS; a++) {
        logits[a] = policy->action_bias[a] + product(policy->action_weight[a], p->actor2);
        largest = fmaxf(largest, logits[a]);
    }
    for (size_t a = 0; a < ACTIONS; a++)
        sum += expf(logits[a] - largest);
    for (size_t a = 0; a < ACTIONS; a++)
        out->log_probs[a] = logits[a] - largest - logf(sum);
    out->value = policy->value_bias[0] + product(policy->value_weight, p->critic2);
}

int
exo_policy_sample(const exo_policy_output *output, exo_rng *rng)
{
    float left = exo_rng_uniform(rng);
    for (int a = 0; a + 1 < ACTIONS; a++) {
        left -= expf(output->log_probs[a]);
        if (left < 0)
            return a;
    }
    return ACTIONS - 1;
}

/* --- Backward --------------------------------------------------------------------------------- */

/* `d` (64) is the gradient of the loss with respect to the outputs of the second layer; it is
 * overwritten. */
static void
trunk_backward(const exo_policy_trunk *trunk, const float *x, const float *first,
               const float *second, float *d, exo_policy_trunk *gradient)
{
    float d_first[UNITS];
    for (size_t k = 0; k < UNITS; k++) {
        d[k] *= 1 - second[k] * second[k];
        gradient->bias2[k] += d[k];
    }
    for (size_t i = 0; i < UNITS; i++) {
        add_scaled(gradient->weight2[i], d, first[i]);
        d_first[i] = product(trunk->weight2[i], d);
    }
    for (size_t k = 0; k < UNITS; k++) {
        d_first[k] *= 1 - first[k] * first[k];
        gradient->bias1[k] += d_first[k];
    }
    for (size_t i = 0; i < IN; i++)
        add_scaled(gradient->weight1[i], d_first, x[i]);
}

void
exo_policy_backward(const exo_policy *policy, const exo_policy_pass *pass, const float *d_logits,
                    float d_value, exo_policy *gradient)
{
    float d[UNITS] = {0};
    for (size_t a = 0; a < ACTIONS; a++) {
        gradient->action_bias[a] += d_logits[a];
        add_scaled(gradient->action_weight[a], pass->actor2, d_logits[a]);
        add_scaled(d, policy->action_weight[a], d_logits[a]);
    }
    trunk_backward(&policy->actor, pass->observation, pass->actor1, pass->actor2, d,
                   &gradient->actor);

    gradient->value_bias[0] += d_value;
    add_scaled(gradient->value_weight, pass->critic2, d_value);
    for (size_t k = 0; k < UNITS; k++)
        d[k] = d_value * policy->value_weight[k];
    trunk_backward(&policy->critic, pass->observation, pass->critic1, pass->critic2, d,
                   &gradient->critic);
}
