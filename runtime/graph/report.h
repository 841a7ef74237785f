/* What an actor of a graph says of itself (host.h: "look" and "report"), added to a run's result. */
#ifndef EXO_GRAPH_REPORT_H
#define EXO_GRAPH_REPORT_H

#include "run.h"

/* Adds an actor's report: its figures and traffic, and, at the end, where its time went. result->parts has room for it. INVAL: it is no
 * report; NOMEM. */
exo_status exo_graph_report_add(exo_graph_result *result, const char *actor, const char *host, const exo_payload *reply,
                                bool at_the_end, exo_err *err);

#endif
