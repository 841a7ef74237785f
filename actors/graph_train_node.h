/* The options of the graph class "train_node", for its rule. Read next: train_node_options.c. */
#ifndef EXO_GRAPH_TRAIN_NODE_H
#define EXO_GRAPH_TRAIN_NODE_H

#include <exogym/config.h>
#include <exogym/trainer.h>

/* Reads the settings of a node that will run. INVAL, with the place: the config is wrong, or has
 * settings that only a job supports; NOMEM. */
exo_status exo_train_node_check(exo_fit_opts *train, exo_config *config, exo_err *err);

#endif
