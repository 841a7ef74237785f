/* The library's environments, each in the file of its name, and the registry of all environments.
 * exogym/environment.h is the contract of an environment. */
#ifndef EXO_ENVIRONMENTS_BUILTIN_H
#define EXO_ENVIRONMENTS_BUILTIN_H

#include <exogym/environment.h>

#include "base/registry.h"

extern exo_registry exo_environment_registry; /* of exo_environment_class (registry.c) */

extern const exo_environment_class exo_acrobot_class;
extern const exo_environment_class exo_cartpole_class;
extern const exo_environment_class exo_kuhn_poker_class;
extern const exo_environment_class exo_mountain_car_class;
extern const exo_environment_class exo_pendulum_class;

#endif
