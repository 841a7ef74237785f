/* Runs a training job, for `exogym run` (run.c). */
#ifndef EXO_PROGRAMS_RUN_JOB_H
#define EXO_PROGRAMS_RUN_JOB_H

#include <stdbool.h>

#include "programs/args.h"
#include "programs/job.h"
#include "programs/local_cluster.h"
#include "programs/past.h"
#include "programs/progress.h"

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
typedef struct exo_run_at {
    size_t index; /* of a run of the job */
    bool unbegun; /* it was stopped before its first step, and has no state of its own yet */
} exo_run_at;

/* Runs all runs of a job in turn, in this process or on the cluster (zeroed: none). first: the
 * number of the job's first run among those that `display` counts. results: (num_runs). *at becomes
 * the last run that began. Errors: those of exo_past_look and of the runs; CANCELLED:
 * exo_stop_reason says why. */
exo_status exo_run_all(const exo_job *job, const exo_past_opts *opts,
                       const exo_local_cluster *cluster, exo_display *display, size_t first,
                       exo_fit_result *results, exo_run_at *at, exo_err *err);
/* The command that resumes a stopped run, ready to be pasted. copy: of a job that was read from a
 * pipe, else NULL. begun: the command has left something to resume. The caller frees it. NULL: no
 * memory. */
char *exo_run_resume_command(const exo_command_line *line, const char *copy, bool begun);
/* Draws validation loss of the runs `runs`, folders, into folder/file. Returns its path (the caller
 * frees it), or NULL after a message with the reason. */
char *exo_run_draw(const char *folder, const char *file, const char *title, char *const *runs,
                   size_t count);
/* Writes why an actor on a cluster is dead, from the head's records; "" if the head does not know
 * within 2 s. context: the exo_cluster. */
void exo_run_explain(void *context, const char *space, const char *name, char *out, size_t size);

#endif
