/* The data of pictures of runs, read from each run's metrics.csv. The seeds of one strategy make
 * one curve: their mean with a band.
 *
 * Owner: the command that reads them; one thread. Read next: plot_script.h. */
#ifndef EXO_PROGRAMS_PLOT_RUNS_H
#define EXO_PROGRAMS_PLOT_RUNS_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* The folders of a strategy's seeds are named LABEL-seedN (job.h). */
#define EXO_SEED_SUFFIX "-seed"

/* One evaluation: a line of metrics.csv without its accuracies, or the mean of several lines.
 * `least` and `most` are of the global loss. */
typedef struct exo_plot_point {
    double step, seconds, bytes, local, global, least, most;
} exo_plot_point;

typedef struct exo_plot_curve {
    char *folder;      /* of the run; of several seeds, without the suffix */
    const char *label; /* the last one or two parts of `folder` */
    size_t seeds;      /* the number of runs of the mean */
    exo_plot_point *points;
    size_t count, capacity;
} exo_plot_curve;

typedef struct exo_plot_data {
    exo_plot_curve *curves;
    size_t count, capacity;
    bool has_seeds; /* at least one curve is a mean */
} exo_plot_data;

/* Reads the runs `folders`. A folder that is not a run stands for the runs in it. A mean has the
 * steps at which all its seeds were evaluated. The caller releases the data, also after an error.
 * Errors: INVAL (a folder without a run, a malformed line, seeds without a common step; names it),
 * IO. */
exo_status exo_plot_read(exo_plot_data *data, const char *const *folders, size_t count,
                         exo_err *err);
void exo_plot_release(exo_plot_data *data);

#endif
