/* The policy and its critic: see policy.h. Read next: nn/cpu/small_layer.h. */
#include "actors/policy.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/small_layer.h"

enum {
    MOST = EXO_ENVIRONMENT_MAX_OBSERVATION
};

/* --- Shapes ----------------------------------------------------------------------------------- */

exo_policy_shape
exo_policy_shape_for(const exo_environment_shape *environment, size_t units)
{
    bool box = environment->actions == 0;
    return (exo_policy_shape){.observation = environment->observation,
                              .units = units,
                              .outputs = box ? environment->box : environment->actions,
                              .box = box};
}

static size_t
trunk_numel(const exo_policy_shape *s)
{
    return s->observation * s->units + s->units + s->units * s->units + s->units;
}

size_t
exo_policy_numel(const exo_policy_shape *s)
{
    return 2 * trunk_numel(s) + s->outputs * s->units + s->outputs + s->units + 1 +
           (s->box ? s->outputs : 0);
}

/* Returns `*at` and moves it by `count`. */
static float *
take(float **at, size_t count)
{
    float *taken = *at;
    *at += count;
    return taken;
}

static exo_policy_trunk
take_trunk(float **at, const exo_policy_shape *s)
{
    exo_policy_trunk trunk;
    trunk.weight1 = take(at, s->observation * s->units);
    trunk.bias1 = take(at, s->units);
    trunk.weight2 = take(at, s->units * s->units);
    trunk.bias2 = take(at, s->units);
    return trunk;
}

exo_policy
exo_policy_view(const exo_policy_shape *shape, float *values)
{
    exo_policy policy = {.shape = *shape, .values = values};
    policy.actor = take_trunk(&values, shape);
    policy.critic = take_trunk(&values, shape);
    policy.action_weight = take(&values, shape->outputs * shape->units);
    policy.action_bias = take(&values, shape->outputs);
    policy.value_weight = take(&values, shape->units);
    policy.value_bias = take(&values, 1);
    policy.log_deviation = values;
    return policy;
}

/* --- Initial values --------------------------------------------------------------------------- */

/* The product of `row` with a row of a matrix whose elements are `by_column` apart, divided by
 * `gain`. */
static double
row_product(const double *row, const float *other, size_t count, size_t by_column, double gain)
{
    double product = 0;
    for (size_t k = 0; k < count; k++)
        product += row[k] * ((double)other[k * by_column] / gain);
    return product;
}

/* Draws orthogonal rows of length `gain`: normal numbers, made orthogonal by Gram-Schmidt. Each
 * projection is subtracted twice, because rounding leaves a part of it the first time. A matrix with
 * more rows than columns gets orthogonal columns. */
static void
orthogonal(float *matrix, size_t rows, size_t columns, double gain, uint64_t seed, uint64_t layer)
{
    exo_rng rng;
    exo_rng_init(&rng, seed, EXO_RNG_INIT, 0, layer);
    double row[MOST];
    bool tall = rows > columns;
    size_t count = tall ? columns : rows, length = tall ? rows : columns;
    size_t by_row = tall ? 1 : columns, by_column = tall ? columns : 1;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < length; k++)
            row[k] = (double)exo_rng_normal(&rng);
        for (size_t j = 0; j < 2 * i; j++) {
            const float *other = matrix + j % i * by_row;
            double product = row_product(row, other, length, by_column, gain);
            for (size_t k = 0; k < length; k++)
                row[k] -= product * ((double)other[k * by_column] / gain);
        }
        double squares = 0;
        for (size_t k = 0; k < length; k++)
            squares += row[k] * row[k];
        for (size_t k = 0; k < length; k++)
            matrix[i * by_row + k * by_column] = (float)(gain * row[k] / sqrt(squares));
    }
}

void
exo_policy_init(const exo_policy *policy, uint64_t seed)
{
    const exo_policy_shape *s = &policy->shape;
    memset(policy->values, 0, exo_policy_numel(s) * sizeof(float));
    orthogonal(policy->actor.weight1, s->observation, s->units, sqrt(2), seed, 0);
    orthogonal(policy->actor.weight2, s->units, s->units, sqrt(2), seed, 1);
    orthogonal(policy->action_weight, s->outputs, s->units, 0.01, seed, 2);
    orthogonal(policy->critic.weight1, s->observation, s->units, sqrt(2), seed, 3);
    orthogonal(policy->critic.weight2, s->units, s->units, sqrt(2), seed, 4);
    orthogonal(policy->value_weight, 1, s->units, 1, seed, 5);
}

/* --- Forward ---------------------------------------------------------------------------------- */

static void
trunk_forward(const exo_policy_trunk *trunk, const exo_policy_shape *s, const float *x,
              float *first, float *second)
{
    exo_small_forward(first, trunk->bias1, trunk->weight1, x, s->observation, s->units);
    exo_small_forward(second, trunk->bias2, trunk->weight2, first, s->units, s->units);
}

