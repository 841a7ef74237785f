/* The policy that plays environments, and the functions of PPO: values against plain formulas, and
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
#include "support/rollout_arrays.h"
#include "support/sanitized.h"

enum {
    UNITS = 64,
    IN = 4
};

/* A policy with nonzero biases, so that all parameters have an effect. policy_free frees it. */
static exo_policy
random_policy(const char *environment, uint64_t seed)
{
    exo_environment_spec *spec = environment_new(environment);
    exo_policy policy = policy_new(spec, seed);
    size_t numel = policy_numel(&policy);
    float *noise = numbers_new(numel, seed);
    for (size_t i = 0; i < numel; i++)
        policy.values[i] += 0.1f * noise[i];
    free(noise);
    exo_environment_spec_free(&spec);
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
            sum += (double)x[i] * (double)trunk->weight1[i * UNITS + k];
        first[k] = tanh(sum);
    }
    for (int k = 0; k < UNITS; k++) {
        double sum = (double)trunk->bias2[k];
        for (int i = 0; i < UNITS; i++)
            sum += first[i] * (double)trunk->weight2[i * UNITS + k];
        second[k] = tanh(sum);
    }
}

Test(policy, forward_is_the_formula)
{
    exo_policy policy = random_policy("cartpole", 3);
    float *x = numbers_new(20 * IN, 4);
    for (int n = 0; n < 20; n++) {
        exo_policy_output out;
        double hidden[UNITS], logits[2], value = (double)policy.value_bias[0];
        exo_policy_forward(&policy, x + n * IN, &out, NULL);
        plain_trunk(&policy.actor, x + n * IN, hidden);
        for (int a = 0; a < 2; a++) {
            logits[a] = (double)policy.action_bias[a];
            for (int k = 0; k < UNITS; k++)
                logits[a] += hidden[k] * (double)policy.action_weight[a * UNITS + k];
        }
        plain_trunk(&policy.critic, x + n * IN, hidden);
        for (int k = 0; k < UNITS; k++)
            value += hidden[k] * (double)policy.value_weight[k];
        double sum = log(exp(logits[0]) + exp(logits[1]));
        /* Tolerance: two fp32 sums of 64 products of about 1. */
        cr_expect_float_eq((double)out.actions[0], logits[0] - sum, 1e-5);
        cr_expect_float_eq((double)out.actions[1], logits[1] - sum, 1e-5);
        cr_expect_float_eq((double)out.value, value, 1e-5);
    }
    free(x);
    policy_free(&policy);
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
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 1), again = policy_new(spec, 1),
               other = policy_new(spec, 2);
    const size_t numel = policy_numel(&policy), bytes = numel * sizeof(float);
    cr_expect_eq(numel, 9155);
    cr_expect_eq(memcmp(policy.values, again.values, bytes), 0);
    cr_expect_neq(memcmp(policy.values, other.values, bytes), 0);
    cr_expect_neq(memcmp(policy.actor.weight1, policy.critic.weight1, IN * UNITS * sizeof(float)),
                  0);
    for (size_t i = 0; i < UNITS; i++) {
        const float *w = policy.actor.weight2;
        cr_expect_eq(policy.actor.bias2[i], 0);
        for (size_t j = 0; j <= i; j++)
            cr_expect_float_eq(row_product(w + i * UNITS, w + j * UNITS), i == j ? 2.0 : 0, 1e-6);
    }
    const float *first = policy.critic.weight1, *fourth = first + 3 * UNITS;
    const float *left = policy.action_weight, *right = left + UNITS;
    cr_expect_float_eq(row_product(first, fourth), 0, 1e-6);
    cr_expect_float_eq(row_product(fourth, fourth), 2, 1e-6);
    cr_expect_float_eq(row_product(left, left), 1e-4, 1e-9);
    cr_expect_float_eq(row_product(left, right), 0, 1e-9);
    cr_expect_float_eq(row_product(policy.value_weight, policy.value_weight), 1, 1e-6);
    policy_free(&policy);
    policy_free(&again);
    policy_free(&other);
    exo_environment_spec_free(&spec);
}

