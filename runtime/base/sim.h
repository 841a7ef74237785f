/* Virtual time: lanes of different hosts, each with its own time, that run one after another in the
 * order of these times.
 *
 * A lane is a thread's part in a simulation. One lane runs at a time: the one that holds the baton.
 * Its computation is real; its cost in virtual time is the time that it takes here (measured), or a
 * given time (exo_sim_spend). A lane that must wait for another one gives the baton away, and the
 * lane with the smallest time gets it. So each lane observes what it would observe if all lanes ran
 * side by side on their own hosts. With declared costs a run is the same every time, to the bit.
 *
 * The order of the lanes breaks ties; with a seed, random draws do, and each seed is another
 * interleaving, for tests.
 *
 * The holder of the baton may touch the lanes' shared state without locks, after exo_sim_sync, so
 * that no lane with an earlier time has still to run. A virtual wait has a deadline like any other;
 * if no lane has work before it, time jumps there.
 *
 * Threads: a lane belongs to the thread that entered it, until it leaves. The other functions state
 * their callers. Read next: sim.c. */
#ifndef EXO_BASE_SIM_H
#define EXO_BASE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/clock.h>
#include <exogym/status.h>

typedef struct exo_sim exo_sim;
typedef struct exo_sim_lane exo_sim_lane;

/* Makes a simulation at time 0. tie_seed 0: the lane that was made first wins ties. Errors:
 * NOMEM. */
exo_status exo_sim_new(exo_sim **out, uint64_t tie_seed, exo_err *err);
/* Restore a saved run's times: of a simulation without lanes, and of a lane that was never
 * entered. */
void exo_sim_restore(exo_sim *sim, exo_time now);
void exo_sim_lane_restore(exo_sim_lane *lane, exo_time time);
/* Frees the simulation and its lanes. No thread may be in a lane. */
void exo_sim_free(exo_sim **sim);
/* In a lane, the clock has the lane's time, its computation included; elsewhere, the time of the
 * lane or event that ran last. Any thread. */
const exo_clock *exo_sim_clock(exo_sim *sim);
/* The latest time at which a lane has left: what a simulation has taken that no lane is in. Events
 * that nobody has waited for do not count. Any thread. */
exo_time exo_sim_now(exo_sim *sim);

/* Makes a lane at the simulation's time; `speed` divides its costs. NULL: no memory. Any thread. */
exo_sim_lane *exo_sim_lane_new(exo_sim *sim, double speed);

/* Keeps the baton back until `lanes` more lanes have entered. A caller that starts several threads
 * calls this first, so that none of them runs ahead; so does a thread that will be back in its lane
 * soon, before it leaves. Any thread. */
void exo_sim_expect(exo_sim *sim, unsigned lanes);
/* Stops waiting for expected lanes: one of them will not come. */
void exo_sim_expect_no_more(exo_sim *sim);

/* With `hold`, events after exo_sim_now wait while no lane is in, because no time passes between two
 * parts of a run. Without, as at first, they are called. Any thread outside of lanes. */
void exo_sim_hold(exo_sim *sim, bool hold);

/* Enter makes the calling thread the lane's; it has the baton on return. An idle lane begins at
 * `at` if that is later than its own time. */
void exo_sim_enter(exo_sim_lane *lane, exo_time at);
void exo_sim_leave(exo_sim_lane *lane);
/* The lane that the calling thread is in, or NULL. */
exo_sim_lane *exo_sim_current(void);

/* The lane's time. Callers: the thread in the lane, or any thread while none is in it. */
exo_time exo_sim_time(exo_sim_lane *lane);
/* In the lane: whether the time that it takes here counts from now on. At first it does not. */
void exo_sim_measure(exo_sim_lane *lane, bool measure);
/* Adds `cost`, the time of a computation on a host of speed 1. */
void exo_sim_spend(exo_sim_lane *lane, exo_time cost);
/* Lets all lanes with an earlier time run. */
void exo_sim_sync(exo_sim_lane *lane);
/* Gives the baton away. Returns true when the lane is woken, false at time `until`. */
bool exo_sim_wait(exo_sim_lane *lane, exo_time until);

/* Wakes a waiting lane: it continues at `at`, or at its own time if that is later; if it is woken
 * twice, at the earlier time. A lane that does not wait is not affected, with one exception: a
 * thread outside of the simulation cannot know whether the lane is about to wait, so its wake ends
 * the lane's next wait at once. Waiting code must therefore check its condition again. Callers: the
 * holder of the baton, callbacks of exo_sim_at, and threads outside. */
void exo_sim_wake(exo_sim_lane *lane, exo_time at);
/* Calls `callback` at time `at` (now, if that has passed), with the baton and without any lock,
 * before lanes of the same time run. The callback must not wait. Callers: those of exo_sim_wake.
 * Errors: NOMEM. */
exo_status exo_sim_at(exo_sim *sim, exo_time at, void (*callback)(void *context, exo_time at),
                      void *context, exo_err *err);
/* The time of the next event or the next turn of a lane, deadlines of waits included; INT64_MAX:
 * never. For callbacks of exo_sim_at. */
exo_time exo_sim_next(exo_sim *sim);

#endif
