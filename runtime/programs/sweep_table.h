/* The results of a sweep: sweep.json and sweep.csv in its folder, and the table on the screen. All
 * of them are made of one JSON document. No state. */
#ifndef EXO_PROGRAMS_SWEEP_TABLE_H
#define EXO_PROGRAMS_SWEEP_TABLE_H

#include <jansson.h>

#include "programs/job.h"
#include "programs/sweep_grid.h"

/* Adds a row to `rows` for each strategy of a cell: its label and values, and mean and deviation
 * of the results over the job's seeds, as exo_results_seeds_json gives them. */
void exo_sweep_add(json_t *rows, const exo_grid *grid, size_t cell, const exo_job *job,
                   const exo_fit_result *results);
/* Writes `all` ({"rows": rows, ...}) to folder/sweep.json, and its rows to folder/sweep.csv. Errors:
 * IO names the file. */
exo_status exo_sweep_write(const char *folder, const exo_grid *grid, const json_t *all,
                           exo_err *err);
/* Prints a table of the rows on standard output. */
void exo_sweep_print(const json_t *rows);

#endif
