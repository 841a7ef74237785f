/* Rollouts and policies as makers and trainers send them, and the player that fills a rollout. Each
 * test owns its player and arrays. Read next: actors/rollout.h, player.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/player.h"
#include "actors/rollout.h"
#include "base/memory_fault.h"
#include "environments/spec.h"
#include "support/rollout_arrays.h"

/* --- Playing ---------------------------------------------------------------------------------- */

enum {
    T = 300,
    N = 3
};

/* Expects rewards, values and log-probabilities of step `i` to be those of the policy, and returns
 * the action. */
static exo_action
expect_step(const exo_policy *policy, const exo_rollout *r, size_t i)
{
    exo_policy_output out;
    exo_policy_forward(policy, r->observations + i * policy->shape.observation, &out, NULL);
    cr_assert_eq(r->values[i], out.value);
    cr_assert_eq(r->log_probs[i],
                 (float)exo_policy_log_prob(policy, &out, exo_rollout_action(r, i)));
    return policy->shape.box ? (exo_action){.box = exo_rollout_action(r, i)}
                             : (exo_action){.choice = r->choices[i]};
}

/* Plays, and repeats each episode from its stream with the actions that were taken. */
static void
expect_played(const char *options, size_t min_episodes)
{
    exo_environment_spec *spec = environment_new(options);
    const exo_environment_shape *shape = exo_environment_spec_shape(spec);
    const exo_environment_class *c = spec->environment_class;
    exo_policy policy = policy_new(spec, 1);
    exo_player *player = NULL;
    cr_assert_eq(exo_player_new(&player, spec, N, 9, NULL), EXO_OK);
    exo_rollout r = arrays_new(spec, T, N);
    exo_player_play(player, &policy, &r);

    for (size_t e = 0; e < N; e++) {
        uint64_t episode = 0, steps = 0;
        double state[64] = {0}, sum = 0;
        for (size_t t = 0; t < T; t++) {
            size_t i = t * N + e;
            /* an episode begins as its random stream says */
            if (t == 0 || r.dones[i - N] != EXO_EPISODE_GOES_ON) {
                exo_rng rng;
                exo_rng_init(&rng, 9, EXO_RNG_RESET, (uint32_t)e, episode++);
                c->begin(spec->self, state, &rng);
                sum = 0;
                steps = 0;
            }
            float seen[16], rewards[2], box;
            c->observe(spec->self, state, seen);
            cr_assert_eq(memcmp(seen, r.observations + i * shape->observation,
                                shape->observation * sizeof *seen),
                         0, "step %zu of environment %zu", t, e);
            if (r.players)
                cr_assert_eq(r.players[i], c->player(spec->self, state));
            exo_action action = expect_step(&policy, &r, i);
            if (shape->actions == 0) {
                box = fminf(fmaxf(*action.box, shape->low[0]), shape->high[0]);
                action.box = &box;
            }
            exo_episode end = c->step(spec->self, state, action, rewards);
            if (end == EXO_EPISODE_GOES_ON && ++steps == shape->max_steps)
                end = EXO_EPISODE_TRUNCATED;
            sum += (double)rewards[0];
            for (size_t p = 0; p < shape->players; p++)
                cr_assert_eq(r.rewards[i * shape->players + p], rewards[p]);
            cr_assert_eq((int)r.dones[i], (int)end);
            cr_assert_eq(r.returns[i], end == EXO_EPISODE_GOES_ON ? 0 : (float)sum);
            if (end != EXO_EPISODE_TRUNCATED)
                cr_assert_eq(r.final_values[i], 0);
        }
        cr_expect_geq(episode, min_episodes);
    }
    exo_player_free(&player);
    arrays_free(&r);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}

Test(player, plays_the_environment_with_the_policy)
{
    expect_played("cartpole", 3); /* a policy that knows nothing falls soon */
    expect_played("pendulum", 2);
    expect_played("kuhn_poker", 100);
}

