/* The time of an actor of a run, on either clock: its computation, by phases, and its waits.
 *
 * On the virtual clock a phase costs its declared time, or the time that it takes on this machine.
 * On the real clock the actor waits until a declared cost has passed, so that a fast machine
 * simulates a slow one. The work of a phase that costs nothing shortens the next such wait, and so
 * does a wait that ended late. The speed of the actor's host divides both costs. Waits are recorded
 * apart from work, so a track shows where the time went.
 *
 * Threads: one at a time, the one that has entered it. Read next: sim.h, spans.h. */
#ifndef EXO_BASE_PACE_H
#define EXO_BASE_PACE_H

#include <stdbool.h>

#include "base/sim.h"
#include "base/spans.h"

typedef struct exo_pace {
    exo_sim_lane *lane; /* NULL: the real clock */
    const exo_clock *clock;
    exo_time origin; /* beginning of the run, on the clock */
    double speed;
    exo_track track;
    const char *phase; /* NULL: none */
    exo_time declared; /* cost of the phase; -1: measured */
    exo_time paid;     /* the part of it that has passed, on the virtual clock */
    exo_time begun;    /* end of the phase's last wait, or its beginning */
    exo_time worked;   /* work of the phase before that */
    /* on the real clock: the time by which the phase's last wait for its cost ended late, because
     * others had the core */
    exo_time late;
    /* on the real clock: work of phases with the declared cost 0, and late ends of waits. The next
     * declared phase is as much shorter */
    exo_time owed;
    const char *wait;
    exo_span_kind wait_kind;
    exo_time wait_begun;
    /* beginning of the current wait, on the clock; -1: none. Any thread may read it */
    _Atomic exo_time waits_since;
} exo_pace;

/* sim: NULL for the real clock. Errors: NOMEM. */
exo_status exo_pace_init(exo_pace *pace, exo_sim *sim, exo_time origin, double speed, exo_err *err);
void exo_pace_release(exo_pace *pace);

/* Enter makes the calling thread work for this actor; on the virtual clock it waits for its turn,
 * not before `at`. Leave ends the phase. */
void exo_pace_enter(exo_pace *pace, exo_time at);
void exo_pace_leave(exo_pace *pace);
/* The pace that the calling thread has entered, or NULL. */
exo_pace *exo_pace_current(void);

/* The time since the run's origin. */
exo_time exo_pace_now(exo_pace *pace);
/* Ends the current phase, with its declared cost, and begins `name` (a literal; NULL: no work).
 * declared: its cost; -1: measured. */
void exo_pace_phase(exo_pace *pace, const char *name, exo_time declared);
/* Lets the declared cost pass up to `part` of the phase (0 to 1, never less than before). */
void exo_pace_reach(exo_pace *pace, double part);
/* Enclose a wait, which is no work of the phase. pace: NULL does nothing. */
void exo_pace_wait_begin(exo_pace *pace, const char *what, exo_span_kind kind);
exo_time exo_pace_wait_end(exo_pace *pace); /* returns its length */

#endif
