/* The environments of the library against Gymnasium's and the rules of a game, their registry, and
 * vectors of them. The expected steps are in golden/cartpole_golden.h and environments_golden.h.
 *
 * Both sides compute in double and in the same order, so only the last bit of a sine or cosine may
 * differ. The tests have no shared state. Read next: include/exogym/environment.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/plugin.h>

#include "../golden/cartpole_golden.h"
#include "../golden/environments_golden.h"
#include "base/memory_fault.h"
#include "environments/builtin.h"
#include "environments/small_angle.h"
#include "environments/spec.h"
#include "support/rollout_arrays.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* An instance in a test's memory. */
struct instance {
    exo_environment_spec *spec;
    double state[64];
};

static struct instance
instance_of(const char *options, const double *state, size_t count)
{
    struct instance i = {.spec = environment_new(options)};
    memcpy(i.state, state, count * sizeof *state);
    return i;
}

static exo_episode
step(struct instance *i, exo_action action, float *rewards)
{
    return i->spec->environment_class->step(i->spec->self, i->state, action, rewards);
}

static void
expect_near(const double *got, const double *expected, size_t count, double tolerance,
            const char *what, size_t index)
{
    for (size_t i = 0; i < count; i++)
        cr_expect_leq(fabs(got[i] - expected[i]), tolerance * (1 + fabs(expected[i])),
                      "%s, step %zu: [%zu] is %.17g, not %.17g", what, index, i, got[i],
                      expected[i]);
}

/* --- Gymnasium's ------------------------------------------------------------------------------ */

Test(cartpole, a_step_is_gymnasiums)
{
    size_t ends = 0;
    for (size_t i = 0; i < COUNT(golden_steps); i++) {
        struct instance c = instance_of("cartpole", golden_steps[i].before, 4);
        float reward = 0;
        exo_episode end = step(&c, (exo_action){.choice = golden_steps[i].action}, &reward);
        expect_near(c.state, golden_steps[i].after, 4, 1e-15, "cartpole", i);
        cr_expect_eq((int)end, golden_steps[i].end, "step %zu", i);
        cr_expect_eq(reward, 1);
        ends += end == EXO_EPISODE_TERMINATED;
        exo_environment_spec_free(&c.spec);
    }
    cr_expect(ends > 0 && ends < COUNT(golden_steps), "only one of both kinds of steps is tried");
}

/* The controller keeps the difference of an episode small, because it keeps the pole upright. */
Test(cartpole, an_episode_is_gymnasiums)
{
    for (size_t i = 0; i < COUNT(golden_episodes); i++) {
        const struct golden_episode *g = &golden_episodes[i];
        struct instance c = instance_of("cartpole", g->start, 4);
        exo_episode end = EXO_EPISODE_GOES_ON;
        uint32_t steps = 0;
        while (end == EXO_EPISODE_GOES_ON && steps < 500) {
            float reward;
            double turn = g->rule[0] * c.state[2] + g->rule[1] * c.state[3] +
                          g->rule[2] * c.state[0] + g->rule[3] * c.state[1];
            end = step(&c, (exo_action){.choice = turn > 0}, &reward);
            steps++;
        }
        if (end == EXO_EPISODE_GOES_ON)
            end = EXO_EPISODE_TRUNCATED; /* by the vector, after max_steps */
        cr_expect_eq(steps, g->length, "episode %zu has %u steps, not %u", i, steps, g->length);
        cr_expect_eq((int)end, g->end, "episode %zu", i);
        expect_near(c.state, g->last, 4, 1e-9, "cartpole", i);
        exo_environment_spec_free(&c.spec);
    }
}

