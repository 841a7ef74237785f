/* Rollouts and policies as the CartPole actors send them, and the player that fills a rollout. Each
 * test owns its player and arrays. Read next: actors/rollout.h, player.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "actors/player.h"
#include "actors/rollout.h"
#include "base/memory_fault.h"
#include "support/cartpole_arrays.h"

/* --- Playing ---------------------------------------------------------------------------------- */

enum {
    T = 300,
    N = 3
};

Test(player, plays_the_environment_with_the_policy)
{
    exo_policy policy;
    exo_policy_init(&policy, 1);
    exo_player *player = NULL;
    cr_assert_eq(exo_player_new(&player, N, 9, NULL), EXO_OK);
    exo_rollout r = arrays_new(T, N);
    exo_player_play(player, &policy, &r);

    for (size_t e = 0; e < N; e++) {
        uint64_t episode = 0;
        exo_cartpole c;
        for (size_t t = 0; t < T; t++) {
            size_t i = t * N + e;
            /* an episode begins as its random stream says */
            if (t == 0 || r.dones[i - N] != EXO_DONE_NOT) {
                exo_rng rng;
                exo_rng_init(&rng, 9, EXO_RNG_RESET, (uint32_t)e, episode++);
                exo_cartpole_reset(&c, &rng);
            }
            float seen[4];
            exo_policy_output out;
            exo_cartpole_observe(&c, seen);
            exo_policy_forward(&policy, seen, &out, NULL);
            cr_assert_eq(memcmp(seen, r.observations + i * 4, sizeof seen), 0,
                         "step %zu of environment %zu", t, e);
            cr_assert_eq(r.values[i], out.value);
            cr_assert_eq(r.log_probs[i], out.log_probs[r.actions[i]]);
            cr_assert_eq(r.rewards[i], 1);
            cr_assert_eq((int)r.dones[i], (int)exo_cartpole_step(&c, r.actions[i]));
            cr_assert_eq(r.returns[i], r.dones[i] == EXO_DONE_NOT ? 0 : (float)c.steps);
            cr_assert_eq(r.final_values[i], 0);
        }
        cr_expect_gt(episode, 2, "a policy that knows nothing falls soon");
    }
    exo_player_free(&player);
    arrays_free(&r);
}

Test(player, goes_on_where_it_was_and_plays_the_same_again)
{
    exo_policy policy;
    exo_policy_init(&policy, 1);
    exo_rollout first = arrays_new(T, N), second = arrays_new(T, N), again = arrays_new(T, N);
    exo_player *player = NULL, *same = NULL, *other = NULL;
    cr_assert_eq(exo_player_new(&player, N, 9, NULL), EXO_OK);
    cr_assert_eq(exo_player_new(&same, N, 9, NULL), EXO_OK);
    cr_assert_eq(exo_player_new(&other, N, 10, NULL), EXO_OK);
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
}

/* A policy that balances the pole: it pushes in the direction in which the pole leans and turns. */
static exo_policy
controller(void)
{
    exo_policy policy = {.value_bias = {7}};
    static const float rule[4] = {0.05f, 0.1f, 1, 0.5f};
    for (int i = 0; i < 4; i++)
        policy.actor.weight1[i][0] = rule[i];
    policy.actor.weight2[0][0] = 1;
    policy.action_weight[0][0] = -1e4f;
    policy.action_weight[1][0] = 1e4f;
    return policy;
}

Test(player, an_episode_that_lasts_is_truncated_with_the_value_of_its_end)
{
    exo_policy policy = controller();
    exo_player *player = NULL;
    cr_assert_eq(exo_player_new(&player, 1, 9, NULL), EXO_OK);
    exo_rollout r = arrays_new(EXO_CARTPOLE_MAX_STEPS + 1, 1);
    exo_player_play(player, &policy, &r);
    const size_t last = EXO_CARTPOLE_MAX_STEPS - 1;
    for (size_t t = 0; t < last; t++)
        cr_assert_eq((int)r.dones[t], EXO_DONE_NOT);
    cr_expect_eq((int)r.dones[last], EXO_DONE_TRUNCATED);
    cr_expect_eq(r.returns[last], EXO_CARTPOLE_MAX_STEPS);
    cr_expect_eq(r.final_values[last], 7);
    cr_expect_eq((int)r.dones[last + 1], EXO_DONE_NOT);
    exo_player_free(&player);
    arrays_free(&r);
}

