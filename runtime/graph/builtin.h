/* The graph classes of the library; classes.c lists them. */
#ifndef EXO_GRAPH_BUILTIN_H
#define EXO_GRAPH_BUILTIN_H

#include <exogym/graph.h>

extern const exo_graph_class exo_train_node_graph_class; /* actors/graph_train_node.c */
extern const exo_graph_class exo_stand_in_class;         /* stand_in.c                */
extern const exo_graph_class exo_cartpole_maker_class;   /* actors/maker.c            */
extern const exo_graph_class exo_cartpole_trainer_class; /* actors/learner.c          */

/* The class of that name; NOT_FOUND has the nearest name, or all of them. Any thread. */
exo_status exo_graph_class_get(const exo_graph_class **out, const char *name, exo_err *err);

#endif
