/* Warnings of `exogym graph check` and of `exogym run`: what a graph says without an effect, or with another
 * one than its words suggest. It runs nevertheless. Rules of higher layers add their own (builtin.h).
 *
 * No state. Read next: warn.c. */
#ifndef EXO_GRAPH_WARN_H
#define EXO_GRAPH_WARN_H

#include "graph/spec.h"

typedef struct exo_graph_warnings {
    void (*say)(void *context, const char *text); /* a line, which begins with its place */
    void *context;
} exo_graph_warnings;

/* Says a warning about `at`. */
void exo_graph_warn(const exo_graph_warnings *out, const exo_config *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says all warnings about a graph that was checked. Errors: NOMEM. */
exo_status exo_graph_warn_all(const exo_graph_spec *spec, const exo_graph_warnings *out,
                              exo_err *err);

#endif
