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

/* Writes the slices of matrices that the nodes of a copy have, with the collective that gathers them in a
 * step. False: the node's parameters are whole. */
bool exo_node_slices(const exo_node *node, exo_optim_slices *out);

/* What a node clips with, on the device of its gradients, which reads none of it. The strategy owns it.
 * All zero before the first use. */
struct exo_clipping {
    exo_array
        squares;    /* sums of squares, 8 bytes each: of the group's members, then of the copy's */
    exo_array norm; /* (1) of the last step */
    bool unread;    /* the norm is not in node->grad_norm yet */
};
void exo_clipping_release(exo_clipping *clipping);
/* exo_node_clip for gradients of which each member of `group` has some, and each member of `copy` a part;
 * NULL: there are no others. The caller adds the squares of what counts here to *square, by
 * exo_clip_count. The second call adds the sums of the group in the order of ranks, then these sums over
 * `copy` in the order of ranks, and scales. Errors: those of exo_all_gather, NOMEM; the device remembers
 * others. */
exo_status exo_clip_begin(exo_node *node, exo_array grads, const exo_group *group,
                          const exo_group *copy, exo_array *square, exo_err *err);
exo_status exo_clip_end(exo_node *node, exo_array grads, exo_group *group, exo_group *copy,
                        exo_err *err);

/* The function is_ordered of a class whose state always has the order of the parameters. */
bool exo_always_ordered(const void *self);

/* The function steps_alone of a class whose nodes always step alone. */
bool exo_always_steps_alone(const void *self, uint32_t num_nodes);

#endif
