/* Requests of a collective among actors.
 *
 * The thread that waits for a blocking call makes it. The first request that is not waited for at
 * once starts a thread, which lives as long as the member. From then on that thread makes all
 * calls, in the order of their begins. far_impl.h has the state under the lock. The thread owns a
 * request until its state is OVER. `threaded` belongs to the thread that begins and waits. */
#include <stdio.h>

#include "base/pace.h"
#include "base/parallel.h"
#include "base/thread.h"
#include "base/waiting.h"
#include "comm/far_impl.h"

enum {
    BEGUN = 1, /* the thread that waits for it makes it */
    QUEUED = 2,
    OVER = 3, /* its status is in `number`, and the reason of an error in `broken` */
};

static void *
thread_main(void *argument)
{
    exo_far *f = argument;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->first && !f->closing)
            pthread_cond_wait(&f->changed, &f->lock); /* idle, until the next request or the end */
        exo_engine_request *r = f->first;
        if (!r)
            break;
        pthread_mutex_unlock(&f->lock);
        exo_status st = exo_far_run(f, &r->args, exo_now(f->clock), r->deadline, NULL);
        pthread_mutex_lock(&f->lock);
        f->first = r->next;
        if (!f->first)
            f->last = &f->first;
        r->number = (uint64_t)st;
        r->state = OVER;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static exo_status
start_thread(exo_far *f, exo_err *err)
{
    if (f->threaded)
        return EXO_OK;
    exo_status st =
        exo_thread_start(&f->thread, thread_main, f, "collectives beside the computation", err);
    f->threaded = st == EXO_OK;
    return st;
}

void
exo_far_stop(exo_far *f)
{
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    bool threaded = f->threaded;
    pthread_mutex_unlock(&f->lock);
    if (threaded)
        pthread_join(f->thread, NULL);
}

exo_status
exo_far_begin(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_far *f = group;
    (void)rank;
    r->since = exo_now(f->clock);
    r->state = BEGUN;
    if (r->args.waits && !f->threaded)
        return EXO_OK;
    pthread_mutex_lock(&f->lock);
    exo_status st = f->broken.code;
    if (st != EXO_OK && err)
        *err = f->broken;
    if (st == EXO_OK && !r->args.waits)
        st = start_thread(f, err);
    if (st == EXO_OK && f->threaded) {
        r->state = QUEUED;
        *f->last = r;
        f->last = &r->next;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return st;
}

/* Waits until the thread has made the request, which it ends at the deadline at the latest. */
static exo_status
await_thread(exo_far *f, const exo_engine_request *r, exo_err *err)
{
    exo_compute_pause();
    pthread_mutex_lock(&f->lock);
    f->asked = true;
    while (r->state != OVER)
        exo_condition_wait_for(&f->changed, &f->lock, EXO_SECOND);
    f->asked = false;
    exo_status st = (exo_status)r->number;
    if (st != EXO_OK && err)
        *err = f->broken;
    pthread_mutex_unlock(&f->lock);
    exo_compute_resume_after(st);
    return st;
}

exo_status
exo_far_wait(void *group, uint32_t rank, exo_engine_request *r, exo_err *err)
{
    exo_far *f = group;
    exo_pace *pace = exo_pace_current();
    exo_time before = r->args.waits ? r->since : exo_now(f->clock);
    (void)rank;
    exo_pace_wait_begin(pace, f->edge.name ? f->edge.name : "collective", EXO_SPAN_RECV_BLOCKED);
    /* before there is a thread every request is one that waits at once */
    exo_status st =
        !f->threaded ? exo_far_run(f, &r->args, before, r->deadline, err) : await_thread(f, r, err);
    r->waited += exo_now(f->clock) - before;
    exo_pace_wait_end(pace);
    return st;
}

exo_status
exo_far_test(void *group, uint32_t rank, exo_engine_request *r, bool *done, exo_err *err)
{
    exo_far *f = group;
    (void)rank;
    pthread_mutex_lock(&f->lock);
    *done = r->state == OVER;
    exo_status st = *done ? (exo_status)r->number : EXO_OK;
    if (st != EXO_OK && err)
        *err = f->broken;
    pthread_mutex_unlock(&f->lock);
    return st;
}

void
exo_far_cancel(void *group, uint32_t rank, exo_engine_request *r)
{
    exo_far *f = group;
    char cause[128];
    pthread_mutex_lock(&f->lock);
    bool over = r->state == OVER, mine = r->state == BEGUN;
    pthread_mutex_unlock(&f->lock);
    if (over)
        return;
    snprintf(cause, sizeof cause, "its %s", exo_collective_name(r->args.operation));
    exo_far_tell(f, rank, EXO_CANCELLED, cause);
    if (!mine)
        await_thread(f, r, NULL); /* short: the broken communicator ends its waits */
}
