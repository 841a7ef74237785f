/* The spans of a run's actors on tracks, for the run's report and its timeline
 * (runtime/report/trace.c).
 *
 * The totals of each track and name are exact. The spans themselves are kept up to a limit, so that
 * a long run does not fill the memory. Names are literals. Threads: a track belongs to one thread
 * at a time; read it only while no thread writes. */
#ifndef EXO_BASE_SPANS_H
#define EXO_BASE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

enum {
    EXO_SPAN_NAMES = 24 /* names of one track; the last place collects all further ones */
};

typedef enum exo_span_kind {
    EXO_SPAN_COMPUTE,
    EXO_SPAN_SEND_BLOCKED, /* waits for room */
    EXO_SPAN_RECV_BLOCKED, /* waits for data */
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

/* One actor's track. The owner may be any one thread; zeroed memory is an empty track that keeps no
 * spans. */
typedef struct exo_track {
    exo_span *spans;
    size_t length, room, limit; /* limit 0: totals only */
    uint64_t lost;              /* spans beyond the limit */
    exo_span_total totals[EXO_SPAN_NAMES];
    size_t num_totals;
} exo_track;

/* Adds a span, or extends the last one if it has the same name and kind and ends at `begin`.
 * Without memory only the totals count it. */
void exo_track_add(exo_track *track, const char *name, exo_span_kind kind, exo_time begin,
                   exo_time end);
void exo_track_release(exo_track *track);

#endif
