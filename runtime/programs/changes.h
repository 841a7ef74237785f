/* The changes that were made to a running graph, recorded as "changes" in the config.json of the
 * run's folder, and in its result.json:
 *
 *     [{"at": "2026-11-22T05:40:00Z", "time_s": 3.2, "step": 20,
 *       "changed": [{"key": "edges.NAME.codec", "from": "raw", "to": "bf16"}]}]
 *
 * time_s is on the run's clock. Only training jobs have `step`. Their entries in config.json also
 * have `graph`: the hosts, links and edges after the change, from which a resumed job replays it
 * (replay.h). No state. */
#ifndef EXO_PROGRAMS_CHANGES_H
#define EXO_PROGRAMS_CHANGES_H

#include <jansson.h>

#include "base/config_edit.h"
#include "graph/spec.h"

/* The time of a change. step is -1 if the run has no steps. */
typedef struct exo_change_time {
    exo_time time;
    int64_t step;
} exo_change_time;

/* Adds the differences between two graphs to the folder's config.json, and removes entries of later
 * steps. Errors: IO, NOMEM. */
exo_status exo_changes_add(const char *folder, const exo_graph_spec *before,
                           const exo_graph_spec *after, const exo_change_time *when, exo_err *err);
/* The changes in the folder's config.json, without their graphs; NULL: none. The caller drops
 * them. */
json_t *exo_changes_of(const char *folder);
/* Writes the graph as the config.json of a graph's run. */
exo_status exo_changes_begin(const char *folder, const exo_graph_spec *graph, exo_err *err);

/* Reads the folder's config.json. The caller frees it. Errors: NOT_FOUND, IO, INVAL, NOMEM. */
exo_status exo_changes_read(const char *folder, exo_config_doc **out, exo_err *err);
/* A graph as a document with all defaults. The caller frees it. */
exo_status exo_changes_expand(const exo_graph_spec *graph, exo_config_doc **out, exo_err *err);
/* Finds an edge by name in a list of edges; NULL: there is none. */
exo_config *exo_changes_edge(exo_config *edges, const char *name);

#endif
