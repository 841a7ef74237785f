/* The graph classes that this folder has, without those who know them by name. */
#ifndef EXO_ACTORS_BUILTIN_CLASSES_H
#define EXO_ACTORS_BUILTIN_CLASSES_H

#include <exogym/graph.h>

extern const exo_graph_class exo_cartpole_maker_class;   /* maker.c   */
extern const exo_graph_class exo_cartpole_trainer_class; /* learner.c */

#endif