Test(player, goes_on_where_it_was_and_plays_the_same_again)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 1);
    exo_rollout first = arrays_new(spec, T, N), second = arrays_new(spec, T, N),
                again = arrays_new(spec, T, N);
    exo_player *player = NULL, *same = NULL, *other = NULL;
    cr_assert_eq(exo_player_new(&player, spec, N, 9, NULL), EXO_OK);
    cr_assert_eq(exo_player_new(&same, spec, N, 9, NULL), EXO_OK);
    cr_assert_eq(exo_player_new(&other, spec, N, 10, NULL), EXO_OK);
    exo_player_play(player, &policy, &first);
    exo_player_play(player, &policy, &second);
    exo_player_play(same, &policy, &again);
    cr_expect_eq(memcmp(first.observations, again.observations, T * N * 4 * sizeof(float)), 0);
    cr_expect_neq(memcmp(first.observations, second.observations, T * N * 4 * sizeof(float)), 0);
    for (size_t e = 0; e < N; e++)
        cr_expect_eq(first.bootstrap[e], second.values[e],
                     "the value after the last step is that of the next one");
    exo_player_play(other, &policy, &again);
    cr_expect_neq(memcmp(first.observations, again.observations, T * N * 4 * sizeof(float)), 0);
    exo_player_free(&player);
    exo_player_free(&same);
    exo_player_free(&other);
    arrays_free(&first);
    arrays_free(&second);
    arrays_free(&again);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}

/* A policy that balances the pole: it pushes in the direction in which the pole leans and turns. */
static exo_policy
controller(const exo_environment_spec *spec)
{
    exo_policy policy = policy_new(spec, 1);
    static const float rule[4] = {0.05f, 0.1f, 1, 0.5f};
    memset(policy.values, 0, policy_numel(&policy) * sizeof(float));
    policy.value_bias[0] = 7;
    for (size_t i = 0; i < 4; i++)
        policy.actor.weight1[i * 64] = rule[i];
    policy.actor.weight2[0] = 1;
    policy.action_weight[0] = -1e4f;
    policy.action_weight[64] = 1e4f;
    return policy;
}

Test(player, an_episode_that_lasts_is_truncated_with_the_value_of_its_end)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = controller(spec);
    exo_player *player = NULL;
    cr_assert_eq(exo_player_new(&player, spec, 1, 9, NULL), EXO_OK);
    exo_rollout r = arrays_new(spec, 501, 1);
    exo_player_play(player, &policy, &r);
    for (size_t t = 0; t < 499; t++)
        cr_assert_eq((int)r.dones[t], EXO_EPISODE_GOES_ON);
    cr_expect_eq((int)r.dones[499], EXO_EPISODE_TRUNCATED);
    cr_expect_eq(r.returns[499], 500);
    cr_expect_eq(r.final_values[499], 7);
    cr_expect_eq((int)r.dones[500], EXO_EPISODE_GOES_ON);

    exo_evaluation evaluation = {0};
    cr_assert_eq(exo_evaluate(&evaluation, spec, &policy, 10, false, 3, NULL), EXO_OK);
    cr_expect_eq(evaluation.mean, 500);
    cr_expect_eq(evaluation.deviation, 0);
    exo_player_free(&player);
    arrays_free(&r);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}

