/* What each actor of a run did when: spans on tracks, for the report of a run and its timeline
 * (runtime/report/trace.c).
 *
 * Totals of each track and name are exact; the spans themselves are kept up to a limit, so that a
 * long run does not fill the memory. Names are literals. Threads: tracks belong to one thread at a
 * time; reading is for when nobody writes. */
#ifndef EXO_BASE_SPANS_H
#define EXO_BASE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

enum {
    EXO_SPAN_NAMES = 24 /* different ones of a track; more are added to the last */
};

typedef enum exo_span_kind {
    EXO_SPAN_COMPUTE,
    EXO_SPAN_SEND_BLOCKED, /* waits for room            */
    EXO_SPAN_RECV_BLOCKED, /* waits for what shall come */
} exo_span_kind;

typedef struct exo_span {
    const char *name;
    exo_span_kind kind;
    exo_time begin, end;
} exo_span;

typedef struct exo_span_total {
    const char *name;
    exo_span_kind kind;
    exo_time time;
    uint64_t count;
} exo_span_total;

/* One actor's. Owner: whoever has it; zeroed memory is an empty one that keeps no spans. */
typedef struct exo_track {
    exo_span *spans;
    size_t length, room, limit; /* limit 0: totals only */
    uint64_t lost;              /* beyond the limit     */
    exo_span_total totals[EXO_SPAN_NAMES];
    size_t num_totals;
} exo_track;

/* Adds a span; one that touches the last of the same name and kind makes it longer. Without memory
 * it counts in the totals only. */
void exo_track_add(exo_track *track, const char *name, exo_span_kind kind, exo_time begin,
                   exo_time end);
void exo_track_release(exo_track *track);

#endif
