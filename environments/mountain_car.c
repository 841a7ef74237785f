/* MountainCar-v0: a car in a valley that is too weak to drive straight up the hill, as Gymnasium
 * defines it (gymnasium/envs/classic_control/mountain_car.py, version 1.x), after Moore, 1990,
 * "Efficient memory-based learning for robot control". docs/environments.md has the equations.
 *
 * The state is two doubles. The operations have Gymnasium's order. */
#include <math.h>

#include "environments/builtin.h"

struct mountain_car {
    double position, velocity;
};

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    *(struct mountain_car *)state =
        (struct mountain_car){.position = -0.6 + 0.2 * (double)exo_rng_uniform(rng)};
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    (void)self;
    const double left = -1.2, right = 0.6, fastest = 0.07, goal = 0.5;
    const double force = 0.001, gravity = 0.0025;
    struct mountain_car *c = state;
    c->velocity += (double)(action.choice - 1) * force + cos(3 * c->position) * -gravity;
    c->velocity = fmin(fmax(c->velocity, -fastest), fastest);
    c->position = fmin(fmax(c->position + c->velocity, left), right);
    if (c->position <= left && c->velocity < 0)
        c->velocity = 0;
    rewards[0] = -1;
    return c->position >= goal && c->velocity >= 0 ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    const struct mountain_car *c = state;
    observation[0] = (float)c->position;
    observation[1] = (float)c->velocity;
}

const exo_environment_class exo_mountain_car_class = {
    .name = "mountain_car",
    .help = "MountainCar-v0: rock a weak car up a hill; 2 observations, 3 actions, -1 a step",
    .shape = {.observation = 2,
              .actions = 3,
              .max_steps = 200,
              .state = sizeof(struct mountain_car)},
    .begin = begin,
    .step = step,
    .observe = observe,
};
