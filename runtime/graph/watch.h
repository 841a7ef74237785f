/* Looks for stalls while a graph runs (stall.h): on the real clock the runner asks the actors
 * several times a second, on the virtual one an event does so whenever half a second of its time
 * has passed. There most looks end early: nobody who waits does so for others who wait, or nothing
 * has happened to any of them since the last look.
 *
 * Owner: the runner's thread, but for what an event of the simulation finds, which `found`
 * publishes. */
#ifndef EXO_GRAPH_WATCH_H
#define EXO_GRAPH_WATCH_H

#include "conduct/conduct.h"
#include "graph/place.h"
#include "graph/stall.h"

typedef struct exo_stall_watch {
    const exo_graph_spec *spec;
    const exo_cast *cast;     /* the actors; who has a reply has ended */
    exo_site *site;           /* NULL: the actors are in workers */
    exo_place *const *places; /* (count) of this process; NULL: in workers */
    uint32_t count;
    exo_time began;               /* of the run, on the real clock */
    exo_time next;                /* when to look again, likewise */
    exo_payload *records, *again; /* (count) the latest gathering, and one after it */
    bool *stuck;                  /* (count) */
    uint32_t *scratch;            /* (count) of a look at places, as counts (2 count) */
    uint64_t *counts;
    uint64_t mark; /* of the waits among which there was no stall; on the virtual clock */
    exo_stall stall;
    exo_time at;        /* of the stall, on the run's clock */
    _Atomic bool found; /* `stall` is there */
} exo_stall_watch;

/* The members above `next` are the caller's, borrowed. NOMEM. */
exo_status exo_stall_watch_open(exo_stall_watch *watch, exo_err *err);
/* On the virtual clock, before the actors run. What is found cancels them. */
exo_status exo_stall_watch_begin(exo_stall_watch *watch, exo_err *err);
/* On the real clock: looks, if it is time. Blocks for no longer than a few tenths of a second, and
 * only if a worker does not answer. */
void exo_stall_watch_look(exo_stall_watch *watch);
/* When no actor runs any more. */
void exo_stall_watch_close(exo_stall_watch *watch);

#endif
