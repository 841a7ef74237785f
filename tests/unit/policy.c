/* The policy of the CartPole actors, and the functions of PPO: values against plain formulas, and
 * gradients against finite differences. Each test owns its policies. Read next: actors/policy.h,
 * ppo.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/loss.h>

#include "actors/policy.h"
#include "actors/ppo.h"
#include "support/numbers.h"
#include "support/sanitized.h"

enum {
    UNITS = EXO_POLICY_HIDDEN,
    IN = EXO_CARTPOLE_OBSERVATION
};

/* A policy with nonzero biases, so that all parameters have an effect. */
static exo_policy
random_policy(uint64_t seed)
{
    exo_policy policy;
    float *noise = numbers_new(EXO_POLICY_NUMEL, seed), *values = (float *)&policy;
    exo_policy_init(&policy, seed);
    for (size_t i = 0; i < EXO_POLICY_NUMEL; i++)
        values[i] += 0.1f * noise[i];
    free(noise);
    return policy;
}

/* --- The networks ----------------------------------------------------------------------------- */

static void
plain_trunk(const exo_policy_trunk *trunk, const float *x, double *second)
{
    double first[UNITS];
    for (int k = 0; k < UNITS; k++) {
        double sum = (double)trunk->bias1[k];
        for (int i = 0; i < IN; i++)
            sum += (double)x[i] * (double)trunk->weight1[i][k];
        first[k] = tanh(sum);
    }
    for (int k = 0; k < UNITS; k++) {
        double sum = (double)trunk->bias2[k];
        for (int i = 0; i < UNITS; i++)
            sum += first[i] * (double)trunk->weight2[i][k];
        second[k] = tanh(sum);
    }
}

Test(policy, forward_is_the_formula)
{
    exo_policy policy = random_policy(3);
    float *x = numbers_new(20 * IN, 4);
    for (int n = 0; n < 20; n++) {
        exo_policy_output out;
        double hidden[UNITS], logits[2], value = (double)policy.value_bias[0];
        exo_policy_forward(&policy, x + n * IN, &out, NULL);
        plain_trunk(&policy.actor, x + n * IN, hidden);
        for (int a = 0; a < 2; a++) {
            logits[a] = (double)policy.action_bias[a];
            for (int k = 0; k < UNITS; k++)
                logits[a] += hidden[k] * (double)policy.action_weight[a][k];
        }
        plain_trunk(&policy.critic, x + n * IN, hidden);
        for (int k = 0; k < UNITS; k++)
            value += hidden[k] * (double)policy.value_weight[k];
        double sum = log(exp(logits[0]) + exp(logits[1]));
        /* Tolerance: two fp32 sums of 64 products of about 1. */
        cr_expect_float_eq((double)out.log_probs[0], logits[0] - sum, 1e-5);
        cr_expect_float_eq((double)out.log_probs[1], logits[1] - sum, 1e-5);
        cr_expect_float_eq((double)out.value, value, 1e-5);
    }
    free(x);
}

static double
row_product(const float *a, const float *b)
{
    double sum = 0;
    for (int k = 0; k < UNITS; k++)
        sum += (double)a[k] * (double)b[k];
    return sum;
}

Test(policy, initial_weights_are_orthogonal_and_of_the_seed)
{
    exo_policy policy, again, other;
    exo_policy_init(&policy, 1);
    exo_policy_init(&again, 1);
    exo_policy_init(&other, 2);
    cr_expect_eq(memcmp(&policy, &again, sizeof policy), 0);
    cr_expect_neq(memcmp(&policy, &other, sizeof policy), 0);
    cr_expect_neq(memcmp(&policy.actor, &policy.critic, sizeof policy.actor), 0);
    for (int i = 0; i < UNITS; i++) {
        cr_expect_eq(policy.actor.bias2[i], 0);
        for (int j = 0; j <= i; j++)
            cr_expect_float_eq(row_product(policy.actor.weight2[i], policy.actor.weight2[j]),
                               i == j ? 2.0 : 0, 1e-6);
    }
    cr_expect_float_eq(row_product(policy.critic.weight1[0], policy.critic.weight1[3]), 0, 1e-6);
    cr_expect_float_eq(row_product(policy.critic.weight1[3], policy.critic.weight1[3]), 2, 1e-6);
    cr_expect_float_eq(row_product(policy.action_weight[0], policy.action_weight[0]), 1e-4, 1e-9);
    cr_expect_float_eq(row_product(policy.action_weight[0], policy.action_weight[1]), 0, 1e-9);
    cr_expect_float_eq(row_product(policy.value_weight, policy.value_weight), 1, 1e-6);
}

