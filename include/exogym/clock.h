/* The clock: where every part of the runtime that decides something takes its time from.
 *
 * Times are nanoseconds in an int64_t. A deadline is an absolute time on one clock; a timeout is a
 * duration.
 */
#ifndef EXOGYM_CLOCK_H
#define EXOGYM_CLOCK_H

#include <stdint.h>

#include <exogym/export.h>

EXO_DECLS_BEGIN

typedef int64_t exo_time; /* ns */

/* Durations: a microsecond, a millisecond, a second. */
#define EXO_US     INT64_C(1000)
#define EXO_MS     INT64_C(1000000)
#define EXO_SECOND INT64_C(1000000000)

/* A source of time. `now` may be called from any thread and never goes backwards. Embed it in a
 * struct of your own to make another clock. */
typedef struct exo_clock {
    exo_time (*now)(const struct exo_clock *clock);
} exo_clock;

/* The machine's monotonic clock. Static; never freed. */
EXO_API const exo_clock *exo_clock_real(void);

/* A clock that stands still until it is moved: for tests, and for whoever drives time by hand.
 * Owner: the caller. Reading and moving are safe from any thread. */
typedef struct exo_clock_manual {
    exo_clock base;            /* what functions that take a clock get */
    EXO_ATOMIC(exo_time) time; /* what it shows */
} exo_clock_manual;

/* Makes the clock show `start`. Before any other thread has it. */
EXO_API void exo_clock_manual_init(exo_clock_manual *clock, exo_time start);
/* Moves it on, by 0 or more. */
EXO_API void exo_clock_manual_advance(exo_clock_manual *clock, exo_time by);

/* The current time of `clock`. Any thread. */
EXO_API exo_time exo_now(const exo_clock *clock);

/* `timeout` from now on `clock`, saturating. A negative timeout counts as 0. */
EXO_API exo_time exo_deadline(const exo_clock *clock, exo_time timeout);

EXO_DECLS_END

#endif
