/* The memory that the optimizer and the strategy of nodes take, which is measured. No state. */
#ifndef EXO_FIT_MEMORY_NODES_H
#define EXO_FIT_MEMORY_NODES_H

#include <exogym/trainer.h>

/* The nodes that are measured. */
typedef struct exo_fit_nodes {
    exo_model *model;       /* of each node: its part of a copy that nodes share, or its copy */
    const exo_model *whole; /* of which `model` is a part; NULL: it is whole */
    const char *strategy;
    exo_config *options;
    const exo_fit_opts *opts; /* num_nodes: those with the same model */
} exo_fit_nodes;

/* Measures what the optimizers and strategies of all nodes in one process take, in bytes; *alone: how
 * much more than its share the first node takes in a process of its own. by_units: the nodes keep
 * shards of units. It starts them with a few million parameters. Errors: those of exo_strategy_new and
 * of its start, NOMEM. */
exo_status exo_fit_memory_nodes(const exo_fit_nodes *nodes, bool by_units, uint64_t *bytes,
                                uint64_t *alone, exo_err *err);

#endif
