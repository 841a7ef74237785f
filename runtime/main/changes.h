/* What was changed in a graph while it ran, and when: kept as "changes" in the config.json of the run's folder, and in its result.json.
 *
 *     [{"at": "2026-11-22T05:40:00Z", "time_s": 3.2, "step": 20, "changed": [{"key": "edges.NAME.codec", "from": "raw", "to": "bf16"}]}]
 *
 * time_s: on the run's clock. step: of a training job. No state. */
#ifndef EXO_MAIN_CHANGES_H
#define EXO_MAIN_CHANGES_H

#include <jansson.h>

#include "spec.h"

/* When a change was made; step -1: the run has none. */
typedef struct exo_change_time {
    exo_time time;
    int64_t step;
} exo_change_time;

/* Adds what differs between two graphs to the folder's config.json. IO, NOMEM. */
exo_status exo_changes_add(const char *folder, const exo_graph_spec *before, const exo_graph_spec *after,
                           const exo_change_time *when, exo_err *err);
/* Those of the folder's config.json; NULL: none. The caller drops it. */
json_t *exo_changes_of(const char *folder);
/* Writes the graph as config.json: that of a graph's run. */
exo_status exo_changes_begin(const char *folder, const exo_graph_spec *graph, exo_err *err);

#endif
