/* The change of a running graph to another one, in two steps: first all actors make the inputs that
 * they lack, then all make their outputs and retire the edges that are gone. A change that has begun
 * cannot be taken back, because a receiver waits for the end of each input that it has made. So it is
 * completed, however long an actor takes, or the run ends:
 *
 *            begin                  all have answered            all have answered
 *     (none) ------> INPUTS asked ---------------------> OUTPUTS asked -----------> (none)
 *        |               | an actor fails for 60 s            |
 *        |               +------------------------------------+---> an error that ends the run
 *        +-- on the virtual clock both steps are one event, between two steps of the actors
 *
 * Owner: the conductor's thread, except for what the event writes. Read next: changing.c, place.h. */
#ifndef EXO_GRAPH_CHANGING_H
#define EXO_GRAPH_CHANGING_H

#include "conduct/conduct.h"
#include "graph/host.h"
#include "graph/site.h"

typedef struct exo_changing {
    /* Set by the owner, before the first change. */
    const exo_cast *cast;
    exo_site *site;              /* a whole site; NULL: the actors are in workers */
    exo_place **places;          /* (cast->count) of a whole site */
    const exo_graph_spec *graph; /* the present graph, replaced when a change is made */
    /* Set by the change. */
    char **texts; /* (count) the graphs of all changes, for workers */
    uint64_t count;
    const exo_graph_spec *next; /* of the change in progress; NULL: none */
    exo_change_step step;
    exo_cast_round round; /* its futures: of actors that have not answered to `step` */
    bool *again;          /* (cast->count) actors that failed and are asked again */
    bool *missed;         /* (cast->count) actors that were dead at a step */
    exo_time due;         /* of the next attempt, on the real clock */
    exo_time failing;     /* since when an actor has failed again and again at `step`; 0: none */
    bool hopeless;        /* and it has done so for too long */
    uint32_t culprit;     /* that actor, and its reason */
    exo_status status;
    exo_err reason;
    exo_err event_err; /* virtual clock: of the event, published by event_done */
    _Atomic bool event_done;
} exo_changing;

/* Begins a change to `next`, which passed exo_graph_check_change against `graph` and outlives the
 * run; text: the same graph for workers. After an error nothing has changed. Errors: NOMEM, FULL (too
 * many changes), those of exo_site_change and exo_sim_at. */
exo_status exo_changing_begin(exo_changing *c, const exo_graph_spec *next, const char *text,
                              exo_err *err);
bool exo_changing_pends(const exo_changing *c);
/* Goes on with the change; blocks for 50 ms at most. Returns true when it is over: *status is OK, or
 * the error of *culprit, after which the run must end. A dead actor does without: its next life
 * begins with the change; one without another life has to be missed (exo_lives_miss). */
bool exo_changing_go_on(exo_changing *c, exo_status *status, uint32_t *culprit, exo_err *err);
/* The first actor that has not answered. */
uint32_t exo_changing_late(const exo_changing *c);
void exo_changing_close(exo_changing *c);

#endif