Test(player, needs_an_environment_and_memory)
{
    exo_player *player = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_player_new(&player, 0, 1, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a player has 1 to 4096 environments, not 0");
    cr_expect_null(player);
    for (uint64_t n = 1; n <= 2; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_player_new(&player, 3, 1, &err), EXO_NOMEM);
        cr_expect_null(player);
    }
    exo_memory_fail_at(0);
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Makes an item over memory of the test. */
static exo_item
make_item(size_t steps, size_t environments)
{
    exo_item item = {.num_parts = EXO_ROLLOUT_PARTS};
    exo_rollout_parts(steps, environments, item.parts);
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++)
        item.parts[i].data = calloc(item.parts[i].count, exo_dtype_size(item.parts[i].dtype));
    return item;
}

static void
free_item(exo_item *item)
{
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++)
        free(item->parts[i].data);
}

Test(rollout, is_read_as_it_was_made)
{
    exo_item item = make_item(5, 3);
    exo_rollout r;
    exo_err err = {0};
    cr_assert_eq(exo_rollout_view(&r, &item, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(r.steps, 5);
    cr_expect_eq(r.environments, 3);
    const void *const arrays[EXO_ROLLOUT_PARTS] = {r.observations, r.actions, r.log_probs,
                                                   r.values,       r.rewards, r.dones,
                                                   r.final_values, r.returns, r.bootstrap};
    for (size_t i = 0; i < EXO_ROLLOUT_PARTS; i++)
        cr_expect_eq(arrays[i], item.parts[i].data);
    cr_expect_eq(item.parts[0].count, 5 * 3 * 4);
    free_item(&item);
}

static void
expect_refused(const exo_item *item, const char *reason)
{
    exo_rollout r;
    exo_err err = {0};
    cr_expect_eq(exo_rollout_view(&r, item, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, reason);
}

Test(rollout, that_does_not_fit_is_refused)
{
    exo_item item = make_item(5, 3), broken = item;
    broken.num_parts = 8;
    expect_refused(&broken, "8 arrays, not the 9 of a rollout");
    broken = item;
    broken.parts[8].count = 4;
    expect_refused(&broken, "15 actions and 4 last values are no rollout of equal steps");
    broken = item;
    broken.parts[8].count = 0;
    expect_refused(&broken, "15 actions and 0 last values are no rollout of equal steps");
    broken = item;
    broken.parts[0].count = 15;
    expect_refused(&broken, "observations: 15 of fp32, not 60 of fp32");
    broken = item;
    broken.parts[5].dtype = EXO_I8;
    expect_refused(&broken, "dones: 15 of int8, not 15 of uint8");
    ((int32_t *)item.parts[1].data)[7] = 2;
    expect_refused(&item, "actions[7]: 2 is not in [0, 2)");
    ((int32_t *)item.parts[1].data)[7] = 1;
    ((uint8_t *)item.parts[5].data)[14] = 3;
    expect_refused(&item, "dones[14]: 3 is not in [0, 2]");
    free_item(&item);
}

Test(rollout, a_policy_is_read_or_refused)
{
    exo_policy policy, out = {0};
    exo_err err = {0};
    exo_policy_init(&policy, 3);
    exo_item item = {
        .num_parts = 1,
        .parts = {{.dtype = EXO_F32, .count = sizeof policy / sizeof(float), .data = &policy}}};
    cr_expect_eq(exo_policy_read(&out, &item, &err), EXO_OK);
    cr_expect_eq(memcmp(&out, &policy, sizeof out), 0);
    item.parts[0].count--;
    cr_expect_eq(exo_policy_read(&out, &item, &err), EXO_INVAL);
    cr_expect_str_eq(err.text,
                     "1 arrays, the first of 9154 fp32, not the 9155 fp32 parameters of a policy");
}

Test(rollout, returns_are_those_of_the_last_hundred_episodes)
{
    exo_returns returns = {0};
    double sum;
    cr_expect_eq(exo_returns_sum(&returns, &sum), 0);
    exo_rollout r = arrays_new(50, 2);
    for (size_t i = 0; i < 100; i++) { /* every other step ends an episode */
        r.dones[i] = i % 2 ? EXO_DONE_TERMINATED : EXO_DONE_NOT;
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
}
