/* CartPole-v1: see cartpole.h. The operations have Gymnasium's order, so that the states equal
 * Gymnasium's to the last bit. */
#include "actors/cartpole.h"

#include <math.h>

static const double gravity = 9.8;
static const double mass_pole = 0.1, mass_total = 1.0 + 0.1;
static const double half_length = 0.5;
static const double force_size = 10.0;
static const double tau = 0.02;
static const double x_limit = 2.4;
static const double theta_limit = 12 * 2 * 3.14159265358979323846 / 360;

void
exo_cartpole_reset(exo_cartpole *cartpole, exo_rng *rng)
{
    double state[EXO_CARTPOLE_OBSERVATION];
    for (int i = 0; i < EXO_CARTPOLE_OBSERVATION; i++)
        state[i] = -0.05 + 0.1 * (double)exo_rng_uniform(rng);
    *cartpole =
        (exo_cartpole){.x = state[0], .x_dot = state[1], .theta = state[2], .theta_dot = state[3]};
}

exo_cartpole_end
exo_cartpole_step(exo_cartpole *c, int action)
{
    const double pole_moment = mass_pole * half_length;
    double force = action == 1 ? force_size : -force_size;
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
    c->steps++;

    if (c->x < -x_limit || c->x > x_limit || c->theta < -theta_limit || c->theta > theta_limit)
        return EXO_CARTPOLE_TERMINATED;
    return c->steps >= EXO_CARTPOLE_MAX_STEPS ? EXO_CARTPOLE_TRUNCATED : EXO_CARTPOLE_GOES_ON;
}

void
exo_cartpole_observe(const exo_cartpole *c, float out[EXO_CARTPOLE_OBSERVATION])
{
    out[0] = (float)c->x;
    out[1] = (float)c->x_dot;
    out[2] = (float)c->theta;
    out[3] = (float)c->theta_dot;
}
