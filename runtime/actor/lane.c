/* Lanes: mailboxes, and the running of messages. See runtime_impl.h for locks and lifetimes. Read
 * next: pool.c.
 *
 * The inbox is one atomic pointer: the newest message, linked to the older ones, or one of three
 * marks. A caller pushes with one compare-and-exchange. The serving thread takes all messages at
 * once, under the actor's lock, and appends them to the queue in the order of arrival. So a caller
 * and the serving thread never wait for each other's lock.
 *
 *   idle     empty, and no thread will look: the caller that pushes next queues the lane
 *   busy     empty since a thread looked, and that thread will look again
 *   closed   for good: the actor is stopping or dead
 *
 * A light lane gets turns from the pool. A turn ends after TURN_MESSAGES messages or TURN_TIME: a
 * lane that always has work must leave threads to other lanes, but one visit to the pool should
 * serve many messages. A turn of 64 messages gives 7.8 million messages a second, a turn of 1 gives
 * 5.0 (bench_actors, 1 caller, futures). */
#include <string.h>

#include <exogym/memory.h>

#include "actor/flight.h"
#include "actor/runtime_impl.h"
#include "base/thread.h"

enum {
    DEFAULT_CAPACITY = 1024,
    TURN_MESSAGES = 64
};
#define TURN_TIME (100 * EXO_US)

static exo_message busy_mark, closed_mark;
#define IDLE   ((exo_message *)NULL)
#define BUSY   (&busy_mark)
#define CLOSED (&closed_mark)

static bool
is_message(const exo_message *m)
{
    return m != IDLE && m != BUSY && m != CLOSED;
}

void
exo_lane_init(exo_lane *lane, exo_actor *actor, const exo_lane_class *lane_class)
{
    lane->actor = actor;
    lane->lane_class = lane_class;
    lane->capacity = lane_class->capacity ? lane_class->capacity : DEFAULT_CAPACITY;
    lane->concurrency = lane_class->max_concurrency ? lane_class->max_concurrency : 1;
    lane->last = &lane->first;
    /* no thread serves the lane before it is opened */
    atomic_init(&lane->inbox, BUSY);
}

void
exo_lane_release(exo_lane *lane)
{
    if (!lane->wake)
        return;
    pthread_cond_destroy(lane->wake);
    exo_free(lane->wake);
}

void
exo_message_free(exo_message *message)
{
    exo_future *future = message->future;
    exo_payload_release(&message->args);
    exo_future_drop(&future);
}

/* --- The inbox -------------------------------------------------------------------------------- */

/* Pushes a message. False: the inbox is closed. *was_idle: the caller must queue the lane. */
static bool
push(exo_lane *lane, exo_message *m, bool *was_idle)
{
    exo_message *latest = atomic_load(&lane->inbox);
    do {
        if (latest == CLOSED)
            return false;
        m->next = is_message(latest) ? latest : NULL;
    } while (!atomic_compare_exchange_weak(&lane->inbox, &latest, m));
    *was_idle = latest == IDLE;
    return true;
}

/* Appends the inbox's messages to the queue and leaves `mark` in the inbox. The lock keeps other
 * fetches away; pushes may happen meanwhile. */
static void
fetch_locked(exo_lane *lane, exo_message *mark)
{
    exo_message *m = atomic_load(&lane->inbox), *oldest = NULL;
    if (m == CLOSED || (mark == BUSY && !is_message(m)))
        return;
    m = atomic_exchange(&lane->inbox, mark);
    if (!is_message(m))
        return;
    exo_message *latest = m;
    while (m) {
        exo_message *before = m->next;
        m->next = oldest;
        oldest = m;
        m = before;
    }
    *lane->last = oldest;
    lane->last = &latest->next;
}

void
exo_lane_close_locked(exo_lane *lane)
{
    fetch_locked(lane, CLOSED);
    if (lane->wake)
        pthread_cond_broadcast(lane->wake);
}

exo_message *
exo_lane_take_queue_locked(exo_lane *lane)
{
    exo_message *first = lane->first;
    for (const exo_message *m = first; m; m = m->next)
        atomic_fetch_sub(&lane->queued, 1);
    lane->first = NULL;
    lane->last = &lane->first;
    return first;
}

/* --- Running messages ------------------------------------------------------------------------- */

/* Takes the next message and counts it as running; NULL: there is none, or the actor runs none. */
static exo_message *
take_message_locked(exo_lane *lane, exo_time now)
{
    if (lane->actor->state == EXO_ACTOR_STARTING || lane->actor->state == EXO_ACTOR_DEAD)
        return NULL;
    if (!lane->first)
        fetch_locked(lane, BUSY);
    exo_message *m = lane->first;
    if (!m)
        return NULL;
    lane->first = m->next;
    if (!lane->first)
        lane->last = &lane->first;
    atomic_fetch_sub(&lane->queued, 1);
    lane->running++;
    m->begun = now;
    m->next = lane->current;
    lane->current = m;
    return m;
}

