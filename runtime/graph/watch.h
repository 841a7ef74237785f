/* The search for stalls in a running graph (stall.h), and for actors of workers that have lost each
 * other (split.h). On the real clock the runner asks the actors several times a second. On the virtual
 * clock an event looks for stalls about every half second of its time. There, most searches end early:
 * no waiting actor waits for another one, or nothing has happened to them since the last search.
 *
 * Owner: the runner's thread. An event of the simulation also writes the result, which `found`
 * publishes. Read next: watch.c. */
#ifndef EXO_GRAPH_WATCH_H
#define EXO_GRAPH_WATCH_H

#include "conduct/conduct.h"
#include "graph/place.h"
#include "graph/split.h"
#include "graph/stall.h"

typedef struct exo_stall_watch {
    const exo_graph_spec *spec;
    const exo_cast *cast;     /* the actors; an actor with a reply has ended */
    exo_site *site;           /* NULL: the actors are in workers */
    exo_place *const *places; /* (count) the places in this process; NULL: in workers */
    uint32_t count;
    exo_time began;               /* start of the run, on the real clock */
    exo_time next;                /* time of the next search, on the real clock */
    exo_payload *records, *again; /* (count) the last gathering, and the one that confirms it */
    bool *stuck;                  /* (count) */
    bool *answered;               /* (count) actors of workers, at the last gathering */
    uint32_t *scratch;            /* (count) for exo_place_may_be_stuck, like counts (2 count) */
    uint64_t *counts;
    uint64_t mark; /* virtual clock: digest of the waits at the last search */
    exo_stall stall;
    exo_time at;        /* time of the stall, on the run's clock */
    _Atomic bool found; /* `stall` is set */
    exo_split split;    /* of the last search, in workers */
} exo_stall_watch;

/* Allocates the arrays. The caller has set the members up to `next`, which are borrowed. The caller
 * closes the watch, also after an error. Errors: NOMEM. */
exo_status exo_stall_watch_open(exo_stall_watch *watch, exo_err *err);
/* Schedules the first search on the virtual clock, before the actors run. A stall cancels the
 * actors. */
exo_status exo_stall_watch_begin(exo_stall_watch *watch, exo_err *err);
/* Searches on the real clock if it is time. Blocks for a few tenths of a second at most, and only
 * if a worker does not answer. */
void exo_stall_watch_look(exo_stall_watch *watch);
/* Frees the arrays, when no actor runs any more. */
void exo_stall_watch_close(exo_stall_watch *watch);

#endif
