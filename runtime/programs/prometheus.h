/* Figures of runs and of a cluster in Prometheus's text format, version 0.0.4, for `exogym status
 * --prometheus`.
 *
 * A page is a JSON object {family: {"kind", "help", "samples": {labels: text}}}. A family has the name
 * of a meter's path without the number of its actor, which is a label:
 *
 *     node_0.strategy.rounds    exogym_node_strategy_rounds_total{job="compare",actor="node_0"} 12
 *
 * Counters end in _total. Times are in seconds and end in _seconds, sizes in _bytes. A family that has
 * two kinds of meters, from two jobs, keeps those of the first kind; of a histogram x and a meter with
 * the name of one of its lines, as x_count, the first is kept; two samples never have the same labels.
 * State: the page, of one thread at a time; without memory it lacks samples. */
#ifndef EXO_PROGRAMS_PROMETHEUS_H
#define EXO_PROGRAMS_PROMETHEUS_H

#include <stdio.h>

#include <exogym/status.h>
#include <jansson.h>

/* Adds the report of a run (run_report.h), which is untrusted. label: what `name` names, "job" or
 * "run". state: of the run. */
void exo_prometheus_add_report(json_t *page, const char *label, const char *name, const char *state,
                               const json_t *report);
/* Adds what the head knows (exo_cluster_list), with the reports of running jobs. */
void exo_prometheus_add_cluster(json_t *page, const json_t *listing);
/* Prints the page and drops it. Errors: NOMEM (page is NULL), IO. */
exo_status exo_prometheus_print(FILE *out, json_t *page, exo_err *err);

#endif
