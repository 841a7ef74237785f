/* Whether this program has sanitizers. They see a line's faults when it runs once; what a test
 * repeats for its numbers, such as the slope at each of a thousand parameters, need not be repeated
 * as often for them. The dev build has all of it. */
#ifndef EXO_TEST_SANITIZED_H
#define EXO_TEST_SANITIZED_H

#include <stddef.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum {
    SANITIZED = 1
};
#else
enum {
    SANITIZED = 0
};
#endif

/* The step of a loop of which `part` of the turns are enough for the sanitizers. */
static inline size_t
one_of(size_t part)
{
    return SANITIZED ? part : 1;
}

#endif
