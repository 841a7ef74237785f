/* The strategies that are part of the library, each in the file of its name, and all by name. */
#ifndef EXO_STRATEGIES_BUILTIN_H
#define EXO_STRATEGIES_BUILTIN_H

#include <exogym/strategy.h>

#include "base/registry.h"

extern exo_registry exo_strategy_registry; /* of exo_strategy_class; registry.c */

extern const exo_strategy_class exo_ddp_class;
extern const exo_strategy_class exo_diloco_class;
extern const exo_strategy_class exo_fedavg_class;
extern const exo_strategy_class exo_islands_class;
extern const exo_strategy_class exo_sparta_class;

/* H and offset, of strategies that meet every H steps: after offset + H, offset + 2 H, ... */
typedef struct exo_rounds {
    uint64_t interval; /* H, from 1 */
    uint64_t offset;
} exo_rounds;

/* `fallback`: H if it is not given. */
exo_status exo_rounds_read(exo_config *config, uint64_t fallback, exo_rounds *out, exo_err *err);
/* The meter of rounds that a node has been in, for start; counted by whoever does one. Errors: as exo_meter_declare. */
exo_status exo_rounds_meter(exo_meter **out, const exo_node *node, exo_err *err);
/* Whether a round comes after the step that is the (step + 1)-th. */
bool exo_rounds_due(const exo_rounds *rounds, uint64_t step);

/* steps_alone of classes whose nodes always do. */
bool exo_always_steps_alone(const void *self, uint32_t num_nodes);

#endif