/* Half a unit in the last place is the error of rounding itself. */
Test(cartpole, small_sines_and_cosines_are_nearly_as_exact_as_doubles_can_be)
{
    for (int i = -5000; i <= 5000; i++) {
        double x = exo_small_angle * i / 5000, sine = exo_small_sin(x), cosine = exo_small_cos(x);
        long double unit = (long double)(nextafter(fabs(sine), 1) - fabs(sine));
        cr_assert_leq(fabsl((long double)sine - sinl((long double)x)), 0.6L * unit, "sin %.17g", x);
        cr_assert_leq(fabsl((long double)cosine - cosl((long double)x)), 0.6L * 0x1p-53L,
                      "cos %.17g", x);
    }
}

/* The accelerations of a pole at rest, on both sides of the largest small angle. */
Test(cartpole, an_angle_may_be_large)
{
    for (double theta = 0.2; theta < 3; theta += 0.1) {
        struct instance c = instance_of("cartpole", (double[]){0, 0, theta, 0}, 4);
        float reward = 0;
        double push = 10 / 1.1, turn = (9.8 * sin(theta) - cos(theta) * push) /
                                       (0.5 * (4.0 / 3 - 0.1 * cos(theta) * cos(theta) / 1.1));
        cr_expect_eq(step(&c, (exo_action){.choice = 1}, &reward),
                     theta > 0.205 ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON);
        expect_near(&c.state[3], &(double){0.02 * turn}, 1, 1e-14, "cartpole", 0);
        exo_environment_spec_free(&c.spec);
    }
}

static const struct {
    const char *gymnasiums, *name;
    size_t state, observation;
} names[] = {
    {"Acrobot-v1", "acrobot", 4, 6},
    {"MountainCar-v0", "mountain_car", 2, 2},
    {"Pendulum-v1", "pendulum", 2, 3},
};

static size_t
name_of(const char *gymnasiums)
{
    size_t i = 0;
    while (strcmp(names[i].gymnasiums, gymnasiums) != 0)
        i++;
    return i;
}

/* Each step begins at Gymnasium's state, and is held at 1e-12. */
Test(environments, trajectories_are_gymnasiums)
{
    size_t ends = 0;
    for (size_t k = 0; k < COUNT(golden_trajectories); k++) {
        const struct golden_trajectory *g = &golden_trajectories[k];
        size_t n = name_of(g->name);
        const double *before = g->start;
        cr_assert_gt(g->steps, 0);
        for (size_t t = 0; t < g->steps; before = g->step[t++].state) {
            struct instance i = instance_of(names[n].name, before, names[n].state);
            const exo_environment_shape *shape = exo_environment_spec_shape(i.spec);
            /* a vector clips */
            float box = fminf(fmaxf((float)g->step[t].action, shape->low[0]), shape->high[0]);
            float seen[6], reward;
            exo_action action = {.choice = (int32_t)g->step[t].action};
            if (shape->actions == 0)
                action = (exo_action){.box = &box};
            exo_episode end = step(&i, action, &reward);
            i.spec->environment_class->observe(i.spec->self, i.state, seen);
            expect_near(i.state, g->step[t].state, names[n].state, 1e-12, g->name, t);
            for (size_t o = 0; o < names[n].observation; o++)
                cr_expect_float_eq((double)seen[o], g->step[t].observation[o], 1e-6, "%s", g->name);
            cr_expect_leq(fabs((double)reward - g->step[t].reward),
                          1e-6 * (1 + fabs(g->step[t].reward)), "%s, step %zu", g->name, t);
            bool last = shape->max_steps == t + 1;
            cr_expect_eq((int)(end == EXO_EPISODE_GOES_ON && last ? EXO_EPISODE_TRUNCATED : end),
                         g->step[t].end, "%s, step %zu", g->name, t);
            ends += end == EXO_EPISODE_TERMINATED;
            cr_expect_eq(shape->observation, names[n].observation);
            exo_environment_spec_free(&i.spec);
        }
    }
    cr_expect_geq(ends, 2, "Acrobot and MountainCar reach their goals");
}

/* --- Kuhn poker ------------------------------------------------------------------------------- */

