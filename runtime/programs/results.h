/* What is left of a run: result.json in its folder, the table on the screen, JSON for programs. No
 * state. */
#ifndef EXO_PROGRAMS_RESULTS_H
#define EXO_PROGRAMS_RESULTS_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "programs/job.h"

/* Writes folder/label/result.json, atomically, with the meters of the run's tree. Errors: IO names
 * the file. */
exo_status exo_result_write(const exo_job *job, const exo_job_run *run,
                            const exo_fit_result *result, const exo_meters *meters, exo_err *err);
/* Reads back what it wrote. `result->params` stays NULL. */
void exo_result_from(const json_t *json, exo_fit_result *result);

/* One row a strategy: final losses and accuracies, bytes sent per node, time, samples a second. Of
 * several seeds their mean, with the least and the largest. */
void exo_results_print_table(FILE *out, const exo_job *job, const exo_fit_result *results);
/* What the strategies' edges carried, all nodes together. */
void exo_results_print_ledger(FILE *out, const exo_job *job, const exo_fit_result *results);
/* Where the time of a run went, by its network.json; nothing if there is none. */
void exo_results_print_network(FILE *out, const exo_job *job, size_t index);
/* All as one JSON object; `picture` may be NULL. */
exo_status exo_results_print_json(FILE *out, const exo_job *job, const exo_fit_result *results,
                                  const char *picture, exo_err *err);

/* [{"label", "strategy", "seeds": [...], "global_loss": {"mean", "deviation", "least", "largest"},
 * ...}], one for each strategy. */
json_t *exo_results_seeds_json(const exo_job *job, const exo_fit_result *results);
/* Of a job with `seeds`: writes what exo_results_print_json prints to folder/result.json; takes
 * that file away, before the first run. */
exo_status exo_results_write_seeds(const exo_job *job, const exo_fit_result *results,
                                   const char *picture, exo_err *err);
exo_status exo_results_forget_seeds(const exo_job *job, exo_err *err);

#endif