Test(policy, more_observations_than_units_have_orthogonal_columns)
{
    const exo_policy_shape shape = {.observation = 40, .units = 16, .outputs = 2};
    exo_policy policy = exo_policy_view(&shape, calloc(exo_policy_numel(&shape), sizeof(float)));
    exo_policy_init(&policy, 1);
    for (size_t a = 0; a < 16; a++)
        for (size_t b = 0; b <= a; b++) {
            double sum = 0;
            for (size_t i = 0; i < 40; i++)
                sum += (double)policy.actor.weight1[i * 16 + a] *
                       (double)policy.actor.weight1[i * 16 + b];
            cr_expect_float_eq(sum, a == b ? 2.0 : 0, 1e-6);
        }
    policy_free(&policy);
}

Test(policy, actions_are_drawn_by_their_probabilities)
{
    enum {
        DRAWS = 20000
    };
    const exo_policy policy = {.shape = {.outputs = 2}};
    for (int percent = 0; percent <= 100; percent += 25) {
        float p = (float)percent / 100;
        const exo_policy_output output = {.actions = {logf(p), logf(1 - p)}};
        exo_rng rng;
        int left = 0;
        exo_rng_init(&rng, 5, EXO_RNG_ACTION, 0, (uint64_t)percent);
        for (int i = 0; i < DRAWS; i++) {
            int32_t action;
            float log_prob = exo_policy_sample(&policy, &output, &rng, &action);
            cr_assert_eq(log_prob, output.actions[action]);
            left += action == 0;
        }
        /* Four standard errors, which are 0 where the action is certain. */
        cr_expect_leq(fabs((double)left / DRAWS - (double)p),
                      4 * sqrt((double)(p * (1 - p)) / DRAWS));
    }
}

Test(policy, continuous_actions_are_normal)
{
    enum {
        DRAWS = 20000
    };
    float log_deviation[2] = {logf(0.5f), 0};
    const exo_policy policy = {.shape = {.outputs = 2, .box = true},
                               .log_deviation = log_deviation};
    const exo_policy_output output = {.actions = {3, -1}};
    const double means[2] = {3, -1}, deviations[2] = {0.5, 1};
    double sums[2] = {0}, squares[2] = {0};
    exo_rng rng;
    exo_rng_init(&rng, 5, EXO_RNG_ACTION, 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        float action[2];
        double expected = 0, got = (double)exo_policy_sample(&policy, &output, &rng, action);
        for (int a = 0; a < 2; a++) {
            double z = ((double)action[a] - means[a]) / deviations[a];
            sums[a] += z;
            squares[a] += z * z;
            expected += log(exp(-z * z / 2) / (deviations[a] * sqrt(2 * acos(-1.0))));
        }
        cr_assert_float_eq(got, expected, 1e-5 * (1 + fabs(expected)));
    }
    /* Four standard errors of a mean and of a variance of normal numbers. */
    for (int a = 0; a < 2; a++) {
        cr_expect_leq(fabs(sums[a] / DRAWS), 4 / sqrt(DRAWS));
        cr_expect_leq(fabs(squares[a] / DRAWS - 1), 4 * sqrt(2.0 / DRAWS));
    }
    float best[2];
    exo_policy_best(&policy, &output, best);
    cr_expect_eq(best[0], 3);
    cr_expect_eq(best[1], -1);
}

