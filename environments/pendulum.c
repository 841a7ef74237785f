/* Pendulum-v1: a pendulum that a torque swings up and holds there, as Gymnasium defines it
 * (gymnasium/envs/classic_control/pendulum.py, version 1.x). docs/environments.md has the equations.
 * The action is the torque; a vector clips it to +-2.
 *
 * The state is two doubles. The operations have Gymnasium's order. */
#include <math.h>

#include "environments/builtin.h"

static const double pi = 3.14159265358979323846;

struct pendulum {
    double theta, theta_dot; /* rad from upright, rad/s */
};

struct options {
    double gravity;
};

static exo_status
init(void *self, exo_environment_shape *shape, exo_config *config, exo_err *err)
{
    (void)shape;
    struct options *options = self;
    return exo_config_double(config, "gravity", 10, 0, 1000, &options->gravity, err);
}

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    struct pendulum *p = state;
    p->theta = -pi + 2 * pi * (double)exo_rng_uniform(rng);
    p->theta_dot = -1 + 2 * (double)exo_rng_uniform(rng);
}

/* The angle in [-pi, pi); as a % b in Python, whose sign is that of b. */
static double
normalize(double angle)
{
    double rest = fmod(angle + pi, 2 * pi);
    return (rest < 0 ? rest + 2 * pi : rest) - pi;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    const struct options *options = self;
    const double fastest = 8, tau = 0.05, mass = 1, length = 1;
    struct pendulum *p = state;
    double torque = (double)action.box[0], angle = normalize(p->theta);
    double cost = angle * angle + 0.1 * (p->theta_dot * p->theta_dot) + 0.001 * (torque * torque);
    double speed = p->theta_dot + (3 * options->gravity / (2 * length) * sin(p->theta) +
                                   3.0 / (mass * (length * length)) * torque) *
                                      tau;
    p->theta_dot = fmin(fmax(speed, -fastest), fastest);
    p->theta += p->theta_dot * tau;
    rewards[0] = (float)-cost;
    return EXO_EPISODE_GOES_ON;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    const struct pendulum *p = state;
    observation[0] = (float)cos(p->theta);
    observation[1] = (float)sin(p->theta);
    observation[2] = (float)p->theta_dot;
}

const exo_environment_class exo_pendulum_class = {
    .name = "pendulum",
    .help = "Pendulum-v1: swing a pendulum up; 3 observations, 1 continuous action; option gravity",
    .shape = {.observation = 3,
              .box = 1,
              .low = {-2},
              .high = {2},
              .max_steps = 200,
              .state = sizeof(struct pendulum)},
    .self_size = sizeof(struct options),
    .init = init,
    .begin = begin,
    .step = step,
    .observe = observe,
};
