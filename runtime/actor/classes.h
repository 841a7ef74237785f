/* The registry of actor classes: the library's own, which builtins/ lists, and those that programs
 * and plugins register. */
#ifndef EXO_ACTOR_CLASSES_H
#define EXO_ACTOR_CLASSES_H

#include <exogym/actor.h>

#include "base/registry.h"

extern exo_registry exo_actor_class_registry; /* of exo_actor_class */

#endif
