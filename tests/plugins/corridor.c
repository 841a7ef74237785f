/* A plugin with an environment: a corridor of `length` cells (an option), in which the policy walks
 * left or right from the first cell, and gets 1 at the last. The observation is one-hot, so the shape
 * follows from the option. */
#include <exogym/environment.h>
#include <exogym/plugin.h>

struct corridor {
    uint64_t length;
};

static exo_status
init(void *self, exo_environment_shape *shape, exo_config *config, exo_err *err)
{
    struct corridor *corridor = self;
    exo_status st = exo_config_u64(config, "length", 4, 2, 100, &corridor->length, err);
    shape->observation = (size_t)corridor->length;
    return st;
}

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    (void)rng;
    *(uint64_t *)state = 0;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    const struct corridor *corridor = self;
    uint64_t *cell = state;
    *cell = action.choice == 1 ? *cell + 1 : *cell > 0 ? *cell - 1 : 0;
    rewards[0] = *cell + 1 == corridor->length;
    return rewards[0] > 0 ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
}

static void
observe(const void *self, const void *state, float *observation)
{
    const struct corridor *corridor = self;
    for (uint64_t i = 0; i < corridor->length; i++)
        observation[i] = i == *(const uint64_t *)state;
}

static const exo_environment_class corridor_class = {
    .name = "corridor",
    .help = "walk to the end of a corridor; option length",
    .shape = {.actions = 2, .max_steps = 200, .state = sizeof(uint64_t)},
    .self_size = sizeof(struct corridor),
    .init = init,
    .begin = begin,
    .step = step,
    .observe = observe,
};

EXO_PLUGIN
{
    return exo_environment_register(&corridor_class, err);
}
