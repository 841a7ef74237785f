/* LunarLander-v3: land a craft between two flags, as Gymnasium defines it, as a plugin over Box2D.
 * This file draws the chance and registers the class. Read next: lander.h (the rules), world.h (the
 * bodies). */
#include <exogym/environment.h>
#include <exogym/plugin.h>

#include "environments/box2d/lander.h"

/* The state of an instance. */
struct lunar_lander {
    lander_episode episode;
    exo_rng rng; /* the stream of the episode: the noise of its steps */
};

static exo_status
init(void *self, exo_environment_shape *shape, exo_config *config, exo_err *err)
{
    lander_options *o = self;
    exo_status st = exo_config_bool(config, "continuous", false, &o->continuous, err);
    if (st == EXO_OK)
        st = exo_config_bool(config, "enable_wind", false, &o->wind, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "gravity", -10, -12, 0, &o->gravity, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "wind_power", 15, 0, 20, &o->wind_power, err);
    if (st == EXO_OK)
        st = exo_config_double(config, "turbulence_power", 1.5, 0, 2, &o->turbulence_power, err);
    if (st == EXO_OK && o->continuous) {
        shape->actions = 0;
        shape->box = 2;
        for (size_t i = 0; i < 2; i++) {
            shape->low[i] = -1;
            shape->high[i] = 1;
        }
    }
    return st;
}

static double
between(exo_rng *rng, double low, double high)
{
    return low + (high - low) * (double)exo_rng_uniform(rng);
}

static void
draw_noise(exo_rng *rng, double *noise)
{
    for (int i = 0; i < 2; i++)
        noise[i] = between(rng, -1, 1) / 30;
}

static void
begin(const void *self, void *state, exo_rng *rng)
{
    struct lunar_lander *s = state;
    lander_start start;
    double noise[2];
    for (int i = 0; i < LANDER_HEIGHTS; i++)
        start.heights[i] = between(rng, 0, 400.0 / 30 / 2);
    for (int i = 0; i < 2; i++)
        start.force[i] = between(rng, -1000, 1000);
    for (int i = 0; i < 2; i++)
        start.wind[i] = (double)exo_rng_below(rng, 2 * 9999) - 9999;
    draw_noise(rng, noise);
    lander_begin(&s->episode, self, &start, noise);
    s->rng = *rng;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    struct lunar_lander *s = state;
    double noise[2], reward;
    draw_noise(&s->rng, noise);
    exo_episode end = lander_step(&s->episode, self, action, noise, &reward);
    rewards[0] = (float)reward;
    return end;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    const struct lunar_lander *s = state;
    for (int i = 0; i < LANDER_OBSERVATION; i++)
        observation[i] = (float)s->episode.observation[i];
}

static void
end(const void *self, void *state)
{
    (void)self;
    lander_end(&((struct lunar_lander *)state)->episode);
}

static const exo_environment_class lunar_lander = {
    .name = "lunar_lander",
    .help = "LunarLander-v3: land a craft; 8 observations, 4 actions, or 2 with continuous: true",
    .shape = {.observation = LANDER_OBSERVATION,
              .actions = 4,
              .max_steps = 1000,
              .state = sizeof(struct lunar_lander)},
    .self_size = sizeof(lander_options),
    .init = init,
    .begin = begin,
    .step = step,
    .observe = observe,
    .end = end,
};

EXO_PLUGIN
{
    lander_world_prepare();
    return exo_environment_register(&lunar_lander, err);
}
