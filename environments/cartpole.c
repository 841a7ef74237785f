/* CartPole-v1: a pole on a cart that is pushed left or right, as Gymnasium defines it
 * (gymnasium/envs/classic_control/cartpole.py, version 1.x), after Barto, Sutton and Anderson, 1983,
 * "Neuronlike adaptive elements that can solve difficult learning control problems".
 * docs/environments.md has the equations.
 *
 * The state is four doubles. The operations have Gymnasium's order, so that the states equal
 * Gymnasium's to the last bit. */
#include <math.h>

#include "environments/builtin.h"

struct cartpole {
    double x, x_dot;         /* m, m/s */
    double theta, theta_dot; /* rad, rad/s */
};

static const double gravity = 9.8;
static const double mass_pole = 0.1, mass_total = 1.0 + 0.1;
static const double half_length = 0.5;
static const double force_size = 10.0;
static const double tau = 0.02;
static const double x_limit = 2.4;
static const double theta_limit = 12 * 2 * 3.14159265358979323846 / 360;

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    double values[4];
    for (int i = 0; i < 4; i++)
        values[i] = -0.05 + 0.1 * (double)exo_rng_uniform(rng);
    *(struct cartpole *)state = (struct cartpole){
        .x = values[0], .x_dot = values[1], .theta = values[2], .theta_dot = values[3]};
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    (void)self;
    struct cartpole *c = state;
    const double pole_moment = mass_pole * half_length;
    double force = action.choice == 1 ? force_size : -force_size;
    double cosine = cos(c->theta), sine = sin(c->theta);
    double pushed = (force + pole_moment * (c->theta_dot * c->theta_dot) * sine) / mass_total;
    double theta_acc = (gravity * sine - cosine * pushed) /
                       (half_length * (4.0 / 3.0 - mass_pole * (cosine * cosine) / mass_total));
    double x_acc = pushed - pole_moment * theta_acc * cosine / mass_total;

    /* Explicit Euler: positions move with the speeds before the step. */
    c->x += tau * c->x_dot;
    c->x_dot += tau * x_acc;
    c->theta += tau * c->theta_dot;
    c->theta_dot += tau * theta_acc;

    rewards[0] = 1;
    bool fell =
        c->x < -x_limit || c->x > x_limit || c->theta < -theta_limit || c->theta > theta_limit;
    return fell ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    const struct cartpole *c = state;
    observation[0] = (float)c->x;
    observation[1] = (float)c->x_dot;
    observation[2] = (float)c->theta;
    observation[3] = (float)c->theta_dot;
}

const exo_environment_class exo_cartpole_class = {
    .name = "cartpole",
    .help = "CartPole-v1: balance a pole on a cart; 4 observations, 2 actions, best return 500",
    .shape = {.observation = 4, .actions = 2, .max_steps = 500, .state = sizeof(struct cartpole)},
    .begin = begin,
    .step = step,
    .observe = observe,
};
