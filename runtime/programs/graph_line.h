/* The line that shows how a graph goes: what fits into a terminal of its width, most telling first.
 * No state. */
#ifndef EXO_PROGRAMS_GRAPH_LINE_H
#define EXO_PROGRAMS_GRAPH_LINE_H

#include "base/grow_text.h"
#include "graph/run.h"

/* "3:07  trainer_0: return_mean 212.5, loss 0.3100  maker x8: items 410..432  12.4 MB sent" in at
 * most `width` columns. Actors of one name are one, with the least and the greatest of each meter.
 * Every name gets its first meter before any gets its second, as a class declares the most telling
 * first; what does not fit, and histograms, are left out. */
void exo_graph_line(exo_text *line, const exo_graph_progress *progress, int width);

#endif