/* Replaces logits (count) by their log softmax. */
static void
log_softmax(float *logits, size_t count)
{
    float largest = -INFINITY, sum = 0;
    for (size_t a = 0; a < count; a++)
        largest = fmaxf(largest, logits[a]);
    for (size_t a = 0; a < count; a++)
        sum += expf(logits[a] - largest);
    for (size_t a = 0; a < count; a++)
        logits[a] = logits[a] - largest - logf(sum);
}

void
exo_policy_forward(const exo_policy *policy, const float *observation, exo_policy_output *out,
                   exo_policy_pass *pass)
{
    const exo_policy_shape *s = &policy->shape;
    exo_policy_pass local;
    exo_policy_pass *p = pass ? pass : &local;
    p->observation = observation;
    trunk_forward(&policy->actor, s, observation, p->actor1, p->actor2);
    trunk_forward(&policy->critic, s, observation, p->critic1, p->critic2);
    for (size_t a = 0; a < s->outputs; a++)
        out->actions[a] =
            policy->action_bias[a] +
            exo_small_product(policy->action_weight + a * s->units, p->actor2, s->units);
    if (!s->box)
        log_softmax(out->actions, s->outputs);
    out->value =
        policy->value_bias[0] + exo_small_product(policy->value_weight, p->critic2, s->units);
}

/* --- Actions ---------------------------------------------------------------------------------- */

static int32_t
sample_choice(const exo_policy_output *output, size_t count, exo_rng *rng)
{
    float left = exo_rng_uniform(rng);
    for (size_t a = 0; a + 1 < count; a++) {
        left -= expf(output->actions[a]);
        if (left < 0)
            return (int32_t)a;
    }
    return (int32_t)count - 1;
}

float
exo_policy_sample(const exo_policy *policy, const exo_policy_output *output, exo_rng *rng,
                  void *action)
{
    const exo_policy_shape *s = &policy->shape;
    if (!s->box) {
        int32_t choice = sample_choice(output, s->outputs, rng);
        *(int32_t *)action = choice;
        return output->actions[choice];
    }
    float *box = action;
    for (size_t a = 0; a < s->outputs; a++)
        box[a] = output->actions[a] + expf(policy->log_deviation[a]) * exo_rng_normal(rng);
    return (float)exo_policy_log_prob(policy, output, action);
}

void
exo_policy_best(const exo_policy *policy, const exo_policy_output *output, void *action)
{
    const exo_policy_shape *s = &policy->shape;
    int32_t best = 0;
    if (s->box) {
        memcpy(action, output->actions, s->outputs * sizeof(float));
        return;
    }
    for (size_t a = 1; a < s->outputs; a++)
        if (output->actions[a] > output->actions[best])
            best = (int32_t)a;
    *(int32_t *)action = best;
}

double
exo_policy_log_prob(const exo_policy *policy, const exo_policy_output *output, const void *action)
{
    const exo_policy_shape *s = &policy->shape;
    if (!s->box)
        return (double)output->actions[*(const int32_t *)action];
    const float *box = action;
    double sum = 0;
    for (size_t a = 0; a < s->outputs; a++) {
        double log_deviation = (double)policy->log_deviation[a];
        double off = ((double)box[a] - (double)output->actions[a]) / exp(log_deviation);
        sum -= 0.5 * off * off + log_deviation + 0.5 * log(2 * 3.14159265358979323846);
    }
    return sum;
}

/* --- Backward --------------------------------------------------------------------------------- */

/* `d` (units) is the gradient of the loss with respect to the outputs of the second layer; it is
 * overwritten. */
static void
trunk_backward(const exo_policy_trunk *trunk, const exo_policy_shape *s, const float *x,
               const float *first, const float *second, float *d, const exo_policy_trunk *gradient)
{
    float d_first[EXO_POLICY_MAX_UNITS];
    exo_small_backward(d, gradient->bias2, gradient->weight2, second, first, s->units, s->units);
    exo_small_backward_input(d_first, trunk->weight2, d, s->units, s->units);
    exo_small_backward(d_first, gradient->bias1, gradient->weight1, first, x, s->observation,
                       s->units);
}

void
exo_policy_backward(const exo_policy *policy, const exo_policy_pass *pass, const float *d_actions,
                    float d_value, const exo_policy *gradient)
{
    const exo_policy_shape *s = &policy->shape;
    float d[EXO_POLICY_MAX_UNITS] = {0};
    for (size_t a = 0; a < s->outputs; a++) {
        gradient->action_bias[a] += d_actions[a];
        exo_small_add(gradient->action_weight + a * s->units, pass->actor2, d_actions[a], s->units);
        exo_small_add(d, policy->action_weight + a * s->units, d_actions[a], s->units);
    }
    trunk_backward(&policy->actor, s, pass->observation, pass->actor1, pass->actor2, d,
                   &gradient->actor);

    gradient->value_bias[0] += d_value;
    exo_small_add(gradient->value_weight, pass->critic2, d_value, s->units);
    for (size_t k = 0; k < s->units; k++)
        d[k] = d_value * policy->value_weight[k];
    trunk_backward(&policy->critic, s, pass->observation, pass->critic1, pass->critic2, d,
                   &gradient->critic);
}
