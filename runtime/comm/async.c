/* Collectives while the caller goes on: see async.h. `lock` guards the ring of calls; on the virtual clock, where one lane runs at a time,
 * whoever waits is woken through its lane. */
#include "comm/async.h"

#include <pthread.h>
#include <stdbool.h>

#include <exogym/memory.h>

#include "base/pace.h"

struct call {
    void *data;
    size_t count;
    exo_dtype dtype;
    exo_reduce op;
};

struct exo_async {
    exo_group *group;
    exo_sim_lane *lane; /* the thread's; NULL: the real clock */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct call calls[EXO_ASYNC_CALLS];
    uint64_t begun, done;
    bool closing, over;    /* the thread is told to end; it has nothing more to do */
    exo_sim_lane *waiting; /* the caller's lane, while it waits */
    exo_err failed;        /* code OK: nothing has */
};

/* Sleeps until something changes; under the lock, which is open meanwhile. */
static void
wait_locked(exo_async *a, exo_sim_lane *lane, exo_sim_lane **waiting)
{
    if (!lane) {
        pthread_cond_wait(&a->changed, &a->lock); /* bounded: every call has its group's timeout */
        return;
    }
    *waiting = lane;
    pthread_mutex_unlock(&a->lock);
    exo_sim_wait(lane, INT64_MAX);
    pthread_mutex_lock(&a->lock);
    *waiting = NULL;
}

static void
wake_locked(exo_async *a, exo_sim_lane *lane, exo_time at)
{
    if (!a->lane)
        pthread_cond_broadcast(&a->changed);
    else if (lane)
        exo_sim_wake(lane, at);
}

static exo_time
now_of(exo_sim_lane *lane)
{
    return lane ? exo_sim_time(lane) : 0;
}

static void *
async_main(void *argument)
{
    exo_async *a = argument;
    exo_sim_lane *idle = NULL;
    if (a->lane)
        exo_sim_enter(a->lane, 0);
    pthread_mutex_lock(&a->lock);
    for (;;) {
        while (a->done == a->begun && !a->closing)
            wait_locked(a, a->lane, &idle);
        if (a->done == a->begun)
            break;
        struct call call = a->calls[a->done % EXO_ASYNC_CALLS];
        exo_status st = a->failed.code;
        exo_err err = {0};
        pthread_mutex_unlock(&a->lock);
        if (st == EXO_OK)
            st = call.data ? exo_all_reduce(a->group, exo_host_array(call.dtype, call.data, call.count), call.op, &err)
                           : exo_rehearse_all_reduce(a->group, call.count, call.dtype, &err);
        pthread_mutex_lock(&a->lock);
        if (st != EXO_OK && a->failed.code == EXO_OK)
            a->failed = err;
        a->done++;
        wake_locked(a, a->waiting, now_of(a->lane));
    }
    a->over = true;
    wake_locked(a, a->waiting, now_of(a->lane));
    pthread_mutex_unlock(&a->lock);
    if (a->lane)
        exo_sim_leave(a->lane);
    return NULL;
}

exo_status
exo_async_open(exo_async **out, exo_group *group, exo_sim *sim, exo_err *err)
{
    exo_async *a = exo_calloc(1, sizeof *a);
    if (a && sim)
        a->lane = exo_sim_lane_new(sim, 1);
    if (!a || (sim && !a->lane)) {
        exo_free(a);
        return exo_fail(err, EXO_NOMEM, "no memory for collectives beside the computation");
    }
    a->group = group;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    if (sim)
        exo_sim_begin(a->lane); /* or calls would be waited for before it is there, and time run away */
    if (pthread_create(&a->thread, NULL, async_main, a) != 0) {
        if (sim)
            exo_sim_begin_cancel(a->lane);
        pthread_cond_destroy(&a->changed);
        pthread_mutex_destroy(&a->lock);
        exo_free(a);
        return exo_fail(err, EXO_FULL, "no thread for collectives beside the computation");
    }
    *out = a;
    return EXO_OK;
}

void
exo_async_close(exo_async **async)
{
    exo_async *a = *async;
    *async = NULL;
    if (!a)
        return;
    exo_async_wait(a, a->begun, NULL);
    exo_sim_lane *own = a->lane ? exo_sim_current() : NULL;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    wake_locked(a, a->lane, now_of(own));
    while (!a->over) /* it needs the baton once more to end */
        wait_locked(a, own, &a->waiting);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    exo_free(a);
}

uint64_t
exo_async_all_reduce(exo_async *a, void *data, size_t count, exo_dtype dtype, exo_reduce op)
{
    exo_sim_lane *own = a->lane ? exo_sim_current() : NULL;
    if (own)
        exo_sim_sync(own);
    pthread_mutex_lock(&a->lock);
    while (a->begun - a->done == EXO_ASYNC_CALLS)
        wait_locked(a, own, &a->waiting);
    a->calls[a->begun % EXO_ASYNC_CALLS] = (struct call){.data = data, .count = count, .dtype = dtype, .op = op};
    uint64_t number = ++a->begun;
    wake_locked(a, a->lane, now_of(own));
    pthread_mutex_unlock(&a->lock);
    return number;
}

exo_status
exo_async_wait(exo_async *a, uint64_t number, exo_err *err)
{
    exo_sim_lane *own = a->lane ? exo_sim_current() : NULL;
    exo_pace *pace = exo_pace_current();
    exo_pace_wait_begin(pace, "collective", EXO_SPAN_RECV_BLOCKED);
    if (own)
        exo_sim_sync(own);
    pthread_mutex_lock(&a->lock);
    while (a->done < number)
        wait_locked(a, own, &a->waiting);
    exo_status st = a->failed.code;
    if (st != EXO_OK && err)
        *err = a->failed;
    pthread_mutex_unlock(&a->lock);
    exo_pace_wait_end(pace);
    return st;
}
