/* Rollouts in a test's own memory. */
#ifndef EXO_TEST_CARTPOLE_ARRAYS_H
#define EXO_TEST_CARTPOLE_ARRAYS_H

#include "actors/ppo.h"

/* Makes zeroed arrays for `steps` steps of `environments` environments. arrays_free frees them. */
exo_rollout arrays_new(size_t steps, size_t environments);
void arrays_free(exo_rollout *rollout);

#endif
