/* Futures: completed exactly once, waited for by any number of threads.
 *
 * A future's life is one atomic word: QUEUED -> RUNNING -> DONE, or QUEUED -> DONE when its call is cancelled or too late to begin.
 * Whoever makes the step to DONE writes the result, under the future's lock, before it wakes the waiters.
 *
 * A call's deadline needs no timer: whoever waits for the future or looks at it completes it when it is too late. */
#ifndef EXO_ACTOR_FUTURE_H
#define EXO_ACTOR_FUTURE_H

#include <stdatomic.h>

#include <exogym/actor.h>

typedef enum exo_future_state {
    EXO_FUTURE_QUEUED,
    EXO_FUTURE_RUNNING,
    EXO_FUTURE_DONE,
} exo_future_state;

/* deadline: of the beginning of the call. The creator holds one reference. */
exo_status exo_future_new(exo_future **out, const exo_clock *clock, exo_time deadline, exo_err *err);
/* QUEUED -> RUNNING; false: it is done already (cancelled, late), and the call must not run. */
bool exo_future_begin(exo_future *future);
/* Completes it, unless it is complete. The reply (may be NULL) is moved in, or released. */
void exo_future_complete(exo_future *future, exo_status status, const char *reason, exo_payload *reply);
bool exo_future_cancelled(const exo_future *future);
exo_time exo_future_deadline(const exo_future *future);

#endif