/* Plays actions "pb" (pass, bet) with these cards and returns the first player's reward. */
static float
play_kuhn(uint32_t first, uint32_t second, const char *actions)
{
    struct {
        uint32_t cards[2], count;
        int32_t actions[3];
    } game = {.cards = {first, second}};
    struct instance i = {.spec = environment_new("kuhn_poker")};
    float rewards[2] = {0};
    memcpy(i.state, &game, sizeof game);
    for (size_t k = 0; actions[k]; k++) {
        cr_expect_eq(i.spec->environment_class->player(i.spec->self, i.state), k % 2);
        exo_episode end = step(&i, (exo_action){.choice = actions[k] == 'b'}, rewards);
        cr_expect_eq(end, actions[k + 1] ? EXO_EPISODE_GOES_ON : EXO_EPISODE_TERMINATED, "%s",
                     actions);
        cr_expect_eq(rewards[0], -rewards[1]);
    }
    exo_environment_spec_free(&i.spec);
    return rewards[0];
}

Test(kuhn_poker, has_the_payoffs_of_the_rules)
{
    cr_expect_eq(play_kuhn(2, 0, "pp"), 1);
    cr_expect_eq(play_kuhn(0, 1, "pp"), -1);
    cr_expect_eq(play_kuhn(0, 2, "bp"), 1, "who folds loses, with any card");
    cr_expect_eq(play_kuhn(2, 0, "pbp"), -1);
    cr_expect_eq(play_kuhn(2, 1, "bb"), 2);
    cr_expect_eq(play_kuhn(1, 2, "bb"), -2);
    cr_expect_eq(play_kuhn(1, 0, "pbb"), 2);
    cr_expect_eq(play_kuhn(1, 2, "pbb"), -2);
}

Test(kuhn_poker, all_deals_are_as_probable)
{
    enum {
        DEALS = 12000
    };
    exo_environment_spec *spec = environment_new("kuhn_poker");
    unsigned counts[3][3] = {0};
    for (uint64_t k = 0; k < DEALS; k++) {
        uint32_t state[8];
        exo_rng rng;
        exo_rng_init(&rng, 3, EXO_RNG_RESET, 0, k);
        spec->environment_class->begin(spec->self, state, &rng);
        counts[state[0]][state[1]]++;
    }
    /* Four standard errors of a count with probability 1/6. */
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            cr_expect_leq(fabs(counts[a][b] - (a == b ? 0 : DEALS / 6.0)),
                          a == b ? 0 : 4 * sqrt(DEALS * 5 / 36.0));
    exo_environment_spec_free(&spec);
}

/* --- Vectors ---------------------------------------------------------------------------------- */

Test(environments, beginnings_are_those_of_the_streams)
{
    const float limits[][6] = {
        [0] = {1, 1, 1, 1, 0.1f, 0.1f}, [1] = {0.05f, 0.05f, 0.05f, 0.05f}, [2] = {1, 1, 1}};
    const char *const which[] = {"acrobot", "cartpole", "pendulum"};
    for (size_t w = 0; w < COUNT(which); w++) {
        exo_environment_spec *spec = environment_new(which[w]);
        size_t count = exo_environment_spec_shape(spec)->observation;
        float sums[6] = {0}, seen[6];
        for (uint64_t k = 0; k < 4000; k++) {
            double state[8];
            exo_rng rng;
            exo_rng_init(&rng, 1, EXO_RNG_RESET, 0, k);
            spec->environment_class->begin(spec->self, state, &rng);
            spec->environment_class->observe(spec->self, state, seen);
            for (size_t i = 0; i < count; i++) {
                cr_assert_leq(fabsf(seen[i]), limits[w][i]);
                sums[i] += seen[i];
            }
        }
        /* Uniform around 0, except the cosines of angles near 0: four standard errors. */
        for (size_t i = w == 0 ? 4 : 0; i < count; i++)
            cr_expect_leq(fabsf(sums[i]) / 4000, 4 * limits[w][i] / sqrtf(2 * 4000.0f), "%s %zu",
                          which[w], i);
        exo_environment_spec_free(&spec);
    }
}

