/* Acrobot-v1: two links that hang from a joint; a torque at the joint between them swings the end
 * above a line, as Gymnasium defines it (gymnasium/envs/classic_control/acrobot.py, version 1.x),
 * with the equations of Sutton and Barto's book, after Sutton, 1996, "Generalization in
 * reinforcement learning: successful examples using sparse coarse coding". docs/environments.md has
 * the equations.
 *
 * The state is four doubles. The operations have Gymnasium's order. */
#include <math.h>
#include <string.h>

#include "environments/builtin.h"

enum {
    STATE = 4 /* the angle of the first link, that of the second to the first; their speeds */
};

static const double pi = 3.14159265358979323846;
static const double mass = 1.0, length = 1.0, center = 0.5, inertia = 1.0; /* of each link */
static const double gravity = 9.8;
static const double tau = 0.2;

static void
begin(const void *self, void *state, exo_rng *rng)
{
    (void)self;
    double *s = state;
    for (int i = 0; i < STATE; i++)
        s[i] = (double)(float)(-0.1 + 0.2 * (double)exo_rng_uniform(rng));
}

/* Writes the derivative of `s` by time under a torque. */
static void
derive(const double s[STATE], double torque, double out[STATE])
{
    const double m = mass, l = length, lc = center, moment = inertia, g = gravity;
    double d1 = m * (lc * lc) + m * (l * l + lc * lc + 2 * l * lc * cos(s[1])) + moment + moment;
    double d2 = m * (lc * lc + l * lc * cos(s[1])) + moment;
    double phi2 = m * lc * g * cos(s[0] + s[1] - pi / 2.0);
    double phi1 = -m * l * lc * (s[3] * s[3]) * sin(s[1]) -
                  2 * m * l * lc * s[3] * s[2] * sin(s[1]) +
                  (m * lc + m * l) * g * cos(s[0] - pi / 2) + phi2;
    double acc2 = (torque + d2 / d1 * phi1 - m * l * lc * (s[2] * s[2]) * sin(s[1]) - phi2) /
                  (m * (lc * lc) + moment - d2 * d2 / d1);
    out[0] = s[2];
    out[1] = s[3];
    out[2] = -(d2 * acc2 + phi1) / d1;
    out[3] = acc2;
}

/* One step of the classical Runge-Kutta method of order 4. */
static void
integrate(double s[STATE], double torque)
{
    double k1[STATE], k2[STATE], k3[STATE], k4[STATE], at[STATE];
    derive(s, torque, k1);
    for (int i = 0; i < STATE; i++)
        at[i] = s[i] + tau / 2.0 * k1[i];
    derive(at, torque, k2);
    for (int i = 0; i < STATE; i++)
        at[i] = s[i] + tau / 2.0 * k2[i];
    derive(at, torque, k3);
    for (int i = 0; i < STATE; i++)
        at[i] = s[i] + tau * k3[i];
    derive(at, torque, k4);
    for (int i = 0; i < STATE; i++)
        s[i] += tau / 6.0 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
}

static double
wrap(double angle)
{
    while (angle > pi)
        angle -= pi - -pi;
    while (angle < -pi)
        angle += pi - -pi;
    return angle;
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    (void)self;
    double *s = state;
    const double limit1 = 4 * pi, limit2 = 9 * pi;
    integrate(s, (double)(action.choice - 1));
    s[0] = wrap(s[0]);
    s[1] = wrap(s[1]);
    s[2] = fmin(fmax(s[2], -limit1), limit1);
    s[3] = fmin(fmax(s[3], -limit2), limit2);
    bool above = -cos(s[0]) - cos(s[1] + s[0]) > 1.0;
    rewards[0] = above ? 0 : -1;
    return above ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
}

static void
observe(const void *self, const void *state, float *observation)
{
    (void)self;
    const double *s = state;
    const double values[] = {cos(s[0]), sin(s[0]), cos(s[1]), sin(s[1]), s[2], s[3]};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        observation[i] = (float)values[i];
}

const exo_environment_class exo_acrobot_class = {
    .name = "acrobot",
    .help = "Acrobot-v1: swing two links up to a line; 6 observations, 3 actions, -1 a step",
    .shape = {.observation = 6, .actions = 3, .max_steps = 500, .state = STATE * sizeof(double)},
    .begin = begin,
    .step = step,
    .observe = observe,
};
