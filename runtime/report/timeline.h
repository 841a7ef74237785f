/* A run as a timeline in Chrome's trace event format: https://ui.perfetto.dev or chrome://tracing
 * open it. A process is a host, a thread an actor on it; times are on the run's clock. */
#ifndef EXO_REPORT_TIMELINE_H
#define EXO_REPORT_TIMELINE_H

#include <stddef.h>

#include <exogym/status.h>

#include "base/spans.h"

typedef struct exo_timeline_track {
    const char *host, *actor;
    const exo_track *track;
} exo_timeline_track;

/* Replaces the file at once. IO names it. */
exo_status exo_timeline_write(const char *path, const exo_timeline_track *tracks, size_t count,
                              exo_err *err);

#endif
