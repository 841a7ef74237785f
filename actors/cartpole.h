/* CartPole-v1, the environment: a pole on a cart that is pushed left or right, as Gymnasium defines
 * it (gymnasium/envs/classic_control/cartpole.py, version 1.x), after Barto, Sutton and Anderson,
 * 1983, "Neuronlike adaptive elements that can solve difficult learning control problems".
 * docs/cartpole.md has the equations.
 *
 * Owner: the caller, one thread at a time. It computes in double precision, as Gymnasium does. Read
 * next: player.h, which plays it. */
#ifndef EXO_CARTPOLE_H
#define EXO_CARTPOLE_H

#include <exogym/rng.h>

enum {
    EXO_CARTPOLE_OBSERVATION = 4, /* position, its speed, the pole's angle, its speed */
    EXO_CARTPOLE_ACTIONS = 2,     /* 0 pushes to the left, 1 to the right */
    EXO_CARTPOLE_MAX_STEPS = 500  /* an episode is truncated there; also the best return */
};

/* The state of an episode after a step. The values are those of the items' `dones`. */
typedef enum exo_cartpole_end {
    EXO_CARTPOLE_GOES_ON = 0,
    /* The pole fell, or the cart left the track; also if that was step 500. */
    EXO_CARTPOLE_TERMINATED = 1,
    EXO_CARTPOLE_TRUNCATED = 2, /* it lasted EXO_CARTPOLE_MAX_STEPS steps */
} exo_cartpole_end;

typedef struct exo_cartpole {
    double x, x_dot;         /* m, m/s */
    double theta, theta_dot; /* rad, rad/s */
    uint32_t steps;          /* of the episode so far */
} exo_cartpole;

/* Begins an episode. Each of the four values is drawn from `rng`, in the order of the struct,
 * uniformly from [-0.05, 0.05). */
void exo_cartpole_reset(exo_cartpole *cartpole, exo_rng *rng);
/* Makes one step of 0.02 s. The reward of every step is 1. Not allowed after the end of an
 * episode. */
exo_cartpole_end exo_cartpole_step(exo_cartpole *cartpole, int action);
/* The observation: the four values of the state, rounded to float. */
void exo_cartpole_observe(const exo_cartpole *cartpole, float out[EXO_CARTPOLE_OBSERVATION]);

#endif
