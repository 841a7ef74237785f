/* The strategies that are part of the library, each in the file of its name; registry.c lists them. */
#ifndef EXO_STRATEGIES_BUILTIN_H
#define EXO_STRATEGIES_BUILTIN_H

#include <exogym/strategy.h>

extern const exo_strategy_class exo_ddp_class;
extern const exo_strategy_class exo_diloco_class;
extern const exo_strategy_class exo_fedavg_class;
extern const exo_strategy_class exo_sparta_class;

/* The class of that name, or NULL. Any thread. */
const exo_strategy_class *exo_strategy_class_find(const char *name);

/* steps_alone of classes whose nodes always do. */
bool exo_always_steps_alone(const void *self, uint32_t num_nodes);

#endif
