/* The pool: a few threads that serve the light lanes of all actors. Its queue holds the lanes that
 * want a turn; the pool's lock guards it. Read next: actor.c.
 *
 * A thread without work sleeps at once. Spinning for a few microseconds first was tried: on two
 * cores a call and its reply took three times as long (17 us instead of 5, because spinning keeps
 * the caller and the server on different cores), and no more messages a second were served. */
#include <exogym/memory.h>

#include "actor/hooks.h"
#include "actor/runtime_impl.h"
#include "base/thread.h"

struct exo_pool {
    exo_runtime *runtime;
    pthread_mutex_t lock;
    pthread_cond_t work;
    exo_lane *first, **last;
    unsigned idle; /* sleeping threads */
    bool stopping;
};

/* Queues a turn. A lane with max_concurrency > 1 may want several turns at once: it stands in the
 * queue once, with a ticket for each turn. */
static void
append_locked(exo_pool *p, exo_lane *lane)
{
    if (lane->tickets++ > 0)
        return;
    lane->next = NULL;
    *p->last = lane;
    p->last = &lane->next;
}

static exo_lane *
pop_locked(exo_pool *p)
{
    exo_lane *lane = p->first;
    p->first = lane->next;
    if (!p->first)
        p->last = &p->first;
    if (--lane->tickets > 0) {
        lane->next = NULL;
        *p->last = lane;
        p->last = &lane->next;
    }
    return lane;
}

static void *
pool_main(void *argument)
{
    exo_pool *p = argument;
    exo_runtime *runtime = p->runtime;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->stopping) {
            p->idle++;
            pthread_cond_wait(&p->work, &p->lock);
            p->idle--;
        }
        if (!p->first)
            break;
        exo_lane *lane = pop_locked(p);
        pthread_mutex_unlock(&p->lock);
        exo_actor *actor = lane->actor;
        bool again = exo_lane_run_turn(lane);
        if (!again)
            exo_actor_drop(actor); /* the turn's reference */
        pthread_mutex_lock(&p->lock);
        if (again)
            append_locked(p, lane);
    }
    pthread_mutex_unlock(&p->lock);
    exo_runtime_thread_ended(runtime);
    return NULL;
}

exo_status
exo_pool_open(exo_pool **out, exo_runtime *runtime, unsigned threads, exo_err *err)
{
    exo_pool *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for a pool of threads");
    p->runtime = runtime;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    *out = p;
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;
        exo_runtime_thread_began(runtime);
        exo_err reason = {0};
        exo_status st = exo_thread_start(&thread, pool_main, p, "actors", &reason);
        if (st != EXO_OK) {
            exo_runtime_thread_ended(runtime);
            return i > 0 ? EXO_OK : exo_fail(err, st, "%s", reason.text);
        }
        pthread_detach(thread);
    }
    return EXO_OK;
}

/* --- Lanes that a thread keeps back ----------------------------------------------------------- */

enum {
    KEPT_BACK = 64
};

static _Thread_local struct {
    bool on;
    unsigned count;
    exo_lane *lanes[KEPT_BACK]; /* their actors are held */
} collected;

static void
push_held(exo_pool *pool, exo_lane *lane)
{
    pthread_mutex_lock(&pool->lock);
    append_locked(pool, lane);
    bool wake = pool->idle > 0;
    pthread_mutex_unlock(&pool->lock);
    if (wake)
        /* after the unlock, because the woken thread takes the lock */
        pthread_cond_signal(&pool->work);
}

void
exo_lanes_collect(void)
{
    collected.on = true;
}

void
exo_lanes_settle(exo_runtime *runtime, bool run)
{
    unsigned count = collected.count;
    collected.on = false;
    collected.count = 0;
    if (count == 1 && run) {
        exo_lane *lane = collected.lanes[0];
        exo_actor *actor = lane->actor;
        if (exo_lane_run_turn(lane))
            push_held(exo_runtime_pool(runtime), lane);
        else
            exo_actor_drop(actor);
        return;
    }
    /* a copy, because the thread may collect again while it gives the lanes away */
    exo_lane *lanes[KEPT_BACK];
    for (unsigned i = 0; i < count; i++)
        lanes[i] = collected.lanes[i];
    for (unsigned i = 0; i < count; i++)
        push_held(exo_runtime_pool(runtime), lanes[i]);
}

void
exo_pool_push(exo_pool *pool, exo_lane *lane)
{
    exo_actor_hold(lane->actor);
    if (collected.on && collected.count < KEPT_BACK) {
        collected.lanes[collected.count++] = lane;
        return;
    }
    push_held(pool, lane);
}

void
exo_pool_stop(exo_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

void
exo_pool_free(exo_pool **pool)
{
    if (!*pool)
        return;
    pthread_cond_destroy(&(*pool)->work);
    pthread_mutex_destroy(&(*pool)->lock);
    exo_free(*pool);
    *pool = NULL;
}
