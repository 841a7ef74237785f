/* What an actor of a graph says of itself (host.h: "look" and "report"), added to a run's result. */
#ifndef EXO_GRAPH_REPORT_H
#define EXO_GRAPH_REPORT_H

#include "graph/run.h"

/* Adds an actor's report: its meters and traffic, and, at the end, where its time went. result->parts has room for it. INVAL: it is no
 * report; NOMEM. */
exo_status exo_graph_report_add(exo_graph_result *result, const char *actor, const char *host, const exo_payload *reply,
                                bool at_the_end, exo_err *err);

/* Of one of many actors; reply NULL: it never said anything. */
typedef struct exo_graph_report {
    char actor[128];
    const char *host;
    const exo_payload *reply;
    bool at_the_end;
} exo_graph_report;

/* Adds those of all, 0 to count - 1, as `report` gives them (*out is zero): also after one that cannot be read. Gives the first error. */
exo_status exo_graph_report_add_all(exo_graph_result *result, uint32_t count,
                                    void (*report)(void *context, uint32_t i, exo_graph_report *out), void *context,
                                    exo_err *err);

#endif