/* An evaluation plays what a player of one environment plays. */
Test(player, an_evaluation_has_mean_and_deviation_of_the_returns)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 1);
    exo_player *player = NULL;
    exo_evaluation sampled = {0}, again = {0}, best = {0};
    double returns[20], sum = 0, squares = 0;
    size_t count = 0;
    exo_rollout r = arrays_new(spec, 2000, 1);
    cr_assert_eq(exo_player_new(&player, spec, 1, 3, NULL), EXO_OK);
    exo_player_play(player, &policy, &r);
    for (size_t t = 0; t < 2000 && count < 20; t++)
        if (r.dones[t] != EXO_EPISODE_GOES_ON)
            sum += returns[count++] = (double)r.returns[t];
    cr_assert_eq(count, 20);
    for (size_t i = 0; i < count; i++)
        squares += (returns[i] - sum / 20) * (returns[i] - sum / 20);
    cr_assert_eq(exo_evaluate(&sampled, spec, &policy, 20, false, 3, NULL), EXO_OK);
    cr_assert_eq(exo_evaluate(&again, spec, &policy, 20, false, 4, NULL), EXO_OK);
    cr_assert_eq(exo_evaluate(&best, spec, &policy, 20, true, 3, NULL), EXO_OK);
    cr_expect_float_eq(sampled.mean, sum / 20, 1e-9);
    cr_expect_float_eq(sampled.deviation, sqrt(squares / 19), 1e-9);
    cr_expect_neq(again.mean, sampled.mean);
    cr_expect_neq(best.mean, sampled.mean);
    exo_player_free(&player);
    arrays_free(&r);
    policy_free(&policy);
    exo_environment_spec_free(&spec);
}

Test(player, needs_an_environment_and_memory)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_player *player = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_player_new(&player, spec, 0, 1, &err), EXO_INVAL);
    cr_expect_null(player);
    for (uint64_t n = 1; n <= 6; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_player_new(&player, spec, 3, 1, &err), EXO_NOMEM);
        cr_expect_null(player);
    }
    exo_memory_fail_at(0);
    exo_environment_spec_free(&spec);
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Makes an item over memory of the test. */
static exo_item
make_item(const exo_environment_shape *shape, size_t steps, size_t environments)
{
    exo_item item = {0};
    item.num_parts = exo_rollout_parts(shape, steps, environments, item.parts);
    for (size_t i = 0; i < item.num_parts; i++)
        item.parts[i].data = calloc(item.parts[i].count, exo_dtype_size(item.parts[i].dtype));
    return item;
}

static void
free_item(exo_item *item)
{
    for (size_t i = 0; i < item->num_parts; i++)
        free(item->parts[i].data);
}

static const exo_environment_shape choices = {.observation = 4, .actions = 2, .players = 1};
static const exo_environment_shape boxes = {.observation = 3, .box = 2, .players = 1};
static const exo_environment_shape game = {.observation = 9, .actions = 2, .players = 2};

Test(rollout, is_read_as_it_was_made)
{
    const exo_environment_shape *const shapes[] = {&choices, &boxes, &game};
    for (size_t k = 0; k < 3; k++) {
        exo_item item = make_item(shapes[k], 5, 3);
        exo_rollout r;
        exo_err err = {0};
        cr_assert_eq(exo_rollout_view(&r, &item, shapes[k], &err), EXO_OK, "%s", err.text);
        cr_expect_eq(r.steps, 5);
        cr_expect_eq(r.environments, 3);
        const void *const arrays[EXO_ROLLOUT_PARTS] = {r.observations, exo_rollout_action(&r, 0),
                                                       r.log_probs,    r.values,
                                                       r.rewards,      r.dones,
                                                       r.final_values, r.returns,
                                                       r.bootstrap,    r.players};
        for (size_t i = 0; i < item.num_parts; i++)
            cr_expect_eq(arrays[i], item.parts[i].data);
        cr_expect_eq(item.num_parts, k == 2 ? 10 : 9);
        cr_expect_eq(item.parts[0].count, 5 * 3 * shapes[k]->observation);
        cr_expect_eq(item.parts[1].count, 5 * 3 * (k == 1 ? 2 : 1));
        cr_expect_eq(item.parts[4].count, 5 * 3 * shapes[k]->players);
        free_item(&item);
    }
}

