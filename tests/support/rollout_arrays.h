/* Environments, policies and rollouts in a test's own memory. */
#ifndef EXO_TEST_ROLLOUT_ARRAYS_H
#define EXO_TEST_ROLLOUT_ARRAYS_H

#include "actors/ppo.h"

/* Reads an environment from "{name: cartpole, ...}"; the test must not make a mistake. */
exo_environment_spec *environment_new(const char *options);
/* Makes a policy of 64 units for an environment, with the initial weights of `seed`. policy_free
 * frees it. */
exo_policy policy_new(const exo_environment_spec *spec, uint64_t seed);
void policy_free(exo_policy *policy);
/* The number of parameters. */
size_t policy_numel(const exo_policy *policy);

/* Makes zeroed arrays for `steps` steps of `environments` environments. arrays_free frees them. */
exo_rollout arrays_new(const exo_environment_spec *spec, size_t steps, size_t environments);
void arrays_free(exo_rollout *rollout);

#endif
