/* The reports of a graph's actors (host.h: "look" and "report"), and how they are added to the
 * result of a run. State: none; the caller owns the result. */
#ifndef EXO_GRAPH_REPORT_H
#define EXO_GRAPH_REPORT_H

#include "graph/place.h"
#include "graph/run.h"

/* The report of one actor; reply NULL: the actor never reported. */
typedef struct exo_graph_report {
    char actor[128];
    const char *host;
    const exo_payload *reply;
    bool at_the_end;
} exo_graph_report;

/* Adds meters and traffic of actors 0 to count - 1, which `report` supplies (it gets a zeroed
 * *out), and the use of their time if result->parts has room. Continues after an unreadable report;
 * returns the first error. INVAL: a reply is no report; NOMEM. */
exo_status exo_graph_report_add_all(exo_graph_result *result, uint32_t count,
                                    void (*report)(void *context, uint32_t i,
                                                   exo_graph_report *out),
                                    void *context, exo_err *err);

/* Adds the traffic of the hosts of an emulated network. Errors: NOMEM. */
exo_status exo_graph_report_hosts(exo_graph_result *result, const exo_graph_spec *spec,
                                  exo_links *network, exo_err *err);
/* Writes the timeline of actors of this process, after the run. Errors: IO, NOMEM. */
exo_status exo_graph_report_timeline(const char *path, const exo_graph_spec *spec,
                                     exo_place *const *places, uint32_t count, exo_err *err);

#endif
