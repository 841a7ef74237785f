/* `exogym run --dry-run`: what a job would take of memory. */
#ifndef EXO_PROGRAMS_DRY_RUN_H
#define EXO_PROGRAMS_DRY_RUN_H

#include "programs/job.h"

/* Prints a table, or JSON, on standard output; gives the exit status. */
int exo_dry_run(const exo_job *job, bool json);

/* Can this processor compute the job? A pass of one sample is rehearsed; UNSUPPORTED: bf16 without
 * the instructions for it. */
exo_status exo_dry_run_check(const exo_job *job, exo_err *err);

#endif
