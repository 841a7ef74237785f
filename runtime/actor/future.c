/* Futures: see future.h. A waiter is a word on the waiting thread's stack, linked into each future that it waits for; it is
 * unlinked, under the futures' locks, before the thread goes on. */
#include "future.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <exogym/memory.h>

enum {
    SLICE_MS = 2,
    SMALL = 16
};

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool signalled; /* guarded by lock */
};

/* A waiter's place in one future's list. Guarded by the future's lock. */
struct seat {
    struct waiter *waiter;
    struct seat *next, **at;
};

struct exo_future {
    atomic_uint references;
    atomic_int state;
    atomic_bool cancelled;
    const exo_clock *clock;
    exo_time deadline;
    pthread_mutex_t lock;
    struct seat *seats; /* guarded by lock */
    exo_status status;  /* written once, before state is DONE */
    char *reason;       /* likewise; may be NULL */
    exo_payload reply;  /* likewise */
};

exo_status
exo_future_new(exo_future **out, const exo_clock *clock, exo_time deadline, exo_err *err)
{
    exo_future *f = exo_calloc(1, sizeof *f);
    if (!f)
        return exo_fail(err, EXO_NOMEM, "no memory for a future");
    f->references = 1;
    f->clock = clock;
    f->deadline = deadline;
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return EXO_OK;
}

exo_future *
exo_future_hold(exo_future *future)
{
    atomic_fetch_add(&future->references, 1);
    return future;
}

void
exo_future_drop(exo_future **future)
{
    exo_future *f = *future;
    *future = NULL;
    if (!f || atomic_fetch_sub(&f->references, 1) > 1)
        return;
    exo_payload_release(&f->reply);
    exo_free(f->reason);
    pthread_mutex_destroy(&f->lock);
    exo_free(f);
}

bool
exo_future_begin(exo_future *future)
{
    int queued = EXO_FUTURE_QUEUED;
    if (exo_now(future->clock) >= future->deadline)
        exo_future_complete(future, EXO_TIMEOUT, "the call had not begun at its deadline", NULL);
    return atomic_compare_exchange_strong(&future->state, &queued, EXO_FUTURE_RUNNING);
}

void
exo_future_complete(exo_future *future, exo_status status, const char *reason, exo_payload *reply)
{
    exo_future *f = future;
    pthread_mutex_lock(&f->lock);
    bool first = atomic_load(&f->state) != EXO_FUTURE_DONE;
    if (first) {
        f->status = status;
        f->reason = reason && *reason ? exo_strdup(reason) : NULL; /* without memory the code must do */
        if (reply) {
            f->reply = *reply;
            *reply = (exo_payload){0};
        }
        atomic_store(&f->state, EXO_FUTURE_DONE);
        for (struct seat *s = f->seats; s; s = s->next) {
            pthread_mutex_lock(&s->waiter->lock);
            s->waiter->signalled = true;
            pthread_cond_signal(&s->waiter->wake);
            pthread_mutex_unlock(&s->waiter->lock);
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (reply)
        exo_payload_release(reply);
}

/* Completes a future whose call is too late to begin. A call that begins at this very moment wins. */
static bool
is_done(exo_future *f)
{
    int state = atomic_load(&f->state);
    if (state == EXO_FUTURE_QUEUED && exo_now(f->clock) >= f->deadline) {
        /* To RUNNING first, so that no lane begins it between the look and the completion. */
        if (atomic_compare_exchange_strong(&f->state, &state, EXO_FUTURE_RUNNING))
            exo_future_complete(f, EXO_TIMEOUT, "the call had not begun at its deadline", NULL);
        state = atomic_load(&f->state);
    }
    return state == EXO_FUTURE_DONE;
}

bool
exo_future_ready(const exo_future *future)
{
    return is_done((exo_future *)(uintptr_t)future);
}

void
exo_cancel(exo_future *future)
{
    atomic_store(&future->cancelled, true);
    exo_future_complete(future, EXO_CANCELLED, "the call was cancelled", NULL);
}

bool
exo_future_cancelled(const exo_future *future)
{
    return atomic_load(&future->cancelled);
}

/* --- Waiting ---------------------------------------------------------------------------------------------------------------- */

static void
take_seat(exo_future *f, struct seat *seat, struct waiter *waiter)
{
    seat->waiter = waiter;
    pthread_mutex_lock(&f->lock);
    seat->next = f->seats;
    seat->at = &f->seats;
    if (f->seats)
        f->seats->at = &seat->next;
    f->seats = seat;
    pthread_mutex_unlock(&f->lock);
}

static void
leave_seat(exo_future *f, struct seat *seat)
{
    pthread_mutex_lock(&f->lock);
    *seat->at = seat->next;
    if (seat->next)
        seat->next->at = seat->at;
    pthread_mutex_unlock(&f->lock);
}

/* Sleeps until signalled or `left` ns. A clock that is not the real one is looked at every few milliseconds. */
static void
sleep_for(struct waiter *w, const exo_clock *clock, exo_time left)
{
    const exo_time longest = 24 * 3600 * EXO_SECOND;
    if (clock != exo_clock_real() && left > SLICE_MS * EXO_MS)
        left = SLICE_MS * EXO_MS;
    left = left > longest ? longest : left;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + left;
    until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND), .tv_nsec = (long)(at % EXO_SECOND)};
    pthread_mutex_lock(&w->lock);
    int over = 0;
    while (!w->signalled && over == 0)
        over = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    w->signalled = false;
    pthread_mutex_unlock(&w->lock);
}

