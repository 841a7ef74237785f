/* `exogym run --dry-run`: the memory that a job needs. No state. */
#ifndef EXO_PROGRAMS_DRY_RUN_H
#define EXO_PROGRAMS_DRY_RUN_H

#include "programs/job.h"

/* Prints a table, or JSON, on standard output. Returns the exit status. */
int exo_dry_run(const exo_job *job, bool json);

/* Checks, with one sample, that this processor can compute the job. Errors: UNSUPPORTED (bf16
 * without the instructions for it). */
exo_status exo_dry_run_check(const exo_job *job, exo_err *err);

#endif