static void
expect_refused(const exo_item *item, const exo_environment_shape *shape, const char *reason)
{
    exo_rollout r;
    exo_err err = {0};
    cr_expect_eq(exo_rollout_view(&r, item, shape, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, reason);
}

Test(rollout, that_does_not_fit_is_refused)
{
    exo_item item = make_item(&choices, 5, 3), broken = item;
    expect_refused(&item, &game, "9 arrays, not the 10 of a rollout");
    expect_refused(&item, &boxes, "observations: 60 of fp32, not 45 of fp32");
    broken.num_parts = 8;
    expect_refused(&broken, &choices, "8 arrays, not the 9 of a rollout");
    broken = item;
    broken.parts[8].count = 4;
    expect_refused(&broken, &choices, "15 dones and 4 last values are no rollout of equal steps");
    broken = item;
    broken.parts[8].count = 0;
    expect_refused(&broken, &choices, "15 dones and 0 last values are no rollout of equal steps");
    broken = item;
    broken.parts[0].count = 15;
    expect_refused(&broken, &choices, "observations: 15 of fp32, not 60 of fp32");
    broken = item;
    broken.parts[5].dtype = EXO_I8;
    expect_refused(&broken, &choices, "dones: 15 of int8, not 15 of uint8");
    ((int32_t *)item.parts[1].data)[7] = 2;
    expect_refused(&item, &choices, "actions[7]: 2 is not in [0, 2)");
    ((int32_t *)item.parts[1].data)[7] = 1;
    ((uint8_t *)item.parts[5].data)[14] = 3;
    expect_refused(&item, &choices, "dones[14]: 3 is not in [0, 2]");
    ((uint8_t *)item.parts[5].data)[14] = 2;
    ((float *)item.parts[4].data)[6] = INFINITY;
    expect_refused(&item, &choices, "rewards[6]: inf is not finite");
    ((float *)item.parts[4].data)[6] = 1;
    ((float *)item.parts[8].data)[2] = NAN;
    expect_refused(&item, &choices, "bootstrap[2]: nan is not finite");
    free_item(&item);
    item = make_item(&game, 5, 3);
    ((uint8_t *)item.parts[9].data)[17] = 2; /* after the last step */
    expect_refused(&item, &game, "players[17]: 2 is not in [0, 2)");
    free_item(&item);
}

Test(rollout, a_policy_is_read_or_refused)
{
    exo_environment_spec *spec = environment_new("cartpole");
    exo_policy policy = policy_new(spec, 3), out = policy_new(spec, 4);
    exo_err err = {0};
    exo_item item = {
        .num_parts = 1,
        .parts = {{.dtype = EXO_F32, .count = policy_numel(&policy), .data = policy.values}}};
    cr_expect_eq(exo_policy_read(&out, &item, &err), EXO_OK);
    cr_expect_eq(memcmp(out.values, policy.values, policy_numel(&policy) * sizeof(float)), 0);
    item.parts[0].count--;
    cr_expect_eq(exo_policy_read(&out, &item, &err), EXO_INVAL);
    cr_expect_str_eq(err.text,
                     "1 arrays, the first of 9154 fp32, not the 9155 fp32 parameters of a policy");
    policy_free(&policy);
    policy_free(&out);
    exo_environment_spec_free(&spec);
}

Test(rollout, returns_are_those_of_the_last_hundred_episodes)
{
    exo_returns returns = {0};
    double sum;
    cr_expect_eq(exo_returns_sum(&returns, &sum), 0);
    exo_environment_spec *spec = environment_new("cartpole");
    exo_rollout r = arrays_new(spec, 50, 2);
    for (size_t i = 0; i < 100; i++) { /* every other step ends an episode */
        r.dones[i] = i % 2 ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
        r.returns[i] = i % 2 ? (float)i : 1000;
    }
    exo_returns_add(&returns, &r);
    cr_expect_eq(exo_returns_sum(&returns, &sum), 50);
    cr_expect_eq(sum, 50 * 50);
    for (size_t i = 0; i < 100; i++)
        r.returns[i] = 200;
    exo_returns_add(&returns, &r);
    cr_expect_eq(exo_returns_sum(&returns, &sum), 100);
    cr_expect_eq(sum, 50 * 50 + 50 * 200);
    exo_returns_add(&returns, &r);
    cr_expect_eq(exo_returns_sum(&returns, &sum), 100);
    cr_expect_eq(sum, 100 * 200);
    arrays_free(&r);
    exo_environment_spec_free(&spec);
}
