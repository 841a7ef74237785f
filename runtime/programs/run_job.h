/* Runs a training job, for `exogym run` (run.c). */
#ifndef EXO_PROGRAMS_RUN_JOB_H
#define EXO_PROGRAMS_RUN_JOB_H

#include <stdbool.h>

#include "programs/args.h"
#include "programs/job.h"
#include "programs/local_cluster.h"

/* The arguments of `exogym run`. */
typedef struct exo_run_args {
    const char *job_path;
    exo_job_opts job;
    const char *resume; /* NULL: not given; "" or "older" */
    bool overwrite, json, no_plot, dry_run, insecure;
    const char *workers, *transport, *head, *head_key, *keys, *cluster;
} exo_run_args;

/* Runs all strategies of the job, one after the other, and shows the results. line: its args are
 * exo_run_args. text: of a job that was read from a pipe, else NULL. cluster: zeroed for nodes in
 * this process. Prints errors and returns the exit status. */
int exo_run_job(const exo_job *job, const char *text, const exo_local_cluster *cluster,
                const exo_command_line *line);
/* Writes why an actor on a cluster is dead, from the head's records; "" if the head does not know
 * within 2 s. context: the exo_cluster. */
void exo_run_explain(void *context, const char *space, const char *name, char *out, size_t size);

#endif
