/* Threads of the library: how they start, and what the system says when they cannot.
 *
 * A thread of the library computes in the default floating-point environment, whatever the caller's:
 * rounding to nearest, denormal numbers kept, no traps. Otherwise results would depend on the thread
 * of the program that happened to need it first. It has a stack of at least EXO_THREAD_STACK, also
 * where `ulimit -s` is less, and the signal mask of its creator. Any thread. */
#ifndef EXO_BASE_THREAD_H
#define EXO_BASE_THREAD_H

#include <pthread.h>

#include <exogym/status.h>

enum {
    EXO_THREAD_STACK = 1 << 20
};

/* Starts a thread, which the caller joins or detaches. `purpose` completes "no thread can be started
 * for ...". FAILED: the text names the limits that are in force. */
exo_status exo_thread_start(pthread_t *out, void *(*run)(void *argument), void *argument,
                            const char *purpose, exo_err *err);

/* Makes sure that `threads` threads can be started and `descriptors` opened right now, for libraries
 * that end the process if they cannot. Starts and ends as many. FAILED: as exo_thread_start, or the
 * system refuses descriptors. FULL: too few are left. */
exo_status exo_thread_try(unsigned threads, unsigned descriptors, const char *purpose,
                          exo_err *err);

#endif
