/* The pace of an actor: see pace.h. The thread's current pace is the only state. */
#include "base/pace.h"

#include <errno.h>
#include <time.h>

#include "base/parallel.h"

static _Thread_local exo_pace *current;

exo_status
exo_pace_init(exo_pace *pace, exo_sim *sim, exo_time origin, double speed, exo_err *err)
{
    *pace = (exo_pace){.clock = sim ? exo_sim_clock(sim) : exo_clock_real(),
                       .origin = origin,
                       .speed = speed > 0 ? speed : 1,
                       .declared = -1,
                       .waits_since = -1};
    if (sim && !(pace->lane = exo_sim_lane_new(sim, pace->speed)))
        return exo_fail(err, EXO_NOMEM, "no memory for a lane of the simulation");
    return EXO_OK;
}

void
exo_pace_release(exo_pace *pace)
{
    exo_track_release(&pace->track);
}

void
exo_pace_enter(exo_pace *pace, exo_time at)
{
    if (pace->lane)
        exo_sim_enter(pace->lane, at);
    current = pace;
}

void
exo_pace_leave(exo_pace *pace)
{
    exo_pace_phase(pace, NULL, -1);
    current = NULL;
    if (pace->lane)
        exo_sim_leave(pace->lane);
}

exo_pace *
exo_pace_current(void)
{
    return current;
}

exo_time
exo_pace_now(exo_pace *pace)
{
    return exo_now(pace->clock) - pace->origin;
}

static void
sleep_until(exo_time at)
{
    const struct timespec until = {.tv_sec = (time_t)(at / EXO_SECOND),
                                   .tv_nsec = (long)(at % EXO_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

/* The work of the phase so far, with the waits that stand for work. */
static exo_time
work_of(const exo_pace *pace)
{
    return pace->worked + exo_now(pace->clock) - pace->begun;
}

/* Lets `sum` of the phase's declared cost pass, less the part that has. */
static void
pay(exo_pace *pace, exo_time sum)
{
    if (pace->declared < 0)
        return;
    if (pace->lane) {
        exo_sim_spend(pace->lane, sum - pace->paid);
        pace->paid = sum;
        return;
    }
    exo_time cost = (exo_time)((double)sum / pace->speed);
    exo_time worked = work_of(pace);
    if (worked >= cost)
        return;
    /* the wait stands for work on another machine, so another node may use the slot */
    exo_compute_pause();
    sleep_until(exo_now(pace->clock) + cost - worked);
    exo_compute_resume();
    pace->late = work_of(pace) - cost;
}

/* Lets the rest of the phase's declared cost pass. Work beyond the cost is owed only as far as it is
 * free, or the last wait ended late: a late wait before it has shortened the next one. */
static void
pay_rest(exo_pace *pace)
{
    pay(pace, pace->declared);
    if (pace->lane || pace->declared < 0)
        return;
    const exo_time more = work_of(pace) - (exo_time)((double)pace->declared / pace->speed);
    pace->owed += pace->declared == 0 || more < pace->late ? more : pace->late;
}

void
exo_pace_phase(exo_pace *pace, const char *name, exo_time declared)
{
    if (pace->phase) {
        pay_rest(pace);
        exo_track_add(&pace->track, pace->phase, EXO_SPAN_COMPUTE, pace->begun - pace->origin,
                      exo_pace_now(pace));
    }
    pace->phase = name;
    pace->declared = declared;
    pace->paid = 0;
    pace->worked = 0;
    pace->late = 0;
    if (declared > 0) {
        pace->worked = pace->owed;
        pace->owed = 0;
    }
    if (pace->lane)
        exo_sim_measure(pace->lane, name && declared < 0);
    pace->begun = exo_now(pace->clock);
}

void
exo_pace_reach(exo_pace *pace, double part)
{
    if (pace->phase && pace->declared >= 0)
        pay(pace, (exo_time)((double)pace->declared * part));
}

void
exo_pace_wait_begin(exo_pace *pace, const char *what, exo_span_kind kind)
{
    if (!pace)
        return;
    if (pace->lane)
        exo_sim_measure(pace->lane, false);
    pace->wait = what;
    pace->wait_kind = kind;
    pace->wait_begun = exo_now(pace->clock);
    pace->waits_since = pace->wait_begun;
    if (pace->phase) {
        pace->worked += pace->wait_begun - pace->begun;
        exo_track_add(&pace->track, pace->phase, EXO_SPAN_COMPUTE, pace->begun - pace->origin,
                      pace->wait_begun - pace->origin);
    }
}

exo_time
exo_pace_wait_end(exo_pace *pace)
{
    if (!pace)
        return 0;
    exo_time now = exo_now(pace->clock);
    pace->waits_since = -1;
    exo_track_add(&pace->track, pace->wait, pace->wait_kind, pace->wait_begun - pace->origin,
                  now - pace->origin);
    pace->begun = now;
    if (pace->lane)
        exo_sim_measure(pace->lane, pace->phase && pace->declared < 0);
    return now - pace->wait_begun;
}
