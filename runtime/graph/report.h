/* What an actor of a graph says of itself (host.h: "look" and "report"), added to a run's
 * result. */
#ifndef EXO_GRAPH_REPORT_H
#define EXO_GRAPH_REPORT_H

#include "graph/place.h"
#include "graph/run.h"

/* Of one of many actors; reply NULL: it never said anything. */
typedef struct exo_graph_report {
    char actor[128];
    const char *host;
    const exo_payload *reply;
    bool at_the_end;
} exo_graph_report;

/* Adds the figures and traffic of all, 0 to count - 1, as `report` gives them (*out is zero), and
 * where their time went, if result->parts has room for it: also after one that cannot be read.
 * Gives the first error. INVAL: it is no report; NOMEM. */
exo_status exo_graph_report_add_all(exo_graph_result *result, uint32_t count,
                                    void (*report)(void *context, uint32_t i,
                                                   exo_graph_report *out),
                                    void *context, exo_err *err);

/* Adds what the hosts of an emulated network sent and received. NOMEM. */
exo_status exo_graph_report_hosts(exo_graph_result *result, const exo_graph_spec *spec,
                                  exo_links *network, exo_err *err);
/* Writes the timeline of actors of this process, which do not run any more. IO, NOMEM. */
exo_status exo_graph_report_timeline(const char *path, const exo_graph_spec *spec,
                                     exo_place *const *places, uint32_t count, exo_err *err);

#endif
