/* A picture of runs as a gnuplot script: validation loss by step, by bytes sent per node, and by
 * time, above a legend. No state. */
#ifndef EXO_PROGRAMS_PLOT_SCRIPT_H
#define EXO_PROGRAMS_PLOT_SCRIPT_H

#include <stdbool.h>

#include "programs/plot_runs.h"
#include "programs/text.h"

/* Adds a script that draws `data` on gnuplot's standard output, as SVG or PNG. The number of curves
 * is not limited: the picture grows with its legend. Titles and labels are escaped, so that gnuplot
 * treats any content as plain text. */
void exo_plot_script(exo_text *script, const exo_plot_data *data, const char *title, bool svg);

/* --- For other pictures ----------------------------------------------------------------------- */

enum {
    EXO_PLOT_COLOUR = 8 /* bytes of a colour, such as #0072B2, with its NUL */
};

/* Adds a string in gnuplot's double quotes, cut to `most` bytes. No text can end the string. */
void exo_plot_add_string(exo_text *script, const char *text, size_t most);
/* The colour of a curve of `count`: a constant, or in `out`. */
const char *exo_plot_colour(size_t index, size_t count, char out[EXO_PLOT_COLOUR]);

#endif
