/* The two actors of the smallest reinforcement learning there is: makers that play CartPole-v1, and trainers that learn from it by PPO.
 * docs/cartpole.md has their options and what they send. */
#ifndef EXOGYM_CARTPOLE_H
#define EXOGYM_CARTPOLE_H

#include <exogym/status.h>

/* Makes the graph classes "cartpole_maker" and "cartpole_trainer" known, for programs that run graphs. EXISTS, NOMEM. */
EXO_API exo_status exo_cartpole_register(exo_err *err);

#endif
