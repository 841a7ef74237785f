/* CartPole-v1 against the steps and episodes of Gymnasium's implementation, in
 * golden/cartpole_golden.h.
 *
 * Both compute in double and in the same order, so only the last bit of a sine or cosine may
 * differ. One step may be off by that much. Over an episode the controller keeps the difference
 * small, because it keeps the pole upright. The tests have no shared state. Read next:
 * actors/cartpole.h. */
#include <criterion/criterion.h>

#include <math.h>

#include "../golden/cartpole_golden.h"
#include "actors/cartpole.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void
expect_state(const exo_cartpole *c, const double expected[4], double tolerance, size_t index)
{
    const double got[4] = {c->x, c->x_dot, c->theta, c->theta_dot};
    for (int i = 0; i < 4; i++)
        cr_expect_leq(fabs(got[i] - expected[i]), tolerance * (1 + fabs(expected[i])),
                      "case %zu: [%d] is %.17g, not %.17g", index, i, got[i], expected[i]);
}

static exo_cartpole
at(const double state[4])
{
    return (exo_cartpole){
        .x = state[0], .x_dot = state[1], .theta = state[2], .theta_dot = state[3]};
}

Test(cartpole, a_step_is_gymnasiums)
{
    size_t ends = 0;
    for (size_t i = 0; i < COUNT(golden_steps); i++) {
        exo_cartpole c = at(golden_steps[i].before);
        exo_cartpole_end end = exo_cartpole_step(&c, golden_steps[i].action);
        expect_state(&c, golden_steps[i].after, 1e-15, i);
        cr_expect_eq((int)end, golden_steps[i].end, "step %zu", i);
        ends += end == EXO_CARTPOLE_TERMINATED;
    }
    cr_expect(ends > 0 && ends < COUNT(golden_steps), "only one of both kinds of steps is tried");
}

Test(cartpole, an_episode_is_gymnasiums)
{
    for (size_t i = 0; i < COUNT(golden_episodes); i++) {
        const struct golden_episode *g = &golden_episodes[i];
        exo_cartpole c = at(g->start);
        exo_cartpole_end end;
        do {
            double turn = g->rule[0] * c.theta + g->rule[1] * c.theta_dot + g->rule[2] * c.x +
                          g->rule[3] * c.x_dot;
            end = exo_cartpole_step(&c, turn > 0);
        } while (end == EXO_CARTPOLE_GOES_ON);
        cr_expect_eq(c.steps, g->length, "episode %zu has %u steps, not %u", i, c.steps, g->length);
        cr_expect_eq((int)end, g->end, "episode %zu", i);
        expect_state(&c, g->last, 1e-9, i);
    }
}

Test(cartpole, step_500_truncates_unless_the_pole_falls)
{
    exo_cartpole c = {.steps = EXO_CARTPOLE_MAX_STEPS - 2};
    cr_expect_eq(exo_cartpole_step(&c, 1), EXO_CARTPOLE_GOES_ON);
    cr_expect_eq(exo_cartpole_step(&c, 0), EXO_CARTPOLE_TRUNCATED);
    c = (exo_cartpole){.theta = 0.2, .theta_dot = 2, .steps = EXO_CARTPOLE_MAX_STEPS - 1};
    cr_expect_eq(exo_cartpole_step(&c, 1), EXO_CARTPOLE_TERMINATED);
}

Test(cartpole, beginnings_are_small_uniform_and_of_the_stream)
{
    enum {
        EPISODES = 4000
    };
    double sum[4] = {0}, squares[4] = {0};
    for (uint64_t episode = 0; episode < EPISODES; episode++) {
        exo_rng rng;
        exo_cartpole c, again;
        float seen[4];
        exo_rng_init(&rng, 1, EXO_RNG_RESET, 0, episode);
        exo_cartpole_reset(&c, &rng);
        exo_rng_init(&rng, 1, EXO_RNG_RESET, 0, episode);
        exo_cartpole_reset(&again, &rng);
        exo_cartpole_observe(&c, seen);
        const double state[4] = {c.x, c.x_dot, c.theta, c.theta_dot};
        const double same[4] = {again.x, again.x_dot, again.theta, again.theta_dot};
        cr_assert_eq(c.steps, 0);
        for (int i = 0; i < 4; i++) {
            cr_assert(state[i] >= -0.05 && state[i] < 0.05);
            cr_assert_eq(state[i], same[i]);
            cr_assert_eq(seen[i], (float)state[i]);
            sum[i] += state[i];
            squares[i] += state[i] * state[i];
        }
    }
    /* A uniform number in +-a has mean 0 and variance a^2 / 3. The tolerance is four standard
     * errors. */
    for (int i = 0; i < 4; i++) {
        cr_expect_leq(fabs(sum[i] / EPISODES), 4 * 0.05 / sqrt(3.0 * EPISODES));
        cr_expect_leq(fabs(squares[i] / EPISODES / (0.05 * 0.05 / 3) - 1),
                      4 * sqrt(0.8 / EPISODES));
    }
}
