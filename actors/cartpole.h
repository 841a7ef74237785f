/* CartPole-v1, the environment: a pole on a cart that is pushed left or right, as Gymnasium defines it (gymnasium/envs/classic_control/
 * cartpole.py, version 1.x), after Barto, Sutton and Anderson, 1983, "Neuronlike adaptive elements that can solve difficult learning
 * control problems". docs/cartpole.md has the equations.
 *
 * Owner: the caller, one thread at a time. In double precision, as Gymnasium's. Read next: player.h, which plays it. */
#ifndef EXO_CARTPOLE_H
#define EXO_CARTPOLE_H

#include <exogym/rng.h>

enum {
    EXO_CARTPOLE_OBSERVATION = 4, /* x, its speed, the angle, its speed         */
    EXO_CARTPOLE_ACTIONS = 2,     /* 0 pushes to the left, 1 to the right       */
    EXO_CARTPOLE_MAX_STEPS = 500  /* an episode is truncated there; the return that is best */
};

/* How an episode stands after a step; the values are those in the items' `dones`. */
typedef enum exo_cartpole_end {
    EXO_CARTPOLE_GOES_ON = 0,
    EXO_CARTPOLE_TERMINATED =
        1, /* the pole fell, or the cart left the track; also if that was step 500 */
    EXO_CARTPOLE_TRUNCATED = 2,
} exo_cartpole_end;

typedef struct exo_cartpole {
    double x, x_dot;         /* m, m/s         */
    double theta, theta_dot; /* rad, rad/s     */
    uint32_t steps;          /* of the episode */
} exo_cartpole;

/* Begins an episode: each of the four uniform in [-0.05, 0.05), drawn from `rng` in the order above. */
void exo_cartpole_reset(exo_cartpole *cartpole, exo_rng *rng);
/* One step of 0.02 s. Its reward is 1, whatever comes of it. Not after the end of an episode. */
exo_cartpole_end exo_cartpole_step(exo_cartpole *cartpole, int action);
/* What is seen of it: the four of them, rounded. */
void exo_cartpole_observe(const exo_cartpole *cartpole, float out[EXO_CARTPOLE_OBSERVATION]);

#endif
