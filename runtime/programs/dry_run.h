/* `exogym run --dry-run`: what a job would take of memory. */
#ifndef EXO_PROGRAMS_DRY_RUN_H
#define EXO_PROGRAMS_DRY_RUN_H

#include "programs/job.h"

/* Prints a table, or JSON, on standard output; gives the exit status. */
int exo_dry_run(const exo_job *job, bool json);

#endif