Test(policy, best_action_is_the_first_of_the_most_probable)
{
    const exo_policy policy = {.shape = {.outputs = 4}};
    int32_t action;
    exo_policy_best(&policy, &(exo_policy_output){.actions = {-3, -1, -2, -1}}, &action);
    cr_expect_eq(action, 1);
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
        if (r->dones[i] == EXO_EPISODE_TERMINATED)
            next = 0;
        if (r->dones[i] == EXO_EPISODE_TRUNCATED)
            next = (double)r->final_values[i];
        sum += factor * ((double)r->rewards[i] + gamma * next - (double)r->values[i]);
        factor *= gamma * lambda;
        if (r->dones[i] != EXO_EPISODE_GOES_ON)
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
                           .num_players = 1,
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

/* Two players, gamma 0.9, lambda 0.8. Player 0 moves at 0, 2, 3 and 5, player 1 at 1, 4 and 6. The
 * first episode ends at 2. */
Test(ppo, advantages_of_a_game_are_those_of_each_players_turns)
{
    enum {
        T = 7
    };
    uint8_t players[T + 1] = {0, 1, 0, 0, 1, 0, 1, 0}, dones[T] = {[2] = EXO_EPISODE_TERMINATED};
    float rewards[T][2] = {{1, 0}, {2, -2}, {5, -5}, {0, 3}, {4, -1}, {0, 0}, {-1, 1}};
    float values[T] = {1, 2, 3, 4, 5, 6, 7}, finals[T] = {0}, bootstrap = 8, advantages[T];
    const exo_rollout r = {.steps = T,
                           .environments = 1,
                           .num_players = 2,
                           .values = values,
                           .rewards = rewards[0],
                           .dones = dones,
                           .final_values = finals,
                           .bootstrap = &bootstrap,
                           .players = players};
    const double g = 0.9, gl = 0.9 * 0.8;
    double at5 = 0 - 1 + g * 8 - 6; /* rewards of 5 and 6, then its turn after the last */
    double at3 = 0 + 4 + g * 6 - 4 + gl * at5; /* of 3 and 4 */
    double at4 = -1 + 0 + g * 7 - 5;           /* at 6 nothing is learnt */
    double at2 = 5 - 3;
    double at0 = 1 + 2 + g * 3 - 1 + gl * at2;
    double at1 = -2 - 5 - 2;
    const double expected[T] = {at0, at1, at2, at3, at4, at5, 0};
    exo_gae(&r, g, 0.8, advantages);
    for (int t = 0; t < T; t++)
        cr_expect_float_eq((double)advantages[t], expected[t], 1e-5, "%d", t);

    /* A game that is cut off teaches nothing about each player's last turn. */
    dones[6] = EXO_EPISODE_TRUNCATED;
    exo_gae(&r, g, 0.8, advantages);
    cr_expect_eq(advantages[5], 0);
    cr_expect_eq(advantages[6], 0);
    cr_expect_float_eq((double)advantages[3], 0 + 4 + g * 6 - 4, 1e-5);
}

Test(ppo, policy_loss_is_clipped_where_it_pays_to_go_further)
{
    static const struct {
        double ratio, advantage, loss, slope;
    } cases[] = {
        {1.0, 2.0, -2.0, -2.0}, {1.1, 2.0, -2.2, -2.2}, /* within the clip */
        {1.5, 2.0, -2.4, 0},    {0.5, -2.0, 1.6, 0},    /* beyond the clip: no slope */
        {0.5, 2.0, -1.0, -1.0}, {1.5, -2.0, 3.0, 3.0},  /* on the wrong side: a slope back */
        {INFINITY, 0, 0, 0},    {INFINITY, 2, -2.4, 0}, /* exp overflows */
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
 * is not differentiable there. free(samples.observations) frees them. */
static exo_ppo_samples
make_samples(const exo_policy *policy)
{
    static const float ratios[SAMPLES] = {1.1f, 1, 1.5f, 1, 0.5f, 0.9f};
    static float values[SAMPLES], log_probs[SAMPLES], targets[SAMPLES];
    static int32_t choices[SAMPLES] = {0, 0, 1, 0, 1, 1};
    static float boxes[SAMPLES] = {0.3f, -1, 0.5f, 2, -0.2f, 1};
    static float advantages[SAMPLES] = {1, 50, -2, 50, 3, -1};
    const bool box = policy->shape.box;
    exo_ppo_samples s = {.count = SAMPLES,
                         .observation = policy->shape.observation,
                         .box = box ? 1 : 0,
                         .observations = numbers_new(SAMPLES * policy->shape.observation, 8),
                         .choices = box ? NULL : choices,
                         .boxes = box ? boxes : NULL,
                         .log_probs = log_probs,
                         .values = values,
                         .advantages = advantages,
                         .targets = targets};
    for (size_t i = 0; i < SAMPLES; i++) {
        exo_policy_output out;
        const void *action = box ? (const void *)&boxes[i] : (const void *)&choices[i];
        exo_policy_forward(policy, s.observations + i * s.observation, &out, NULL);
        log_probs[i] = (float)exo_policy_log_prob(policy, &out, action) - logf(ratios[i]);
        values[i] = out.value + (i % 2 ? 0.7f : 0.1f); /* the clip is 0.3 */
        targets[i] = out.value - (float)i;
    }
    return s;
}

static exo_policy
gradient_new(const exo_policy *policy)
{
    return exo_policy_view(&policy->shape, calloc(policy_numel(policy), sizeof(float)));
}

static double
loss_at(const exo_policy *policy, const exo_ppo_samples *samples, const exo_ppo_opts *opts)
{
    exo_policy ignored = gradient_new(policy);
    double loss =
        exo_ppo_gradient(policy, samples, order, sizeof order / sizeof *order, opts, &ignored);
    policy_free(&ignored);
    return loss;
}

static void
check_gradient_of(const char *environment, const exo_ppo_opts *opts)
{
    exo_policy policy = random_policy(environment, 7), gradient = gradient_new(&policy);
    exo_ppo_samples samples = make_samples(&policy);
    exo_ppo_gradient(&policy, &samples, order, sizeof order / sizeof *order, opts, &gradient);

    /* The loss of fp32 networks is off by about 1e-6, which a step of 1e-2 makes an error of 1e-4
     * in a slope. The curvature adds about as much. */
    const float step = 1e-2f;
    const size_t numel = policy_numel(&policy);
    double largest = 0;
    size_t wrong = 0;
    for (size_t i = numel - 1; i < numel; i -= one_of(7)) { /* the last one has to be tried */
        float kept = policy.values[i];
        policy.values[i] = kept + step;
        double above = loss_at(&policy, &samples, opts);
        policy.values[i] = kept - step;
        double below = loss_at(&policy, &samples, opts);
        policy.values[i] = kept;
        double slope = (above - below) / (2 * (double)step);
        wrong += fabs(slope - (double)gradient.values[i]) > 1e-3 * (1 + fabs(slope));
        largest = fmax(largest, fabs(slope));
    }
    cr_expect_eq(wrong, 0, "%s: %zu of %zu are wrong", environment, wrong, numel);
    cr_expect_geq(largest, 0.1);
    free(samples.observations);
    policy_free(&policy);
    policy_free(&gradient);
}

static void
check_gradient(const exo_ppo_opts *opts)
{
    check_gradient_of("cartpole", opts);
    check_gradient_of("pendulum", opts);
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
    exo_policy policy = random_policy("cartpole", 7), one = gradient_new(&policy),
               other = gradient_new(&policy);
    exo_ppo_samples samples = make_samples(&policy);
    const exo_ppo_opts opts = {.clip = 0.2};
    const size_t count = sizeof order / sizeof *order;
    double loss = exo_ppo_gradient(&policy, &samples, order, count, &opts, &one);
    for (size_t i = 0; i < SAMPLES; i++)
        samples.advantages[i] = 8 * samples.advantages[i] + 100;
    /* Tolerance: the rounding of the shifted advantages. The 50s belong to samples outside the
     * minibatch and have no effect. */
    double shifted = exo_ppo_gradient(&policy, &samples, order, count, &opts, &other);
    double distance = numbers_distance(one.values, other.values, policy_numel(&policy));
    cr_expect_float_eq(shifted, loss, 1e-5);
    cr_expect_leq(distance, 1e-5, "%g", distance);
    /* A single sample keeps its advantage: the loss of sample 0, with the ratio 1.1. */
    samples.advantages[0] = 3;
    double single = exo_ppo_gradient(&policy, &samples, (uint32_t[]){0}, 1, &opts, &other);
    cr_expect_float_eq(single, -1.1 * 3, 1e-5);
    free(samples.observations);
    policy_free(&policy);
    policy_free(&one);
    policy_free(&other);
}