static void
return_message_locked(exo_lane *lane, exo_message *m)
{
    exo_message **at = &lane->current;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    lane->running--;
}

/* Runs a taken message to its end. Called without the lock. */
static void
run_message(exo_call_context *context, exo_message *m)
{
    context->message = m;
    if (!exo_future_begin_at(m->future, m->begun))
        return;
    exo_payload reply = {0};
    exo_err err;
    err.code = EXO_OK;
    err.text[0] = '\0'; /* the rest need not be zeroed */
    if (exo_flight_recorder)
        exo_flight_begin(exo_actor_name(context->actor), m->method->name);
    exo_status st = m->method->run(context, context->actor->self, &m->args, &reply, &err);
    if (exo_flight_recorder)
        exo_flight_end();
    if (context->dies && st == EXO_OK) {
        st = exo_fail(&err, EXO_PEER_LOST, "%s", context->cause);
        /* first: whoever reads the result finds the actor dead */
        exo_actor_die(context->actor, context->cause, true);
    }
    if (context->deferred) {
        context->deferred = false;
        exo_payload_release(&reply);
        return;
    }
    if (st != EXO_OK)
        exo_payload_release(&reply);
    exo_future_complete(m->future, st, err.text, st == EXO_OK ? &reply : NULL);
}

static void
context_init(exo_call_context *context, exo_lane *lane)
{
    context->runtime = lane->actor->runtime;
    context->actor = lane->actor;
    context->message = NULL;
    context->dies = context->deferred = false;
}

/* Does the work that a message has left for the time after the lock is released. */
static void
after_message(exo_call_context *context, exo_message *m, bool alive)
{
    exo_message_free(m);
    if (context->dies)
        exo_actor_die(context->actor, context->cause, true);
    if (!alive)
        exo_actor_rest(context->actor);
    context->dies = false;
}

/* --- Light lanes ------------------------------------------------------------------------------ */

/* True: there is work for another turn. False: the turn is over, and the caller that next brings
 * work queues the lane. */
static bool
end_turn_locked(exo_lane *lane)
{
    exo_message *seen = BUSY;
    if (lane->actor->state != EXO_ACTOR_DEAD &&
        (lane->first ||
         (!atomic_compare_exchange_strong(&lane->inbox, &seen, IDLE) && is_message(seen))))
        return true;
    if (lane->concurrency > 1)
        lane->servers--;
    return false;
}

bool
exo_lane_run_turn(exo_lane *lane)
{
    exo_actor *a = lane->actor;
    const exo_clock *clock = exo_runtime_clock(a->runtime);
    exo_call_context context;
    context_init(&context, lane);
    exo_time now = exo_now(clock), end = now + TURN_TIME;
    bool again = false;
    pthread_mutex_lock(&a->lock);
    exo_message *m = take_message_locked(lane, now);
    if (!m)
        again = end_turn_locked(lane);
    pthread_mutex_unlock(&a->lock);
    for (int count = 1; m; count++) {
        run_message(&context, m);
        now = exo_now(clock);
        pthread_mutex_lock(&a->lock);
        return_message_locked(lane, m);
        bool alive = a->state == EXO_ACTOR_ALIVE;
        exo_message *next = count < TURN_MESSAGES && now < end && !context.dies
                                ? take_message_locked(lane, now)
                                : NULL;
        /* nothing more runs of a dying actor: the lane stays busy */
        if (!next && !context.dies)
            again = end_turn_locked(lane);
        pthread_mutex_unlock(&a->lock);
        after_message(&context, m, alive);
        m = next;
    }
    return again;
}

void
exo_lane_open_locked(exo_lane *lane)
{
    if (lane->wake)
        pthread_cond_broadcast(lane->wake);
    if (lane->lane_class->blocking)
        return;
    lane->servers = 1;
    if (!end_turn_locked(lane))
        return;
    exo_pool_push(exo_runtime_pool(lane->actor->runtime), lane);
    uint32_t queued = atomic_load(&lane->queued);
    for (; lane->servers < lane->concurrency && lane->servers < queued; lane->servers++)
        exo_pool_push(exo_runtime_pool(lane->actor->runtime), lane);
}

