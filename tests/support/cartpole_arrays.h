/* Rollouts in memory of a test's own. */
#ifndef EXO_TEST_CARTPOLE_ARRAYS_H
#define EXO_TEST_CARTPOLE_ARRAYS_H

#include "actors/ppo.h"

/* Zeroed arrays for so many steps. */
exo_rollout arrays_new(size_t steps, size_t environments);
void arrays_free(exo_rollout *rollout);

#endif
