/* The graph classes of this layer, found by name; builtins/ registers them. train_node.h declares
 * the actor class. */
#ifndef EXO_BUILTIN_CLASSES_H
#define EXO_BUILTIN_CLASSES_H

#include <exogym/graph.h>

#include "graph/builtin.h"

extern const exo_graph_class exo_train_node_graph_class; /* graph_train_node.c */
extern const exo_graph_class exo_rollout_maker_class;    /* rollout_maker.c */
extern const exo_graph_class exo_policy_trainer_class;   /* policy_trainer.c */
extern const exo_graph_rule exo_rollout_options_rule;    /* rollout_options.c */
extern const exo_graph_rule exo_train_node_rule;         /* train_node_options.c */

#endif
