/* Clocks: every part of the runtime that decides by time reads it from an exo_clock.
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

/* A source of time. Any thread may call `now`, which never goes backwards. A clock of your own is a
 * struct that begins with an exo_clock. */
typedef struct exo_clock {
    exo_time (*now)(const struct exo_clock *clock);
} exo_clock;

/* The machine's monotonic clock. Static; never freed. */
EXO_API const exo_clock *exo_clock_real(void);

/* A clock that stands still until the program moves it, for tests and simulations. Owner: the
 * caller. Any thread may read and move it. */
typedef struct exo_clock_manual {
    exo_clock base;            /* for functions that take an exo_clock */
    EXO_ATOMIC(exo_time) time; /* the current time of this clock */
} exo_clock_manual;

/* Sets the clock to `start`, before other threads have the clock. */
EXO_API void exo_clock_manual_init(exo_clock_manual *clock, exo_time start);
/* Moves the clock forward by 0 or more. */
EXO_API void exo_clock_manual_advance(exo_clock_manual *clock, exo_time by);

/* The current time of `clock`. Any thread. */
EXO_API exo_time exo_now(const exo_clock *clock);

/* The deadline that is `timeout` from now on `clock`, saturating at the largest time. A negative
 * timeout counts as 0. */
EXO_API exo_time exo_deadline(const exo_clock *clock, exo_time timeout);

EXO_DECLS_END

#endif
