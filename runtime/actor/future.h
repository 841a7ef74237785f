/* Futures: completed exactly once, waited for by any number of threads.
 *
 * A future's life is one atomic word: QUEUED -> RUNNING -> DONE, or QUEUED -> DONE when its call is
 * cancelled or too late to begin. Before DONE it is CLAIMED: whoever makes that step, and nobody
 * else, writes the result. The word is also what a waiting thread sleeps on, and has a mark for it,
 * so that a future that nobody waits for is completed without a lock or a call of the system.
 *
 * A call's deadline needs no timer: whoever waits for the future or looks at it completes it when
 * it is too late. */
#ifndef EXO_ACTOR_FUTURE_H
#define EXO_ACTOR_FUTURE_H

#include <stdatomic.h>

#include <exogym/actor.h>

#include "base/identity.h"

/* A call on its way to a lane. It is a part of its future, so that a call takes memory once.
 * Guarded as the lane says that has it. */
typedef struct exo_message exo_message;
struct exo_message {
    exo_message *next;
    exo_future *future; /* held, once the message is under way */
    const exo_method *method;
    exo_payload args;
    exo_identity *caller; /* held; NULL: this process. Of the future, which drops it */
    exo_time begun;       /* when it runs */
};

/* deadline: of the beginning of the call. The creator holds one reference. */
exo_status exo_future_new(exo_future **out, const exo_clock *clock, exo_time deadline,
                          exo_err *err);
/* The message inside, blank. It lives as long as the future. */
exo_message *exo_future_message(exo_future *future);
/* QUEUED -> RUNNING; false: it is done already (cancelled, late), and the call must not run. */
bool exo_future_begin(exo_future *future);
/* The same at a time that the caller has read from the future's clock. */
bool exo_future_begin_at(exo_future *future, exo_time now);
/* Completes it, unless it is complete. The reply (may be NULL) is moved in, or released. */
void exo_future_complete(exo_future *future, exo_status status, const char *reason,
                         exo_payload *reply);
/* Moves the reply of a complete future out, for its only user. Gives its status and reason. */
exo_status exo_future_take(exo_future *future, exo_payload *reply, exo_err *err);
/* Is it complete, or would exo_future_ready complete it at this time because it is late? Completes
 * nothing: for callers that hold a lock. */
bool exo_future_is_over(const exo_future *future, exo_time now);
/* Whether nobody but the asker holds it, and nothing is hooked to it but the asker's own `hooks`:
 * then nobody will ever look at it. */
bool exo_future_is_forsaken(const exo_future *future, unsigned hooks);
bool exo_future_cancelled(const exo_future *future);
exo_time exo_future_deadline(const exo_future *future);

/* What else happens with a future whose call comes from, or goes to, another process. */
typedef struct exo_future_hook {
    /* Once, after it was completed, by the thread that did so, under no lock. */
    void (*done)(void *context, uint64_t tag, exo_future *future);
    /* Does what has to be done until done(argument), or `deadline`, instead of sleeping; false:
     * sleep, another thread does it. May be NULL. */
    bool (*drive)(void *context, bool (*done)(void *argument), void *argument, exo_time deadline);
} exo_future_hook;

enum {
    EXO_FUTURE_HOOKS = 2 /* of one future, at most: its call's, and one of whoever waits for it */
};

/* If the future is complete already, `done` is called at once. Only the first hook's `drive`
 * counts. */
void exo_future_set_hook(exo_future *future, const exo_future_hook *hook, void *context,
                         uint64_t tag);

#endif
