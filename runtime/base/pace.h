/* How time passes for an actor of a run, on either clock: what it computes, by phases, and what it
 * waits for.
 *
 * On the virtual clock work costs what is declared for its phase, or what it takes here; on the
 * real clock a declared cost is waited out, so that a fast machine passes for a slow one. Both are
 * divided by the speed of the actor's host. Waits are told from work, so that a track says where
 * the time went.
 *
 * Threads: one at a time, the one that has entered it. */
#ifndef EXO_BASE_PACE_H
#define EXO_BASE_PACE_H

#include <stdbool.h>

#include "base/sim.h"
#include "base/spans.h"

typedef struct exo_pace {
    exo_sim_lane *lane; /* NULL: the real clock */
    const exo_clock *clock;
    exo_time origin; /* of the run, on the clock */
    double speed;
    exo_track track;
    const char *phase; /* NULL: none */
    exo_time declared; /* of the phase; -1: measured */
    exo_time paid;     /* of it                      */
    exo_time begun;    /* of the phase's part since the last wait */
    exo_time worked;   /* in the phase, before that               */
    const char *wait;
    exo_span_kind wait_kind;
    exo_time wait_begun;
    _Atomic exo_time waits_since; /* on the clock; -1: it does not wait. Any thread may read it */
} exo_pace;

/* `sim` NULL: the real clock. NOMEM. */
exo_status exo_pace_init(exo_pace *pace, exo_sim *sim, exo_time origin, double speed, exo_err *err);
void exo_pace_release(exo_pace *pace);

/* The calling thread works for this actor from now on; on the virtual clock it waits for its turn.
 * Leaving ends the phase. */
void exo_pace_enter(exo_pace *pace);
void exo_pace_leave(exo_pace *pace);
/* That of the calling thread, or NULL. */
exo_pace *exo_pace_current(void);

/* Since the run's origin. */
exo_time exo_pace_now(exo_pace *pace);
/* Ends the phase before, with its declared cost; `name` (a literal) NULL: no work. declared -1:
 * measured. */
void exo_pace_phase(exo_pace *pace, const char *name, exo_time declared);
/* So much of the phase is done (0 to 1, never less than before): its declared cost has passed to
 * this part when this returns. */
void exo_pace_reach(exo_pace *pace, double part);
/* Around waits: not the phase's work. Nothing happens where `pace` is NULL. */
void exo_pace_wait_begin(exo_pace *pace, const char *what, exo_span_kind kind);
exo_time exo_pace_wait_end(exo_pace *pace); /* how long it was */

#endif
