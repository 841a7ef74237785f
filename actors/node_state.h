/* A node's state as checkpoints have it, for replicas and for conversions of checkpoints.
 *
 * No state. Read next: node_state.c, replica.h, reshard.h. */
#ifndef EXO_NODE_STATE_H
#define EXO_NODE_STATE_H

#include <exogym/state.h>
#include <exogym/strategy.h>

/* Fills in the members of a node that describe its copy of the model, which the caller keeps. */
void exo_node_show_params(exo_node *node, exo_params *params);
/* Lists everything that outlives a restart: parameters and statistics, the strategy, step, time and
 * bytes. Units that a strategy keeps are part of its own state. `elapsed` and `bytes` are entries of
 * the list. */
void exo_node_list_state(exo_node *node, exo_strategy *strategy, uint64_t *elapsed, uint64_t *bytes,
                         exo_state *state);

#endif
