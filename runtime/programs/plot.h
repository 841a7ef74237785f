/* Pictures of runs, drawn by gnuplot: validation loss by step, by bytes sent per node, and by time.
 * No state. */
#ifndef EXO_PROGRAMS_PLOT_H
#define EXO_PROGRAMS_PLOT_H

#include <stddef.h>

#include <exogym/status.h>

/* Draws metrics.csv of each folder into `out`, whose ending (.png or .svg) gives the format.
 * `title` may be NULL. A folder without metrics.csv stands for its subfolders that have one. Only
 * the complete picture gets the name `out`. Errors: NOT_FOUND (gnuplot is not installed), INVAL
 * (wrong ending, a folder without a run), IO, FAILED (with gnuplot's message). */
exo_status exo_plot(const char *const *folders, size_t count, const char *title, const char *out,
                    exo_err *err);

#endif
