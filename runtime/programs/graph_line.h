/* The progress line of a graph: the most telling meters first, as many as fit into the terminal. No
 * state. */
#ifndef EXO_PROGRAMS_GRAPH_LINE_H
#define EXO_PROGRAMS_GRAPH_LINE_H

#include "base/grow_text.h"
#include "graph/run.h"

/* Adds "3:07  trainer_0: return_mean 212.5, loss 0.3100  maker x8: items 410..432  12.4 MB sent",
 * in at most `width` columns. Actors of one name share an entry with the least and the greatest
 * value of each meter. Each name gets its first meter before any gets its second: a class declares
 * its most telling meter first. Meters that do not fit, and histograms, are left out. */
void exo_graph_line(exo_text *line, const exo_graph_progress *progress, int width);

#endif
