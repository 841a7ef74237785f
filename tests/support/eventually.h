/* Waits for other threads, in tests with Criterion: up to a deadline, and no longer than
 * necessary. */
#ifndef EXO_TEST_EVENTUALLY_H
#define EXO_TEST_EVENTUALLY_H

#include <unistd.h>

#include <criterion/criterion.h>

#include <exogym/clock.h>

/* A deadline on the real clock. */
static inline exo_time
in_ms(int64_t ms)
{
    return exo_deadline(exo_clock_real(), ms * EXO_MS);
}

/* Waits until the condition holds. After a minute the test fails. */
#define EVENTUALLY(condition)                                                                      \
    do {                                                                                           \
        exo_time until = in_ms(60000);                                                             \
        bool came = (condition);                                                                   \
        while (!came && exo_now(exo_clock_real()) < until) {                                       \
            usleep(200);                                                                           \
            came = (condition);                                                                    \
        }                                                                                          \
        cr_assert(came, "it did not come to be: %s", #condition);                                  \
    } while (0)

#endif