/* Queues one more turn of a light lane with max_concurrency > 1, unless it has all its turns. */
static void
add_turn(exo_lane *lane)
{
    exo_actor *a = lane->actor;
    pthread_mutex_lock(&a->lock);
    bool more = (a->state == EXO_ACTOR_ALIVE || a->state == EXO_ACTOR_DRAINING) &&
                lane->servers < lane->concurrency;
    if (more)
        lane->servers++;
    pthread_mutex_unlock(&a->lock);
    if (more)
        exo_pool_push(exo_runtime_pool(a->runtime), lane);
}

/* --- Blocking lanes --------------------------------------------------------------------------- */

/* The main function of a blocking lane's thread. It holds the actor. */
static void *
lane_main(void *argument)
{
    exo_lane *lane = argument;
    exo_actor *a = lane->actor;
    exo_runtime *runtime = a->runtime;
    exo_call_context context;
    context_init(&context, lane);
    pthread_mutex_lock(&a->lock);
    while (a->state != EXO_ACTOR_DEAD) {
        exo_message *m = take_message_locked(lane, exo_now(exo_runtime_clock(runtime)));
        if (!m) {
            pthread_cond_wait(lane->wake, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        run_message(&context, m);
        pthread_mutex_lock(&a->lock);
        return_message_locked(lane, m);
        bool alive = a->state == EXO_ACTOR_ALIVE;
        pthread_mutex_unlock(&a->lock);
        after_message(&context, m, alive);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    exo_actor_drop(a);
    exo_runtime_thread_ended(runtime);
    return NULL;
}

/* Starts one more thread if the running and queued messages may occupy all that there are. */
static exo_status
ensure_thread_locked(exo_lane *lane, exo_err *err)
{
    exo_actor *a = lane->actor;
    if (lane->servers >= lane->concurrency ||
        lane->servers >= lane->running + atomic_load(&lane->queued))
        return EXO_OK;
    if (!lane->wake) {
        lane->wake = exo_calloc(1, sizeof *lane->wake);
        if (!lane->wake)
            return exo_fail(err, EXO_NOMEM, "no memory for the lane '%s'", lane->lane_class->name);
        pthread_cond_init(lane->wake, NULL);
    }
    pthread_t thread;
    exo_actor_hold(a);
    exo_runtime_thread_began(a->runtime);
    exo_err reason = {0};
    exo_status st = exo_thread_start(&thread, lane_main, lane, "a lane", &reason);
    if (st != EXO_OK) {
        exo_runtime_thread_ended(a->runtime);
        exo_actor_drop(a); /* not the last reference: the caller holds another */
        return lane->servers
                   ? EXO_OK
                   : exo_fail(err, st, "lane '%s': %s", lane->lane_class->name, reason.text);
    }
    pthread_detach(thread);
    lane->servers++;
    return EXO_OK;
}

/* *came: the lane was open and now has the message. */
static exo_status
put_to_threads(exo_lane *lane, exo_message *m, bool *came, exo_err *err)
{
    exo_actor *a = lane->actor;
    bool was_idle;
    pthread_mutex_lock(&a->lock);
    exo_status st = atomic_load(&lane->inbox) == CLOSED ? EXO_OK : ensure_thread_locked(lane, err);
    if (st == EXO_OK)
        *came = push(lane, m, &was_idle);
    if (*came)
        pthread_cond_signal(lane->wake);
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* --- Calls ------------------------------------------------------------------------------------ */

static exo_status
refuse(exo_actor *a, exo_err *err)
{
    char cause[EXO_CAUSE] = "it is stopping";
    pthread_mutex_lock(&a->lock);
    bool dead = a->state == EXO_ACTOR_DEAD;
    pthread_mutex_unlock(&a->lock);
    if (dead)
        exo_runtime_cause(a->runtime, a->id, cause, sizeof cause);
    return exo_fail(err, EXO_PEER_LOST, "the actor '%s' takes no calls: %s", exo_actor_name(a),
                    cause);
}

exo_status
exo_lane_put(exo_lane *lane, exo_message *message, exo_err *err)
{
    exo_actor *a = lane->actor;
    exo_status st = EXO_OK;
    bool came = false, was_idle = false;
    uint32_t before = atomic_fetch_add(&lane->queued, 1);
    if (before >= lane->capacity)
        st = exo_fail(err, EXO_FULL, "the lane '%s' of the actor '%s' holds %u calls",
                      lane->lane_class->name, exo_actor_name(a), before);
    else if (lane->lane_class->blocking)
        st = put_to_threads(lane, message, &came, err);
    else
        came = push(lane, message, &was_idle);
    if (!came) {
        atomic_fetch_sub(&lane->queued, 1);
        return st != EXO_OK ? st : refuse(a, err);
    }
    if (!lane->lane_class->blocking && lane->concurrency > 1)
        add_turn(lane);
    else if (was_idle)
        exo_pool_push(exo_runtime_pool(a->runtime), lane);
    return EXO_OK;
}
