/* What a graph or a job says without an effect, or with another one than its words suggest
 * (graph/warn.h), on standard error: by `exogym graph check`, and by `exogym run` before the first
 * step. No state. */
#ifndef EXO_PROGRAMS_WARNINGS_H
#define EXO_PROGRAMS_WARNINGS_H

#include "graph/spec.h"

/* Prints the warnings that are about all graphs (count) of a file: what is idle under one strategy of
 * a job may not be under another. Errors: NOMEM. */
exo_status exo_warn_of_idle(const exo_graph_spec *const *graphs, size_t count, exo_err *err);

#endif
