/* A run as a timeline in Chrome's trace event format, for https://ui.perfetto.dev or
 * chrome://tracing. A host is a process and an actor a thread of its host. Times are on the run's
 * clock. No state. */
#ifndef EXO_REPORT_TIMELINE_H
#define EXO_REPORT_TIMELINE_H

#include <stddef.h>

#include <exogym/status.h>

#include "base/spans.h"

typedef struct exo_timeline_track {
    const char *host, *actor;
    const exo_track *track;
} exo_timeline_track;

/* Writes the file, and replaces an old one atomically. Errors: NOMEM; IO names the file. */
exo_status exo_timeline_write(const char *path, const exo_timeline_track *tracks, size_t count,
                              exo_err *err);

#endif