Test(environments, a_vector_is_its_instances_and_restarts_them)
{
    enum {
        N = 67, /* more than make a step together */
        STEPS = 300
    };
    exo_environment_spec *spec = environment_new("{name: cartpole, max_steps: 25}");
    const exo_environment_class *c = spec->environment_class;
    exo_environments *vector = NULL;
    double states[N][4];
    uint64_t episodes[N] = {0}, steps[N] = {0}, ends[3] = {0};
    cr_assert_eq(exo_environments_new(&vector, spec, N, 9, NULL), EXO_OK);
    for (size_t t = 0; t < STEPS; t++) {
        float seen[N][4], rewards[N], finals[N][4], expected[4], reward;
        int32_t actions[N];
        uint8_t end[N];
        exo_environments_observe(vector, seen[0]);
        for (uint32_t e = 0; e < N; e++)
            actions[e] = seen[e][2] + seen[e][3] > 0;
        actions[0] = 1; /* which falls before step 25 */
        exo_environments_step(vector, actions, rewards, end, finals[0]);
        for (uint32_t e = 0; e < N; e++) {
            if (steps[e] == 0) {
                exo_rng rng;
                exo_rng_init(&rng, 9, EXO_RNG_RESET, e, episodes[e]++);
                c->begin(spec->self, states[e], &rng);
            }
            c->observe(spec->self, states[e], expected);
            cr_assert_eq(memcmp(seen[e], expected, sizeof expected), 0, "step %zu, %u", t, e);
            exo_episode went =
                c->step(spec->self, states[e], (exo_action){.choice = actions[e]}, &reward);
            if (went == EXO_EPISODE_GOES_ON && ++steps[e] == 25)
                went = EXO_EPISODE_TRUNCATED;
            cr_assert_eq((int)end[e], (int)went);
            cr_assert_eq(rewards[e], reward);
            ends[went]++;
            if (went == EXO_EPISODE_GOES_ON)
                continue;
            c->observe(spec->self, states[e], expected);
            cr_assert_eq(memcmp(finals[e], expected, sizeof expected), 0);
            steps[e] = 0;
        }
    }
    cr_expect_gt(ends[EXO_EPISODE_TERMINATED], 5);
    cr_expect_gt(ends[EXO_EPISODE_TRUNCATED], 5);
    exo_environments_free(&vector);
    exo_environment_spec_free(&spec);
}

Test(environments, continuous_actions_are_clipped)
{
    exo_environment_spec *spec = environment_new("pendulum");
    exo_environments *one = NULL, *other = NULL;
    float rewards[2], seen[2][3];
    uint8_t end;
    cr_assert_eq(exo_environments_new(&one, spec, 1, 5, NULL), EXO_OK);
    cr_assert_eq(exo_environments_new(&other, spec, 1, 5, NULL), EXO_OK);
    exo_environments_step(one, &(float){-7}, &rewards[0], &end, NULL);
    exo_environments_step(other, &(float){-2}, &rewards[1], &end, NULL);
    exo_environments_observe(one, seen[0]);
    exo_environments_observe(other, seen[1]);
    cr_expect_eq(rewards[0], rewards[1]);
    cr_expect_eq(memcmp(seen[0], seen[1], sizeof seen[0]), 0);
    exo_environments_free(&one);
    exo_environments_free(&other);
    exo_environment_spec_free(&spec);
}

