/* Futures: completed exactly once, waited for by any number of threads.
 *
 * A future's life is one atomic word: QUEUED -> RUNNING -> DONE, or QUEUED -> DONE if its call is
 * cancelled or too late to begin. CLAIMED precedes DONE: only the thread that makes that step
 * writes the result. Waiting threads sleep on the same word, and a mark in it says so. A future
 * without waiters is therefore completed without a lock or a system call.
 *
 * A call's deadline needs no timer: a thread that waits for the future or reads its state completes
 * it if it is late. Read next: future.c. */
#ifndef EXO_ACTOR_FUTURE_H
#define EXO_ACTOR_FUTURE_H

#include <stdatomic.h>

#include <exogym/actor.h>

#include "base/identity.h"

/* A call on its way to a lane. It is a part of its future, so a call needs one allocation. The lane
 * that has the message guards it. */
typedef struct exo_message exo_message;
struct exo_message {
    exo_message *next;
    exo_future *future; /* held from the call's delivery on */
    const exo_method *method;
    exo_payload args;
    exo_identity *caller; /* held; NULL: this process. The future drops it */
    exo_time begun;       /* time at which the method began */
};

/* deadline: for the beginning of the call. The creator holds one reference. Errors: NOMEM. */
exo_status exo_future_new(exo_future **out, const exo_clock *clock, exo_time deadline,
                          exo_err *err);
/* The message inside the future, zeroed. It lives as long as the future. */
exo_message *exo_future_message(exo_future *future);
/* QUEUED -> RUNNING. False: the future is done already (cancelled or late), and the call must not
 * run. */
bool exo_future_begin(exo_future *future);
/* exo_future_begin at a time that the caller has read from the future's clock. */
bool exo_future_begin_at(exo_future *future, exo_time now);
/* Completes the future, unless it is complete already. The reply (may be NULL) is moved in, or
 * released. */
void exo_future_complete(exo_future *future, exo_status status, const char *reason,
                         exo_payload *reply);
/* Moves the reply out of a complete future, for its only user. Returns the future's status; err
 * gets the reason. */
exo_status exo_future_take(exo_future *future, exo_payload *reply, exo_err *err);
/* True if the future is complete, or late at `now`, so that exo_future_ready would complete it.
 * Completes nothing itself, so it may be called under a lock. */
bool exo_future_is_over(const exo_future *future, exo_time now);
/* True if the caller holds the only reference, and at most `hooks` hooks are set, the caller's own:
 * then no other user of the future is left. */
bool exo_future_is_forsaken(const exo_future *future, unsigned hooks);
bool exo_future_cancelled(const exo_future *future);
exo_time exo_future_deadline(const exo_future *future);

/* Hooks into the completion of a future, for calls from and to other processes. */
typedef struct exo_future_hook {
    /* Runs once, after the completion, on the thread that completed the future, under no lock. */
    void (*done)(void *context, uint64_t tag, exo_future *future);
    /* Replaces a waiting thread's sleep: does the work that completes the future, until
     * done(argument) is true or `deadline` has passed. False: the thread sleeps, because another
     * one does that work. May be NULL. */
    bool (*drive)(void *context, bool (*done)(void *argument), void *argument, exo_time deadline);
} exo_future_hook;

enum {
    /* at most, of one future: its call's, and one of a waiter */
    EXO_FUTURE_HOOKS = 2
};

/* Sets a hook. `done` is called at once if the future is complete already. Only the first hook's
 * `drive` is used. */
void exo_future_set_hook(exo_future *future, const exo_future_hook *hook, void *context,
                         uint64_t tag);

#endif
