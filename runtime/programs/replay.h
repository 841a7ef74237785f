/* Replays a graph's recorded changes (changes.h) in a resumed job, each after the step at which it
 * was first made. Owner: the run's thread. Read next: apply.h, which hands the changed graphs to
 * the run. */
#ifndef EXO_PROGRAMS_REPLAY_H
#define EXO_PROGRAMS_REPLAY_H

#include "graph/spec.h"
#include "programs/changes.h"

typedef struct exo_replay {
    exo_config_doc *config; /* the folder's config.json; NULL: nothing is replayed */
    exo_config *list;       /* its changes */
    size_t at;              /* index of the next change */
} exo_replay;

/* Reads the changes in the folder's config.json, if it has any. Changes that an earlier version
 * recorded without their graph are skipped with a warning. Errors: IO, INVAL, NOMEM. */
exo_status exo_replay_open(exo_replay *replay, const char *folder, exo_err *err);
/* The step after which the next change is due; UINT64_MAX: none. */
uint64_t exo_replay_due(const exo_replay *replay);
/* Makes the graph that `now` becomes by the next change, and advances to the change after it, also
 * after an error. *text: the same graph, expanded. The caller frees both. Errors: INVAL (`now`
 * cannot become it), NOMEM. */
exo_status exo_replay_next(exo_replay *replay, const exo_graph_spec *now, exo_graph_spec **graph,
                           char **text, exo_err *err);
/* Drops the remaining changes. */
void exo_replay_release(exo_replay *replay);

#endif
