/* The graph classes by name, and the one that this layer brings. */
#ifndef EXO_GRAPH_BUILTIN_H
#define EXO_GRAPH_BUILTIN_H

#include <exogym/graph.h>

#include "base/registry.h"

extern exo_registry exo_graph_class_registry; /* of exo_graph_class; classes.c */

extern const exo_graph_class exo_stand_in_class; /* stand_in.c */

/* The class of that name; NOT_FOUND has the nearest name, or all of them. Any thread. */
exo_status exo_graph_class_get(const exo_graph_class **out, const char *name, exo_err *err);

#endif
