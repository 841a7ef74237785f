/* The registries of graph classes and of rules, and the one class that this layer contains. */
#ifndef EXO_GRAPH_BUILTIN_H
#define EXO_GRAPH_BUILTIN_H

#include <exogym/graph.h>

#include "base/registry.h"

extern exo_registry exo_graph_class_registry; /* entries are exo_graph_class; classes.c */

struct exo_graph_spec;
struct exo_graph_warnings;

/* What a higher layer knows of the edges between its classes, beyond ports and routes. */
typedef struct exo_graph_rule {
    const char *name;
    /* Checks a graph whose actors, edges and routes are checked. INVAL, with its place; NOMEM. */
    exo_status (*check)(const struct exo_graph_spec *spec, exo_err *err);
    /* Says what has no effect in a graph that passed all checks (warn.h). NULL: nothing. NOMEM. */
    exo_status (*warn)(const struct exo_graph_spec *spec, const struct exo_graph_warnings *out,
                       exo_err *err);
} exo_graph_rule;

extern exo_registry exo_graph_rule_registry; /* entries are exo_graph_rule; check.c applies them */

extern const exo_graph_class exo_stand_in_class; /* stand_in.c */

/* Finds the class of that name. NOT_FOUND: the text has the nearest name, or all names. Any
 * thread. */
exo_status exo_graph_class_get(const exo_graph_class **out, const char *name, exo_err *err);

#endif