Test(environments, a_vector_needs_a_count_and_memory)
{
    exo_environment_spec *spec = environment_new("acrobot");
    exo_environments *vector = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_environments_new(&vector, spec, 0, 1, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "a vector has 1 to 4096 environments, not 0");
    for (uint64_t n = 1; n <= 3; n++) {
        exo_memory_fail_at(n);
        cr_expect_eq(exo_environments_new(&vector, spec, 3, 1, &err), EXO_NOMEM);
        cr_expect_null(vector);
    }
    exo_memory_fail_at(0);
    exo_environment_spec_free(&spec);
}

/* --- Names and options ------------------------------------------------------------------------ */

static void
expect_refused(const char *text, exo_status status, const char *reason)
{
    exo_config_doc *doc = NULL;
    exo_environment_spec *spec = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK);
    cr_expect_eq(exo_environment_spec_read(&spec, exo_config_root(doc), "environment", NULL, &err),
                 status, "%s", text);
    cr_expect(strstr(err.text, reason), "'%s' does not say '%s'", err.text, reason);
    cr_expect_null(spec);
    exo_config_free(&doc);
}

Test(environments, options_are_read_and_checked)
{
    exo_environment_spec *spec = environment_new("{name: pendulum, max_steps: 50, gravity: 9.81}");
    cr_expect_str_eq(exo_environment_spec_name(spec), "pendulum");
    cr_expect_eq(exo_environment_spec_shape(spec)->max_steps, 50);
    cr_expect_eq(exo_environment_spec_shape(spec)->players, 1);
    exo_environment_spec_free(&spec);
    expect_refused("{}", EXO_INVAL, "the name of an environment is missing");
    expect_refused("environment: cartpool", EXO_NOT_FOUND, "cartpole");
    expect_refused("environment: {name: cartpole, gravity: 1}", EXO_INVAL, "gravity");
    expect_refused("environment: {name: pendulum, gravity: -1}", EXO_INVAL, "gravity");
}

Test(environments, a_shape_must_make_sense)
{
    exo_environment_class bad = exo_cartpole_class;
    exo_err err = {0};
    bad.name = "bad";
    bad.shape.observation = 0;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "environment 'bad': observation is 0, not 1 to 4096");
    bad.shape = exo_cartpole_class.shape;
    bad.shape.box = 1;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "environment 'bad': actions is 2, not 0 to 0");
    bad.shape.actions = 0;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "environment 'bad': low[0] is not below high[0]");
    bad.shape.low[0] = -1;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
    cr_expect_str_eq(err.text,
                     "environment 'bad' has continuous actions, but step_many takes choices");
    bad.shape = exo_kuhn_poker_class.shape;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
    cr_expect_str_eq(err.text, "environment 'bad' has several players, but no function player");
    cr_expect_eq(exo_environment_register(&exo_cartpole_class, &err), EXO_EXISTS);
    bad.step = NULL;
    cr_expect_eq(exo_environment_register(&bad, &err), EXO_INVAL);
}

Test(environments, a_plugin_brings_one)
{
    exo_err err = {0};
    cr_assert_eq(exo_plugin_load(EXO_TEST_BINARY_DIR "/tests/plugins/corridor.so", &err), EXO_OK,
                 "%s", err.text);
    exo_environment_spec *spec = environment_new("{name: corridor, length: 3}");
    exo_environments *vector = NULL;
    float seen[3], reward;
    uint8_t end;
    cr_expect_eq(exo_environment_spec_shape(spec)->observation, 3);
    cr_assert_eq(exo_environments_new(&vector, spec, 1, 1, NULL), EXO_OK);
    exo_environments_step(vector, &(int32_t){1}, &reward, &end, NULL);
    exo_environments_observe(vector, seen);
    cr_expect_arr_eq(seen, ((float[]){0, 1, 0}), sizeof seen);
    exo_environments_step(vector, &(int32_t){1}, &reward, &end, NULL);
    cr_expect_eq(reward, 1);
    cr_expect_eq((int)end, EXO_EPISODE_TERMINATED);
    exo_environments_free(&vector);
    exo_environment_spec_free(&spec);
}
