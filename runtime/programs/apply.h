/* Changing a graph that runs: `exogym graph apply` leaves the next graph in the run's folder, and
 * the run takes it from there.
 *
 *     graph.yaml     the graph as it runs now, expanded
 *     graph.next     YAML, expanded; its first line is "# ID" and a number that the asker chose
 *     graph.answer   "ID ok", or "ID " and why not
 *
 * The folder is the user's own, so nothing has to listen anywhere. */
#ifndef EXO_PROGRAMS_APPLY_H
#define EXO_PROGRAMS_APPLY_H

#include "graph/spec.h"
#include "programs/changes.h"
#include "programs/replay.h"

/* For the asker: leaves the graph in the folder and waits for the answer, until `deadline` on the
 * real clock. job: `next` is that of a training job. NOT_FOUND: nothing runs there; INVAL: the run
 * cannot become it, with the place in next's file where that can be known; TIMEOUT. */
exo_status exo_apply_ask(const char *folder, const exo_graph_spec *next, bool job,
                         exo_time deadline, exo_err *err);

/* For the run. Zeroed but for the folder; exo_apply_release frees what it was given. */
typedef struct exo_apply_box {
    const char *folder;
    bool job;                  /* a training job: its nodes stop for a change */
    uint64_t id;               /* of the graph that is under way */
    const exo_graph_spec *now; /* before it */
    int lock;                  /* descriptor: says that somebody runs here */
    exo_graph_spec **specs;
    char **texts;
    size_t count;
    exo_replay replay; /* of a job that goes on: changes that it makes again */
    bool again;        /* the graph that is under way is one of them */
} exo_apply_box;

/* graph: as the run begins; may be NULL. */
exo_status exo_apply_open(exo_apply_box *box, const char *folder, bool job,
                          const exo_graph_spec *graph, exo_err *err);
/* Of a job that goes on: the changes that were recorded in the folder are given again, each after
 * its step. */
exo_status exo_apply_replay(exo_apply_box *box, exo_err *err);
/* After which step the next of them is due; UINT64_MAX: there is none. */
uint64_t exo_apply_due(const exo_apply_box *box);
/* After the run. */
void exo_apply_release(exo_apply_box *box);
/* The next graph, if one is there that can follow `now` after `step` (0: of no job); false: none. A
 * wrong one is answered at once. */
bool exo_apply_next(exo_apply_box *box, uint64_t step, const exo_graph_spec *now,
                    const exo_graph_spec **graph, const char **text);
/* Answers the one that was given last; a change that was made is recorded (changes.h). What was to
 * be changed again after later steps is not, once somebody has asked for another graph. */
void exo_apply_answer(exo_apply_box *box, const exo_change_time *when, exo_status status,
                      const char *reason);

#endif
