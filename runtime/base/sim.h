/* Virtual time: lanes of different hosts, each with a time of its own, that run one after another
 * in the order of these times.
 *
 * A lane is a thread's part in a simulation. One lane runs at a time: it holds the baton. It really
 * computes; what that costs in virtual time is what it takes here (measured), or what it is told
 * (exo_sim_spend). When it has to wait for another lane it gives the baton away, and whoever has
 * the smallest time gets it. So what a lane sees is what it would see if all of them ran side by
 * side on hosts of their own, and with declared costs a run is the same to the bit every time.
 *
 * Ties are broken by the lanes' order, or, with a seed, by lot: another seed is another
 * interleaving, for tests.
 *
 * What lanes share may be touched by whoever holds the baton, without locks: exo_sim_sync first, so
 * that nobody with an earlier time has still to run. A virtual wait has a deadline like any other;
 * if nobody has anything to do before it, time jumps there.
 *
 * Threads: a lane belongs to the thread that entered it, until it leaves. Everything else says who
 * may call it. */
#ifndef EXO_BASE_SIM_H
#define EXO_BASE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

typedef struct exo_sim exo_sim;
typedef struct exo_sim_lane exo_sim_lane;

/* A simulation at time 0. tie_seed 0: ties go to the lane that was made first. */
exo_status exo_sim_new(exo_sim **out, uint64_t tie_seed, exo_err *err);
/* The simulation, which has no lanes yet, and a lane that was never entered go on at these times:
 * as those of a run that was saved. */
void exo_sim_restore(exo_sim *sim, exo_time now);
void exo_sim_lane_restore(exo_sim_lane *lane, exo_time time);
/* When no thread is in any of its lanes; frees the lanes too. */
void exo_sim_free(exo_sim **sim);
/* In a lane: its time, what it has computed until now included. Elsewhere: the time of whoever ran
 * last. Any thread. */
const exo_clock *exo_sim_clock(exo_sim *sim);
exo_time exo_sim_now(exo_sim *sim);

/* A lane, at the simulation's time; `speed` divides its costs. NULL: no memory. Any thread. */
exo_sim_lane *exo_sim_lane_new(exo_sim *sim, double speed);

/* Nobody gets the baton until `lanes` more lanes have entered: who tells several threads to begin
 * calls this first, so that none of them runs ahead. Any thread outside of lanes. */
void exo_sim_expect(exo_sim *sim, unsigned lanes);
/* Waits for nobody any more: a lane that was expected will not come. */
void exo_sim_expect_no_more(exo_sim *sim);

/* The lane has its turn from now on, for a thread that is about to enter it: who makes such a
 * thread calls this first, and cancels it if there is none after all. Whoever holds the baton. */
void exo_sim_begin(exo_sim_lane *lane);
void exo_sim_begin_cancel(exo_sim_lane *lane);

/* The calling thread becomes the lane, and has the baton when this returns. A lane that was idle
 * begins at `at` if that is later than its own time. */
void exo_sim_enter(exo_sim_lane *lane, exo_time at);
void exo_sim_leave(exo_sim_lane *lane);
/* The lane that the calling thread is in, or NULL. */
exo_sim_lane *exo_sim_current(void);

/* The lane's time: in the lane, or while nobody is in it. */
exo_time exo_sim_time(exo_sim_lane *lane);
/* In the lane: does what it takes here count (from now on)? It does not at first. */
void exo_sim_measure(exo_sim_lane *lane, bool measure);
/* Computes for `cost` on a host of speed 1. */
void exo_sim_spend(exo_sim_lane *lane, exo_time cost);
/* Lets everyone run whose time is earlier. */
void exo_sim_sync(exo_sim_lane *lane);
/* Gives the baton away until the lane is woken (true), or its time is `until` (false). */
bool exo_sim_wait(exo_sim_lane *lane, exo_time until);

/* Wakes a lane that waits: it goes on at `at`, or at its own time if that is later; woken twice, at
 * the earlier one. A lane that does not wait is left alone, but a thread outside does not know
 * whether it is just about to: then its next wait ends at once. So whoever waits looks again at
 * what it waits for. Whoever holds the baton, callbacks of exo_sim_at, and threads outside. */
void exo_sim_wake(exo_sim_lane *lane, exo_time at);
/* Calls `callback` at time `at` (or now, if that is past), with the baton and without any lock,
 * before lanes of the same time run. It must not wait. Who may: as exo_sim_wake. */
exo_status exo_sim_at(exo_sim *sim, exo_time at, void (*callback)(void *context, exo_time at),
                      void *context, exo_err *err);
/* When the next event is, or the next turn of a lane, deadlines of waits included; INT64_MAX:
 * never. In a callback of exo_sim_at. */
exo_time exo_sim_next(exo_sim *sim);

#endif