Test(policy, actions_are_drawn_by_their_probabilities)
{
    enum {
        DRAWS = 20000
    };
    for (int percent = 0; percent <= 100; percent += 25) {
        float p = (float)percent / 100;
        const exo_policy_output output = {.log_probs = {logf(p), logf(1 - p)}};
        exo_rng rng;
        int left = 0;
        exo_rng_init(&rng, 5, EXO_RNG_ACTION, 0, (uint64_t)percent);
        for (int i = 0; i < DRAWS; i++)
            left += exo_policy_sample(&output, &rng) == 0;
        /* Four standard errors, which are 0 where the action is certain. */
        cr_expect_leq(fabs((double)left / DRAWS - (double)p),
                      4 * sqrt((double)(p * (1 - p)) / DRAWS));
    }
}

/* --- Advantages and losses -------------------------------------------------------------------- */

/* The definition of generalized advantage estimation: a sum over the deltas up to the end of the
 * episode or of the rollout. */
static double
plain_gae(const exo_rollout *r, size_t t, size_t e, double gamma, double lambda)
{
    double sum = 0, factor = 1;
    for (; t < r->steps; t++) {
        size_t i = t * r->environments + e;
        double next =
            t + 1 < r->steps ? (double)r->values[i + r->environments] : (double)r->bootstrap[e];
        if (r->dones[i] == EXO_DONE_TERMINATED)
            next = 0;
        if (r->dones[i] == EXO_DONE_TRUNCATED)
            next = (double)r->final_values[i];
        sum += factor * ((double)r->rewards[i] + gamma * next - (double)r->values[i]);
        factor *= gamma * lambda;
        if (r->dones[i] != EXO_DONE_NOT)
            break;
    }
    return sum;
}

Test(ppo, advantages_are_sums_of_deltas_within_an_episode)
{
    enum {
        T = 7,
        N = 3
    };
    /* One environment whose episodes end in all ways, also at the last step; one that never ends;
     * one that ends at every step. */
    uint8_t dones[T][N] = {{0, 0, 1}, {1, 0, 1}, {0, 0, 2}, {2, 0, 1},
                           {0, 0, 2}, {0, 0, 2}, {1, 0, 2}};
    float *numbers = numbers_new(3 * T * N + N, 6), advantages[T * N];
    const exo_rollout r = {.steps = T,
                           .environments = N,
                           .values = numbers,
                           .rewards = numbers + T * N,
                           .final_values = numbers + 2 * T * N,
                           .bootstrap = numbers + 3 * T * N,
                           .dones = dones[0]};
    exo_gae(&r, 0.9, 0.8, advantages);
    for (size_t t = 0; t < T; t++)
        for (size_t e = 0; e < N; e++)
            cr_expect_float_eq((double)advantages[t * N + e], plain_gae(&r, t, e, 0.9, 0.8), 1e-6,
                               "(%zu, %zu)", t, e);
    free(numbers);
}

Test(ppo, policy_loss_is_clipped_where_it_pays_to_go_further)
{
    static const struct {
        double ratio, advantage, loss, slope;
    } cases[] = {
        {1.0, 2.0, -2.0, -2.0}, {1.1, 2.0, -2.2, -2.2}, /* within the clip */
        {1.5, 2.0, -2.4, 0},    {0.5, -2.0, 1.6, 0},    /* beyond the clip: no slope */
        {0.5, 2.0, -1.0, -1.0}, {1.5, -2.0, 3.0, 3.0},  /* on the wrong side: a slope back */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double slope,
            loss = exo_policy_loss_term(log(cases[i].ratio), cases[i].advantage, 0.2, &slope);
        cr_expect_float_eq(loss, cases[i].loss, 1e-12, "case %zu", i);
        cr_expect_float_eq(slope, cases[i].slope, 1e-12, "case %zu", i);
    }
}

Test(ppo, value_loss_is_the_worse_of_clipped_and_unclipped)
{
    static const struct {
        double value, old, target, clip, loss, slope;
    } cases[] = {
        {3, 1, 5, 0, 2, -2},                     /* no clip */
        {3, 1, 5, 0.5, 0.5 * 3.5 * 3.5, 0},      /* far towards the target: clipped, no slope */
        {0, 1, 5, 0.5, 12.5, -5},                /* away from the target: not clipped */
        {1.2, 1, 5, 0.5, 0.5 * 3.8 * 3.8, -3.8}, /* within the clip */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double slope;
        double loss = exo_value_loss_term(cases[i].value, cases[i].old, cases[i].target,
                                          cases[i].clip, &slope);
        cr_expect_float_eq(loss, cases[i].loss, 1e-12, "case %zu", i);
        cr_expect_float_eq(slope, cases[i].slope, 1e-12, "case %zu", i);
    }
}

/* --- The gradient of a minibatch -------------------------------------------------------------- */

enum {
    SAMPLES = 6
};

static const uint32_t order[] = {4, 0, 5, 2}; /* a part of SAMPLES, not in order */

