/* The results of a run: result.json in its folder, tables on the screen, JSON for programs. No
 * state. */
#ifndef EXO_PROGRAMS_RESULTS_H
#define EXO_PROGRAMS_RESULTS_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "programs/job.h"

/* Writes folder/label/result.json atomically, with the meters of the run's tree. Errors: IO names
 * the file. */
exo_status exo_result_write(const exo_job *job, const exo_job_run *run,
                            const exo_fit_result *result, const exo_meters *meters, exo_err *err);
/* Reads such a result back. `result->params` stays NULL. */
void exo_result_from(const json_t *json, exo_fit_result *result);

/* Prints one row for each strategy: final losses and accuracies, bytes sent per node, time, samples
 * per second. Several seeds are shown as their mean, with the least and the largest value. */
void exo_results_print_table(FILE *out, const exo_job *job, const exo_fit_result *results);
/* Prints the traffic of the strategies' edges, summed over all nodes. */
void exo_results_print_ledger(FILE *out, const exo_job *job, const exo_fit_result *results);
/* Prints how a run spent its time, from its network.json. Prints nothing if there is none. */
void exo_results_print_network(FILE *out, const exo_job *job, size_t index);
/* Prints all results as one JSON object. `picture` may be NULL. */
exo_status exo_results_print_json(FILE *out, const exo_job *job, const exo_fit_result *results,
                                  const char *picture, exo_err *err);

/* [{"label", "strategy", "seeds": [...], "global_loss": {"mean", "deviation", "least", "largest"},
 * ...}], one for each strategy. */
json_t *exo_results_seeds_json(const exo_job *job, const exo_fit_result *results);
/* For jobs with `seeds`: the first writes the output of exo_results_print_json to
 * folder/result.json; the second removes this file, before the first run. */
exo_status exo_results_write_seeds(const exo_job *job, const exo_fit_result *results,
                                   const char *picture, exo_err *err);
exo_status exo_results_forget_seeds(const exo_job *job, exo_err *err);

#endif
