/* The pool: a few threads that serve the light lanes of all actors. Its queue holds lanes that want
 * a turn; guarded by the pool's lock.
 *
 * A thread without work sleeps at once. To look a few microseconds longer was tried: on two cores
 * it made a call and its reply three times as long (17 us instead of 5, as it keeps caller and
 * server on two cores) and brought no messages a second. */
#include <exogym/memory.h>

#include "actor/hooks.h"
#include "actor/runtime_impl.h"

struct exo_pool {
    exo_runtime *runtime;
    pthread_mutex_t lock;
    pthread_cond_t work;
    exo_lane *first, **last;
    unsigned idle; /* threads that sleep */
    bool stopping;
};

/* A lane that may run several messages at once may want several turns at once. It is in the queue
 * once, with a ticket for each. */
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
            exo_actor_drop(actor); /* the turn's */
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
        if (pthread_create(&thread, NULL, pool_main, p) != 0) {
            exo_runtime_thread_ended(runtime);
            return i > 0 ? EXO_OK : exo_fail(err, EXO_FAILED, "no thread can be started");
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
        pthread_cond_signal(&pool->work); /* without the lock: the thread that wakes needs it */
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
    exo_lane *lanes[KEPT_BACK]; /* the thread may collect again while these are given away */
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
