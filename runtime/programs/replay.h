/* What a job that goes on does with the graph that it had last: it makes the recorded changes
 * (changes.h) again, each after the step that it was made after. Owner: the run's thread. Read
 * next: apply.h, which gives them to the run. */
#ifndef EXO_PROGRAMS_REPLAY_H
#define EXO_PROGRAMS_REPLAY_H

#include "graph/spec.h"
#include "programs/changes.h"

typedef struct exo_replay {
    exo_config_doc *config; /* the folder's config.json; NULL: nothing is made again */
    exo_config *list;       /* its changes */
    size_t at;              /* the next one */
} exo_replay;

/* Reads what the folder's config.json has of changes; nothing if it has none. Those that were
 * recorded without their graph, by an earlier version, are warned of and left out. IO, INVAL,
 * NOMEM. */
exo_status exo_replay_open(exo_replay *replay, const char *folder, exo_err *err);
/* After which step the next change is due; UINT64_MAX: there is none. */
uint64_t exo_replay_due(const exo_replay *replay);
/* Makes the graph that `now` becomes by the next change, and goes on to the one after it, also
 * after an error. *text: the same, expanded. The caller frees both. INVAL: `now` cannot become it.
 * NOMEM. */
exo_status exo_replay_next(exo_replay *replay, const exo_graph_spec *now, exo_graph_spec **graph,
                           char **text, exo_err *err);
/* Nothing is due any more. */
void exo_replay_release(exo_replay *replay);

#endif
