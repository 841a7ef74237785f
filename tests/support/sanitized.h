/* Is this program built with sanitizers? A sanitizer finds a line's faults when the line runs once.
 * Repetitions that serve numeric accuracy, such as the slope at each of a thousand parameters, can
 * therefore be reduced under sanitizers. The dev build runs all of them. */
#ifndef EXO_TEST_SANITIZED_H
#define EXO_TEST_SANITIZED_H

#include <stddef.h>

#if defined __has_feature /* clang's names for gcc's macros */
#if __has_feature(address_sanitizer) && !defined __SANITIZE_ADDRESS__
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined __SANITIZE_THREAD__
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum {
    SANITIZED = 1
};
#else
enum {
    SANITIZED = 0
};
#endif

/* The stride of a loop of which one turn in `part` suffices under sanitizers. */
static inline size_t
one_of(size_t part)
{
    return SANITIZED ? part : 1;
}

#endif
