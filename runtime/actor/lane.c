/* Lanes: mailboxes, and the running of messages. See runtime_impl.h for locks and lifetimes.
 *
 * The inbox is one atomic pointer: the latest message, linked to those before it, or one of three
 * marks. Callers push with one compare and exchange; whoever serves the lane takes all at once,
 * under the actor's lock, and turns them round into the queue. So a caller and the thread that
 * serves it do not wait for each other's lock.
 *
 *     idle     nothing has come, and nobody will look: whoever pushes now has the lane served
 *     busy     nothing has come since somebody looked, who will look again
 *     closed   for good: the actor is stopping or dead
 *
 * A light lane gets turns from the pool. A turn serves TURN_MESSAGES messages or TURN_TIME, so that
 * a lane that always has work does not keep a thread from the others, and yet one visit to the pool
 * serves many messages: 7.8 million a second with 64 a turn, 5.0 with 1 (bench_actors, 1 caller,
 * futures). */
#include <string.h>

#include <exogym/memory.h>

#include "actor/flight.h"
#include "actor/runtime_impl.h"

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
    atomic_init(&lane->inbox, BUSY); /* nobody is to serve it before it is opened */
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

/* False: it is closed. *was_idle: the caller has the lane served. */
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

/* Moves what has come to the end of the queue and leaves `mark`. Only pushes go on meanwhile: the
 * lock keeps others away. */
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

/* The next message, as running; NULL: there is none, or the actor serves none. */
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

/* Runs a taken message to its end, without the lock. */
static void
run_message(exo_call_context *context, exo_message *m)
{
    context->message = m;
    if (!exo_future_begin_at(m->future, m->begun))
        return;
    exo_payload reply = {0};
    exo_err err;
    err.code = EXO_OK;
    err.text[0] = '\0'; /* the rest need not be blank */
    if (exo_flight_recorder)
        exo_flight_begin(exo_actor_name(context->actor), m->method->name);
    exo_status st = m->method->run(context, context->actor->self, &m->args, &reply, &err);
    if (exo_flight_recorder)
        exo_flight_end();
    if (context->dies && st == EXO_OK) {
        st = exo_fail(&err, EXO_PEER_LOST, "%s", context->cause);
        /* first: whoever hears of it finds the actor dead */
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

/* What a message leaves to be done when the lock is free. */
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

/* True: there is work for another turn. False: the turn is over, and whoever brings work asks for a
 * new one. */
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
        /* of a dying actor nothing is served any more: the lane stays busy */
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

/* Gives a light lane that may run several messages at once one more turn if it has not as many as
 * it may. */
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

/* A thread of a blocking lane. It holds its actor. */
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

/* Starts one more thread if all that there are may be busy with what runs and what is queued. */
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
    if (pthread_create(&thread, NULL, lane_main, lane) != 0) {
        exo_runtime_thread_ended(a->runtime);
        exo_actor_drop(a); /* never the last: the caller holds it */
        return lane->servers
                   ? EXO_OK
                   : exo_fail(err, EXO_FAILED, "no thread for the lane '%s' can be started",
                              lane->lane_class->name);
    }
    pthread_detach(thread);
    lane->servers++;
    return EXO_OK;
}

/* *came: the lane was open, and has the message. */
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
