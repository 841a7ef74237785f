/* Changes of a running graph. `exogym graph apply` writes the next graph to the run's folder, and
 * the run reads it there.
 *
 *     graph.yaml     the current graph, expanded
 *     graph.next     the next graph as expanded YAML; its first line is "# ID", a number that the
 *                    asker chose
 *     graph.taken    the same while the run reads and checks it
 *     graph.answer   "ID ok", or "ID " and the reason of a refusal
 *
 * The exchange goes through files because the folder belongs to the user: no port or socket is
 * needed. Read next: apply.c, changes.h. */
#ifndef EXO_PROGRAMS_APPLY_H
#define EXO_PROGRAMS_APPLY_H

#include "graph/spec.h"
#include "programs/changes.h"
#include "programs/replay.h"

/* The asker's side: writes the graph to the folder and waits for the answer, until `deadline` on
 * the real clock. job: `next` is the graph of a training job. Errors: NOT_FOUND (no run there);
 * INVAL (the run cannot become this graph; names the place in next's file if it is known);
 * TIMEOUT; CANCELLED (a signal, exo_stop_reason). After the last two the text says whether the run
 * has taken the change, and so makes it later. */
exo_status exo_apply_ask(const char *folder, const exo_graph_spec *next, bool job,
                         exo_time deadline, exo_err *err);

/* The run's side. Zero it except for the folder. exo_apply_release frees the graphs that were
 * handed out. */
typedef struct exo_apply_box {
    const char *folder;
    bool job;                  /* a training job: its nodes pause for a change */
    uint64_t id;               /* of the graph being applied */
    const exo_graph_spec *now; /* the graph before the change */
    int lock;                  /* descriptor of the lock that marks the folder as in use */
    exo_graph_spec **specs;
    char **texts;
    size_t count;
    exo_replay replay; /* of a resumed job: the recorded changes */
    bool again;        /* the graph being applied comes from `replay` */
} exo_apply_box;

/* graph: the run's first graph; may be NULL. */
exo_status exo_apply_open(exo_apply_box *box, const char *folder, bool job,
                          const exo_graph_spec *graph, exo_err *err);
/* For a resumed job: replays the changes that are recorded in the folder, each after its step. */
exo_status exo_apply_replay(exo_apply_box *box, exo_err *err);
/* The step after which the next recorded change is due; UINT64_MAX: none. */
uint64_t exo_apply_due(const exo_apply_box *box);
/* Call it after the run. */
void exo_apply_release(exo_apply_box *box);
/* Returns true with the next graph if there is one that can follow `now` after `step` (0: not a
 * training job). A graph that cannot is refused at once. */
bool exo_apply_next(exo_apply_box *box, uint64_t step, const exo_graph_spec *now,
                    const exo_graph_spec **graph, const char **text);
/* Answers the request for the graph that was handed out last, and records a change that was made
 * (changes.h). Once a user has asked for another graph, recorded changes of later steps are not
 * replayed. */
void exo_apply_answer(exo_apply_box *box, const exo_change_time *when, exo_status status,
                      const char *reason);

#endif
