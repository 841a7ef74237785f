/* CartPole-v1: a pole on a cart that is pushed left or right, as Gymnasium defines it
 * (gymnasium/envs/classic_control/cartpole.py, version 1.x), after Barto, Sutton and Anderson, 1983,
 * "Neuronlike adaptive elements that can solve difficult learning control problems".
 * docs/environments.md has the equations.
 *
 * The state is four doubles. The operations have Gymnasium's order, so a step differs from
 * Gymnasium's by the last bit of a sine or cosine only. */
#include <math.h>

#include "environments/builtin.h"
#include "environments/small_angle.h"

enum {
    BLOCK = 64 /* instances that make a step together */
};

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

/* --- Steps ------------------------------------------------------------------------------------- */

/* Instances that make a step together, with an array for each variable, so that the compiler
 * vectorizes the loops over them. Every operation rounds by itself, so results do not depend on the
 * width of vectors, nor on the number of instances. */
struct block {
    double x[BLOCK], x_dot[BLOCK], theta[BLOCK], theta_dot[BLOCK];
    double sine[BLOCK], cosine[BLOCK], force[BLOCK];
};

static struct cartpole *
state_at(void *states, size_t stride, size_t e)
{
    return (struct cartpole *)(void *)((char *)states + e * stride);
}

static void
load(struct block *b, void *states, size_t stride, size_t count, const int32_t *choices)
{
    for (size_t i = 0; i < count; i++) {
        const struct cartpole *c = state_at(states, stride, i);
        b->x[i] = c->x;
        b->x_dot[i] = c->x_dot;
        b->theta[i] = c->theta;
        b->theta_dot[i] = c->theta_dot;
        b->force[i] = choices[i] == 1 ? force_size : -force_size;
    }
}

static void
store(const struct block *b, void *states, size_t stride, size_t count)
{
    for (size_t i = 0; i < count; i++)
        *state_at(states, stride, i) = (struct cartpole){
            .x = b->x[i], .x_dot = b->x_dot[i], .theta = b->theta[i], .theta_dot = b->theta_dot[i]};
}

/* An episode ends long before an angle is not small. */
static void
turn(struct block *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        b->sine[i] = exo_small_sin(b->theta[i]);
        b->cosine[i] = exo_small_cos(b->theta[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (fabs(b->theta[i]) > exo_small_angle) {
            b->sine[i] = sin(b->theta[i]);
            b->cosine[i] = cos(b->theta[i]);
        }
}

/* Explicit Euler: positions move with the speeds before the step. */
static void
move(struct block *b, size_t count)
{
    const double pole_moment = mass_pole * half_length;
    for (size_t i = 0; i < count; i++) {
        double cosine = b->cosine[i], sine = b->sine[i], theta_dot = b->theta_dot[i];
        double pushed = (b->force[i] + pole_moment * (theta_dot * theta_dot) * sine) / mass_total;
        double theta_acc = (gravity * sine - cosine * pushed) /
                           (half_length * (4.0 / 3.0 - mass_pole * (cosine * cosine) / mass_total));
        double x_acc = pushed - pole_moment * theta_acc * cosine / mass_total;
        b->x[i] += tau * b->x_dot[i];
        b->x_dot[i] += tau * x_acc;
        b->theta[i] += tau * theta_dot;
        b->theta_dot[i] += tau * theta_acc;
    }
}

static void
step_many(const void *self, void *states, size_t stride, size_t count, const int32_t *choices,
          float *rewards, uint8_t *ends)
{
    (void)self;
    struct block b;
    for (size_t first = 0, n; first < count; first += n) {
        void *begin_of_block = state_at(states, stride, first);
        n = count - first < BLOCK ? count - first : BLOCK;
        load(&b, begin_of_block, stride, n, choices + first);
        turn(&b, n);
        move(&b, n);
        store(&b, begin_of_block, stride, n);
        for (size_t i = 0; i < n; i++) {
            bool fell = fabs(b.x[i]) > x_limit || fabs(b.theta[i]) > theta_limit;
            rewards[first + i] = 1;
            ends[first + i] = fell ? EXO_EPISODE_TERMINATED : EXO_EPISODE_GOES_ON;
        }
    }
}

static exo_episode
step(const void *self, void *state, exo_action action, float *rewards)
{
    uint8_t end;
    step_many(self, state, 0, 1, &action.choice, rewards, &end);
    return (exo_episode)end;
}

/* --- Observations ------------------------------------------------------------------------------ */

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

static void
observe_many(const void *self, const void *states, size_t stride, size_t count, float *observations)
{
    for (size_t e = 0; e < count; e++)
        observe(self, (const char *)states + e * stride, observations + 4 * e);
}

const exo_environment_class exo_cartpole_class = {
    .name = "cartpole",
    .help = "CartPole-v1: balance a pole on a cart; 4 observations, 2 actions, best return 500",
    .shape = {.observation = 4, .actions = 2, .max_steps = 500, .state = sizeof(struct cartpole)},
    .begin = begin,
    .step = step,
    .observe = observe,
    .step_many = step_many,
    .observe_many = observe_many,
};
