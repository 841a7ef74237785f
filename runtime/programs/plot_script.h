/* A picture of runs as a gnuplot script: validation loss by step, by bytes sent per node, and by
 * time, over a legend. No state. */
#ifndef EXO_PROGRAMS_PLOT_SCRIPT_H
#define EXO_PROGRAMS_PLOT_SCRIPT_H

#include <stdbool.h>

#include "programs/plot_runs.h"
#include "programs/text.h"

/* Adds the script that draws `data` on gnuplot's standard output, as SVG or PNG. Any number of
 * curves: the picture grows with its legend. No title and no label, whatever is in it, is anything
 * but a text to gnuplot. */
void exo_plot_script(exo_text *script, const exo_plot_data *data, const char *title, bool svg);

#endif
