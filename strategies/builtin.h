/* The library's strategies, each in the file of its name, the registry of all strategies, and the
 * parts that strategies share (node.c). exogym/strategy.h is the contract of a strategy. */
#ifndef EXO_STRATEGIES_BUILTIN_H
#define EXO_STRATEGIES_BUILTIN_H

#include <exogym/strategy.h>

#include "base/registry.h"

extern exo_registry exo_strategy_registry; /* of exo_strategy_class (registry.c) */

extern const exo_strategy_class exo_async_diloco_class;
extern const exo_strategy_class exo_compose_class;
extern const exo_strategy_class exo_ddp_class;
extern const exo_strategy_class exo_decoupled_diloco_class;
extern const exo_strategy_class exo_demo_class;
extern const exo_strategy_class exo_diloco_class;
extern const exo_strategy_class exo_eager_diloco_class;
extern const exo_strategy_class exo_fedavg_class;
extern const exo_strategy_class exo_fsdp_class;
extern const exo_strategy_class exo_islands_class;
extern const exo_strategy_class exo_local_sgd_class;
extern const exo_strategy_class exo_noloco_class;
extern const exo_strategy_class exo_muloco_class; /* diloco.c */
extern const exo_strategy_class exo_onebit_adam_class;
extern const exo_strategy_class exo_powersgd_class;
extern const exo_strategy_class exo_quantized_class;
extern const exo_strategy_class exo_sparseloco_class;
extern const exo_strategy_class exo_sparta_class;
extern const exo_strategy_class exo_sparta_diloco_class;
extern const exo_strategy_class exo_streaming_diloco_class;

/* The options H and offset of strategies with a round every H steps: after the steps offset + H,
 * offset + 2 H, ... */
typedef struct exo_rounds {
    uint64_t interval; /* H, from 1 */
    uint64_t offset;
} exo_rounds;

/* Reads H and offset; `fallback` is the default of H. */
exo_status exo_rounds_read(exo_config *config, uint64_t fallback, exo_rounds *out, exo_err *err);
/* Declares a node's meter of rounds in `scope`, for `start`; a strategy adds 1 in each round.
 * Errors: as exo_meter_declare. */
exo_status exo_rounds_meter(exo_meter **out, exo_meters *scope, exo_err *err);
/* Whether a round follows the step of index `step`, the (step + 1)-th one. */
bool exo_rounds_due(const exo_rounds *rounds, uint64_t step);

/* Writes the strategy `name` with these options (a mapping, or NULL) as the YAML of a strategy
 * `compose` that does the same to the bit. The caller frees *out with exo_free. *out is NULL if the
 * strategy is not a list of exchanges, or is compose itself. Errors: those of the options,
 * NOMEM. */
exo_status exo_strategy_composition(char **out, const char *name, const exo_config *options,
                                    exo_err *err);

/* Adds up a number of all members of a group in the order of ranks; every member gets the sum. NULL: a
 * group of this node alone. Errors: those of exo_all_gather, NOMEM. */
exo_status exo_add_up(exo_group *group, double *value, exo_err *err);

/* The function is_ordered of a class whose state always has the order of the parameters. */
bool exo_always_ordered(const void *self);

/* The function steps_alone of a class whose nodes always step alone. */
bool exo_always_steps_alone(const void *self, uint32_t num_nodes);

#endif