/* Samples whose ratios are within and beyond the clip on both sides, far from its edges: the loss
 * is not differentiable there. */
static exo_ppo_samples
make_samples(const exo_policy *policy)
{
    static const float ratios[SAMPLES] = {1.1f, 1, 1.5f, 1, 0.5f, 0.9f};
    static float values[SAMPLES], log_probs[SAMPLES], targets[SAMPLES];
    static int32_t actions[SAMPLES] = {0, 0, 1, 0, 1, 1};
    static float advantages[SAMPLES] = {1, 50, -2, 50, 3, -1};
    exo_ppo_samples s = {.count = SAMPLES,
                         .observations = numbers_new(SAMPLES * IN, 8),
                         .actions = actions,
                         .log_probs = log_probs,
                         .values = values,
                         .advantages = advantages,
                         .targets = targets};
    for (size_t i = 0; i < SAMPLES; i++) {
        exo_policy_output out;
        exo_policy_forward(policy, s.observations + i * IN, &out, NULL);
        log_probs[i] = out.log_probs[actions[i]] - logf(ratios[i]);
        values[i] = out.value + (i % 2 ? 0.7f : 0.1f); /* the clip is 0.3 */
        targets[i] = out.value - (float)i;
    }
    return s;
}

static double
loss_at(const exo_policy *policy, const exo_ppo_samples *samples, const exo_ppo_opts *opts)
{
    static exo_policy ignored;
    return exo_ppo_gradient(policy, samples, order, sizeof order / sizeof *order, opts, &ignored);
}

static void
check_gradient(const exo_ppo_opts *opts)
{
    exo_policy policy = random_policy(7), gradient = {0};
    exo_ppo_samples samples = make_samples(&policy);
    float *parameters = (float *)&policy, *got = (float *)&gradient;
    exo_ppo_gradient(&policy, &samples, order, sizeof order / sizeof *order, opts, &gradient);

    /* The loss of fp32 networks is off by about 1e-6, which a step of 1e-2 makes an error of 1e-4
     * in a slope. The curvature adds about as much. */
    const float step = 1e-2f;
    double largest = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < EXO_POLICY_NUMEL; i += one_of(7)) {
        float kept = parameters[i];
        parameters[i] = kept + step;
        double above = loss_at(&policy, &samples, opts);
        parameters[i] = kept - step;
        double below = loss_at(&policy, &samples, opts);
        parameters[i] = kept;
        double slope = (above - below) / (2 * (double)step);
        wrong += fabs(slope - (double)got[i]) > 1e-3 * (1 + fabs(slope));
        largest = fmax(largest, fabs(slope));
    }
    cr_expect_eq(wrong, 0, "%zu of %d are wrong", wrong, EXO_POLICY_NUMEL);
    cr_expect_geq(largest, 0.1);
    free(samples.observations);
}

Test(ppo, gradient_of_the_policy_loss)
{
    check_gradient(&(exo_ppo_opts){.clip = 0.2});
}

Test(ppo, gradient_of_the_value_loss)
{
    check_gradient(&(exo_ppo_opts){.clip = 0.2, .value = 0.5});
    check_gradient(&(exo_ppo_opts){.clip = 0.2, .value = 0.5, .value_clip = 0.3});
}

Test(ppo, gradient_of_the_entropy)
{
    check_gradient(&(exo_ppo_opts){.clip = 0.2, .entropy = 1});
}

Test(ppo, advantages_are_normalized_over_the_minibatch)
{
    exo_policy policy = random_policy(7), one = {0}, other = {0};
    exo_ppo_samples samples = make_samples(&policy);
    const exo_ppo_opts opts = {.clip = 0.2};
    const size_t count = sizeof order / sizeof *order;
    double loss = exo_ppo_gradient(&policy, &samples, order, count, &opts, &one);
    for (size_t i = 0; i < SAMPLES; i++)
        samples.advantages[i] = 8 * samples.advantages[i] + 100;
    /* Tolerance: the rounding of the shifted advantages. The 50s belong to samples outside the
     * minibatch and have no effect. */
    double shifted = exo_ppo_gradient(&policy, &samples, order, count, &opts, &other);
    double distance = numbers_distance((float *)&one, (float *)&other, EXO_POLICY_NUMEL);
    cr_expect_float_eq(shifted, loss, 1e-5);
    cr_expect_leq(distance, 1e-5, "%g", distance);
    /* A single sample keeps its advantage: the loss of sample 0, with the ratio 1.1. */
    samples.advantages[0] = 3;
    double single = exo_ppo_gradient(&policy, &samples, (uint32_t[]){0}, 1, &opts, &other);
    cr_expect_float_eq(single, -1.1 * 3, 1e-5);
    free(samples.observations);
}
