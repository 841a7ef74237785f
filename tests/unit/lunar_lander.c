/* LunarLander against Gymnasium's: golden/lunar_lander_golden.h. The landscape, the first force and
 * the noise of the engines are those that Gymnasium drew.
 *
 * The two sides have Box2D of different versions (2.4 here, 2.3 in Gymnasium), whose solvers of
 * joints and contacts differ, so trajectories are near. Once a leg has touched the ground, only ends are
 * compared, and returns of landings.
 * Skipped without Box2D. Read next: environments/box2d/lander.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include <exogym/environment.h>
#include <exogym/plugin.h>

#include "support/rollout_arrays.h"

#ifdef EXO_TEST_BOX2D
#include "../golden/lunar_lander_golden.h"
#include "environments/box2d/lander.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    MORE = 150 /* steps that an episode of ours may take longer to end */
};

/* What an episode of ours has beside Gymnasium's. */
struct landing {
    double off;         /* the largest difference of an observation before the first contact */
    double off_reward;  /* and of a reward */
    double sum, golden; /* returns */
    double last;        /* reward of the last step: 100, it rests; -100, it is lost */
    size_t steps;
};

static lander_episode
begin(const struct golden_landing *g, const lander_options *options)
{
    const double noise[2] = {g->row[0].noise[0] / 30, g->row[0].noise[1] / 30};
    lander_start start;
    lander_episode e = {0};
    memcpy(start.heights, g->heights, sizeof start.heights);
    memcpy(start.force, g->force, sizeof start.force);
    memcpy(start.wind, g->phases, sizeof start.wind);
    lander_begin(&e, options, &start, noise);
    return e;
}

static struct landing
land(const struct golden_landing *g)
{
    const lander_options options = {.continuous = g->continuous != 0,
                                    .wind = g->wind != 0,
                                    .gravity = -10,
                                    .wind_power = 15,
                                    .turbulence_power = 1.5};
    lander_episode e = begin(g, &options);
    struct landing l = {0};
    bool flies = true, goes_on = true;
    for (size_t t = 1; t < g->rows; t++)
        l.golden += g->row[t].reward;
    for (size_t t = 1; goes_on && t < g->rows + MORE; t++) {
        size_t row = t < g->rows ? t : g->rows - 1;
        const float box[2] = {(float)g->row[row].action[0], (float)g->row[row].action[1]};
        const double noise[2] = {g->row[row].noise[0] / 30, g->row[row].noise[1] / 30};
        exo_action action = {.box = box};
        if (!g->continuous)
            action.choice = t < g->rows ? (int32_t)g->row[t].action[0] : 0;
        goes_on = lander_step(&e, &options, action, noise, &l.last) == EXO_EPISODE_GOES_ON;
        l.sum += l.last;
        l.steps = t;
        flies = flies && goes_on && t < g->rows && e.observation[6] + e.observation[7] == 0 &&
                g->row[row].observation[6] + g->row[row].observation[7] == 0;
        for (int i = 0; flies && i < LANDER_OBSERVATION; i++)
            l.off = fmax(l.off, fabs(e.observation[i] - g->row[t].observation[i]));
        if (flies)
            l.off_reward = fmax(l.off_reward, fabs(l.last - g->row[t].reward));
    }
    lander_end(&e);
    return l;
}

Test(lunar_lander, episodes_are_near_gymnasiums)
{
    for (size_t i = 0; i < COUNT(golden_landings); i++) {
        const struct golden_landing *g = &golden_landings[i];
        struct landing l = land(g);
        cr_expect_leq(l.off, 0.02, "%s: an observation in flight is off by %g", g->name, l.off);
        cr_expect_leq(l.off_reward, 0.5, "%s: a reward in flight by %g", g->name, l.off_reward);
        cr_expect_eq(l.last, g->row[g->rows - 1].reward, "%s: it ends with %g", g->name, l.last);
        if (l.last > 0) /* a crash depends on the bounces before it */
            cr_expect_leq(fabs(l.sum - l.golden), 30, "%s: returns %g, not %g in %zu steps of %zu",
                          g->name, l.sum, l.golden, l.steps, g->rows - 1);
    }
}

/* The registered class: the same seed and actions give the same bits, in vectors of any size. */
Test(lunar_lander, a_vector_has_the_same_bits_again)
{
    exo_err err = {0};
    cr_assert_eq(exo_plugin_load(EXO_TEST_BINARY_DIR "/exogym-box2d.so", &err), EXO_OK, "%s",
                 err.text);
    exo_environment_spec *spec = environment_new("{name: lunar_lander, max_steps: 120}");
    exo_environments *one = NULL, *two = NULL;
    cr_assert_eq(exo_environments_new(&one, spec, 1, 7, NULL), EXO_OK);
    cr_assert_eq(exo_environments_new(&two, spec, 2, 7, NULL), EXO_OK);
    size_t ends = 0;
    for (int32_t t = 0; t < 300; t++) {
        const int32_t actions[2] = {t % 4, 2};
        float seen[3][LANDER_OBSERVATION], rewards[3];
        uint8_t end[3];
        exo_environments_step(one, actions, &rewards[2], &end[2], NULL);
        exo_environments_step(two, actions, rewards, end, NULL);
        exo_environments_observe(one, seen[2]);
        exo_environments_observe(two, seen[0]);
        cr_assert_eq(memcmp(seen[0], seen[2], sizeof seen[0]), 0, "step %d", t);
        cr_assert_eq(rewards[0], rewards[2]);
        cr_assert_eq(end[0], end[2]);
        ends += end[0] != EXO_EPISODE_GOES_ON;
    }
    cr_expect_gt(ends, 1);
    exo_environments_free(&one);
    exo_environments_free(&two);
    exo_environment_spec_free(&spec);
}
#else
Test(lunar_lander, needs_box2d)
{
    cr_skip_test("exogym was built without Box2D");
}
#endif
