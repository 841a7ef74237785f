/* The real clock, and the manual clock of tests. No state of its own. */
#include <exogym/clock.h>

#include <time.h>

static exo_time
real_now(const exo_clock *clock)
{
    (void)clock;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (exo_time)ts.tv_sec * EXO_SECOND + (exo_time)ts.tv_nsec;
}

static exo_time
manual_now(const exo_clock *clock)
{
    return ((const exo_clock_manual *)clock)->time;
}

const exo_clock *
exo_clock_real(void)
{
    static const exo_clock real = {.now = real_now};
    return &real;
}

void
exo_clock_manual_init(exo_clock_manual *clock, exo_time start)
{
    clock->base.now = manual_now;
    clock->time = start;
}

void
exo_clock_manual_advance(exo_clock_manual *clock, exo_time by)
{
    clock->time += by;
}

exo_time
exo_now(const exo_clock *clock)
{
    return clock->now(clock);
}

exo_time
exo_deadline(const exo_clock *clock, exo_time timeout)
{
    exo_time now = exo_now(clock);
    if (timeout <= 0)
        return now;
    return timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}