static void
waiter_init(struct waiter *w)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    w->signalled = false;
}

static void
waiter_release(struct waiter *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
}

/* Waits until one of the futures is done or `deadline`; gives its index, or count. */
static size_t
wait_for_one(exo_future *const *futures, size_t count, struct seat *seats, exo_time deadline)
{
    struct waiter waiter;
    size_t done = count;
    const exo_clock *clock = futures[0]->clock;
    waiter_init(&waiter);
    for (size_t i = 0; i < count; i++)
        take_seat(futures[i], &seats[i], &waiter);
    for (;;) {
        exo_time until = deadline;
        for (size_t i = 0; i < count && done == count; i++) {
            if (is_done(futures[i]))
                done = i;
            else if (atomic_load(&futures[i]->state) == EXO_FUTURE_QUEUED && futures[i]->deadline < until)
                until = futures[i]->deadline;
        }
        exo_time now = exo_now(clock);
        if (done < count || now >= deadline)
            break;
        sleep_for(&waiter, clock, until > now ? until - now : 0);
    }
    for (size_t i = 0; i < count; i++)
        leave_seat(futures[i], &seats[i]);
    waiter_release(&waiter);
    return done;
}

exo_status
exo_wait(exo_future *future, exo_time deadline, const exo_payload **reply, exo_err *err)
{
    struct seat seat;
    if (!is_done(future) && wait_for_one(&future, 1, &seat, deadline) > 0)
        return exo_fail(err, EXO_TIMEOUT, "the call was not complete at the deadline");
    if (future->status != EXO_OK)
        return exo_fail(err, future->status, "%s", future->reason ? future->reason : exo_status_text(future->status));
    if (reply)
        *reply = &future->reply;
    return EXO_OK;
}

exo_status
exo_wait_any(exo_future *const *futures, size_t count, exo_time deadline, size_t *index, exo_err *err)
{
    struct seat few[SMALL], *seats = few;
    if (count == 0)
        return exo_fail(err, EXO_INVAL, "there is no future to wait for");
    for (size_t i = 0; i < count; i++) {
        if (is_done(futures[i])) {
            *index = i;
            return EXO_OK;
        }
    }
    if (count > SMALL && !(seats = exo_calloc(count, sizeof *seats)))
        return exo_fail(err, EXO_NOMEM, "no memory to wait for %zu futures", count);
    *index = wait_for_one(futures, count, seats, deadline);
    if (seats != few)
        exo_free(seats);
    return *index < count ? EXO_OK
                          : exo_fail(err, EXO_TIMEOUT, "none of %zu calls was complete at the deadline", count);
}

exo_status
exo_wait_all(exo_future *const *futures, size_t count, exo_time deadline, exo_err *err)
{
    exo_status first = EXO_OK;
    for (size_t i = 0; i < count; i++) {
        struct seat seat;
        if (!is_done(futures[i]) && wait_for_one(&futures[i], 1, &seat, deadline) > 0)
            return exo_fail(err, EXO_TIMEOUT, "%zu of %zu calls were complete at the deadline", i, count);
    }
    for (size_t i = 0; i < count && first == EXO_OK; i++)
        first = exo_wait(futures[i], INT64_MAX, NULL, err);
    return first;
}

exo_time
exo_future_deadline(const exo_future *future)
{
    return future->deadline;
}
