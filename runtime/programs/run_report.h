/* Reports of a running job or graph: written to progress.json in the run's folder and, on a
 * cluster, sent to the head's entry of the job.
 *
 * A report is the object {"state", "time_s", "clock", "edges": [{"edge", "messages", ...}],
 * "meters": {path: {...}}} (meter_json.h). A training run adds "max_steps"; a failed run adds
 * "error"; long waits of actors add "waits": [{"actor", "kind", "edge", "waited_s", "for" or
 * "link"}]. The file has the whole report. The head takes 64 KiB, so its copy is shortened if
 * necessary. Errors here do not disturb the run.
 *
 * Owner: the run's thread. `exogym status` reads and prints reports. */
#ifndef EXO_PROGRAMS_RUN_REPORT_H
#define EXO_PROGRAMS_RUN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include <exogym/cluster.h>
#include <jansson.h>

#include "report/ledger.h"

typedef struct exo_run_report {
    exo_cluster *cluster; /* NULL: no cluster */
    const char *folder;   /* NULL: no file */
    json_t *latest;
    bool unsaid;    /* `latest` has not been reported */
    exo_time said;  /* time of the last report; 0: none yet */
    exo_time quiet; /* no report to the head until then, because it did not answer */
} exo_run_report;

/* The state of a run. The last report has the outcome. EXO_RUN_UNTIL: the graph ended at its own
 * `until`. A report that says "running" while nothing runs is from a run that was killed. */
typedef enum exo_run_state {
    EXO_RUN_RUNNING,
    EXO_RUN_FINISHED,
    EXO_RUN_UNTIL,
    EXO_RUN_STOPPED,
    EXO_RUN_FAILED,
} exo_run_state;
const char *exo_run_state_text(exo_run_state state);

/* Returns a report of a running run, without edges and meters; NULL: no memory. */
json_t *exo_run_report_new(double time_s, bool virtual_clock);
/* Add the traffic of one edge, or of all edges of a ledger. */
void exo_run_report_add_edge(json_t *report, const char *edge, const exo_traffic *traffic);
void exo_run_report_add_ledger(json_t *report, const exo_ledger *ledger);
/* Adds all meters of a tree. */
void exo_run_report_add_meters(json_t *report, const exo_meters *tree);
/* Adds a long wait at an edge. what: "link" (`on` is the link that carries the awaited message) or
 * "for" (`on` is the actor waited for, "" if unknown). */
void exo_run_report_add_wait(json_t *report, const char *actor, const char *kind, const char *edge,
                             double waited_s, const char *what, const char *on);

/* Is the next report due? Reports are a second apart. */
bool exo_run_report_is_due(const exo_run_report *r);
/* Publishes a report. Takes ownership; `report` may be NULL. Blocks for at most a tenth of a
 * second, and rarely. */
void exo_run_report_say(exo_run_report *r, json_t *report);
/* Keeps a report that is not due. Takes ownership. exo_run_report_close writes it to the file,
 * unless a later report is published. */
void exo_run_report_keep(exo_run_report *r, json_t *report);
/* Publishes the last report again with the outcome and, if the run failed, the reason (else
 * NULL). */
void exo_run_report_end(exo_run_report *r, exo_run_state state, const char *reason);
/* Writes the kept report and resets the struct. */
void exo_run_report_close(exo_run_report *r);

/* Returns one edge's traffic as an object, in the form of result.json. */
json_t *exo_run_traffic_json(const char *edge, const exo_traffic *t);
/* Prints a line with `title`, then time, meters and the ledger's table. Entries that are missing or
 * have another type are left out. */
void exo_run_report_print(FILE *out, const char *title, const json_t *report);
/* Reads the reports of runs on this host, as [{"folder", "running", "state", "report"}]: of the run
 * `folder`, or of all runs in it. "state" is the report's, or "killed" if the run ended without a
 * last report. Errors: NOT_FOUND (no run there). */
exo_status exo_run_report_read(const char *folder, json_t **out, exo_err *err);

#endif
