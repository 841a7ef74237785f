/* How a run goes, said while it runs: the file progress.json in its folder, and the head's entry of
 * its job, where there is a cluster.
 *
 * A report is the object {"state", "time_s", "clock", "edges": [{"edge", "messages", ...}],
 * "meters": {path: {...}}} (meter_json.h); that of a training run has "max_steps" besides, that of
 * a run that failed "error", and where actors have waited for long "waits": [{"actor", "kind",
 * "edge", "waited_s", "for" or "link"}]. The file has all of it; the head, which takes 64 KiB, gets
 * less if it must. Nothing that fails here disturbs the run.
 *
 * Owner: the run's thread. Reading and printing: `exogym status`. */
#ifndef EXO_PROGRAMS_RUN_REPORT_H
#define EXO_PROGRAMS_RUN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include <exogym/cluster.h>
#include <jansson.h>

#include "report/ledger.h"

typedef struct exo_run_report {
    exo_cluster *cluster; /* NULL: none */
    const char *folder;   /* NULL: no file */
    json_t *latest;
    bool unsaid;    /* `latest`                                          */
    exo_time said;  /* when it was last said; 0: never                   */
    exo_time quiet; /* the head did not answer: it is left alone so long */
} exo_run_report;

/* How the run stands: "running", and in the last report what became of it. "until": at the time
 * that a graph gives itself. A report that says running, of a run that does not run, is that of one
 * that was killed. */
typedef enum exo_run_state {
    EXO_RUN_RUNNING,
    EXO_RUN_FINISHED,
    EXO_RUN_UNTIL,
    EXO_RUN_STOPPED,
    EXO_RUN_FAILED,
} exo_run_state;
const char *exo_run_state_text(exo_run_state state);

/* A report of a running run without edges and meters; NULL: no memory. */
json_t *exo_run_report_new(double time_s, bool virtual_clock);
/* One edge's traffic, and that of all edges of a ledger. */
void exo_run_report_add_edge(json_t *report, const char *edge, const exo_traffic *traffic);
void exo_run_report_add_ledger(json_t *report, const exo_ledger *ledger);
/* All meters of a tree. */
void exo_run_report_add_meters(json_t *report, const exo_meters *tree);
/* A long wait at an edge; what: "link", on which something for it is, or "for", whom it waits for
 * ("" if that is not known). */
void exo_run_report_add_wait(json_t *report, const char *actor, const char *kind, const char *edge,
                             double waited_s, const char *what, const char *on);

/* Is it time for another one? A second after the one before. */
bool exo_run_report_is_due(const exo_run_report *r);
/* Says it; takes the report, which may be NULL. Blocks for no longer than a tenth of a second, and
 * rarely that. */
void exo_run_report_say(exo_run_report *r, json_t *report);
/* For one that is not due: it takes the report, which the file has in the end if nothing is said
 * after it. */
void exo_run_report_keep(exo_run_report *r, json_t *report);
/* Says the last report once more, with what became of the run and, of one that failed, why (else
 * NULL). */
void exo_run_report_end(exo_run_report *r, exo_run_state state, const char *reason);
/* Writes what was kept. The struct is as new. */
void exo_run_report_close(exo_run_report *r);

/* One edge as an object, as result.json has it, too. */
json_t *exo_run_traffic_json(const char *edge, const exo_traffic *t);
/* `title`, a line, and below it time, meters and the ledger's table. What is not there, or of
 * another type, is left out. */
void exo_run_report_print(FILE *out, const char *title, const json_t *report);
/* What a run of this host says of itself: [{"folder", "running", "state", "report"}] of `folder`,
 * or of the runs in it. "state" is the report's, or "killed" of one that ended without a word.
 * NOT_FOUND: there is none. */
exo_status exo_run_report_read(const char *folder, json_t **out, exo_err *err);

#endif
