/* What the folders of a job hold from before: runs that are finished, runs to go on with, or
 * nothing. No state. */
#ifndef EXO_PROGRAMS_PAST_H
#define EXO_PROGRAMS_PAST_H

#include <stdbool.h>

#include "programs/job.h"

typedef struct exo_past {
    bool begun;    /* there is a run to go on with            */
    bool finished; /* all its steps are done: its result is there */
} exo_past;

typedef struct exo_past_opts {
    bool resume;    /* go on, and keep what is finished            */
    bool older;     /* with resume: from an older checkpoint where the newest is damaged */
    bool overwrite; /* without resume: finished runs may be replaced */
} exo_past_opts;

/* Decides minibatch_size where the job says auto: what the runs in its folders have, when they are
 * resumed, else what fits; and writes each run's config.json. Before exo_past_look. */
exo_status exo_past_settle(exo_job *job, bool resume, exo_err *err);

/* Looks at the folder of each run before anything starts: fills in `past` (num_runs), and the
 * results of those that are finished. A job that begins anew forgets all of its runs at once, so
 * that it can be stopped and resumed at any of them. Errors: EXISTS (a finished run, or one that
 * goes on, is in the way), INVAL (begun with other settings: names the first that decides about the
 * numbers), FAILED (config.json or result.json is damaged). */
exo_status exo_past_look(const exo_job *job, const exo_past_opts *opts, exo_past *past,
                         exo_fit_result *results, exo_err *err);

#endif
