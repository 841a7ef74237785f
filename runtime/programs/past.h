/* The state of a job's folders before the job starts: finished runs, runs to resume, or nothing. No
 * state of its own. */
#ifndef EXO_PROGRAMS_PAST_H
#define EXO_PROGRAMS_PAST_H

#include <stdbool.h>

#include "actors/reshard.h"
#include "programs/job.h"

typedef struct exo_past {
    bool begun;    /* there is a run to resume */
    bool finished; /* all its steps are done, and its result is there */
} exo_past;

typedef struct exo_past_opts {
    bool resume;    /* resume runs, and keep finished ones */
    bool older;     /* with resume: use an older checkpoint where the newest is damaged */
    bool reshard;   /* with resume: convert the newest checkpoint to the job's nodes */
    bool overwrite; /* without resume: finished runs may be replaced */
} exo_past_opts;

/* Decides minibatch_size if the job says auto: a resumed job takes the size of the runs in its
 * folders, a new one takes what fits. Writes each run's config.json. Call it before
 * exo_past_look. */
exo_status exo_past_settle(exo_job *job, bool resume, exo_err *err);

/* The nodes of a run of the job, as a form of its checkpoints. It points into job and run. */
exo_reshard_form exo_past_form(const exo_job *job, const exo_job_run *run);

/* Inspects the folder of each run before anything starts. Fills in `past` (num_runs) and the
 * results of finished runs. A job that starts anew first removes the state of all of its runs, so
 * that it can be stopped and resumed during any of them. Errors: EXISTS (a finished run, or a run
 * in progress, is in the way), INVAL (the run was begun with other settings; names the first that
 * affects the numbers, and --resume=reshard if it can convert the newest checkpoint), FAILED (config.json or result.json is damaged). */
exo_status exo_past_look(const exo_job *job, const exo_past_opts *opts, exo_past *past,
                         exo_fit_result *results, exo_err *err);

#endif
