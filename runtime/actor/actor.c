/* Actors: lanes, calls, death. See runtime_impl.h for locks and lifetimes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "runtime_impl.h"

enum {
    DEFAULT_CAPACITY = 1024
};

static const exo_lane_class default_lane = {.name = "main"};

exo_status
exo_actor_new(exo_runtime *runtime, const exo_actor_class *actor_class, exo_actor **out, exo_err *err)
{
    size_t lanes = actor_class->lanes ? actor_class->num_lanes : 1;
    if (lanes < 1 || lanes > EXO_MAX_LANES)
        return exo_fail(err, EXO_INVAL, "the class '%s' has %zu lanes: 1 to %d are possible", actor_class->name, lanes,
                        EXO_MAX_LANES);
    for (size_t i = 0; i < actor_class->num_methods; i++)
        if (actor_class->methods[i].lane >= lanes)
            return exo_fail(err, EXO_INVAL, "the method '%s' of the class '%s' names lane %u of %zu",
                            actor_class->methods[i].name, actor_class->name, actor_class->methods[i].lane, lanes);
    exo_actor *a = exo_calloc(1, sizeof *a + lanes * sizeof a->lanes[0]);
    void *self = exo_calloc(1, actor_class->state_size);
    if (!a || !self) {
        exo_free(a);
        exo_free(self);
        return exo_fail(err, EXO_NOMEM, "no memory for an actor of the class '%s'", actor_class->name);
    }
    a->runtime = runtime;
    a->references = 1;
    a->actor_class = actor_class;
    a->self = self;
    a->num_lanes = lanes;
    pthread_mutex_init(&a->lock, NULL);
    for (size_t i = 0; i < lanes; i++) {
        a->lanes[i].actor = a;
        a->lanes[i].lane_class = actor_class->lanes ? &actor_class->lanes[i] : &default_lane;
        a->lanes[i].last = &a->lanes[i].first;
    }
    *out = a;
    return EXO_OK;
}

void
exo_actor_hold(exo_actor *actor)
{
    atomic_fetch_add(&actor->references, 1);
}

void
exo_actor_drop(exo_actor *actor)
{
    if (!actor || atomic_fetch_sub(&actor->references, 1) > 1)
        return;
    for (size_t i = 0; i < actor->num_lanes; i++) {
        if (actor->lanes[i].wake) {
            pthread_cond_destroy(actor->lanes[i].wake);
            exo_free(actor->lanes[i].wake);
        }
    }
    pthread_mutex_destroy(&actor->lock);
    exo_free(actor->self); /* of one that never lived */
    exo_free(actor->links);
    exo_free(actor->monitors);
    exo_free(actor->name);
    exo_free(actor->space);
    exo_free(actor);
}

static uint32_t
lane_concurrency(const exo_lane *lane)
{
    return lane->lane_class->max_concurrency ? lane->lane_class->max_concurrency : 1;
}

static uint32_t
lane_capacity(const exo_lane *lane)
{
    return lane->lane_class->capacity ? lane->lane_class->capacity : DEFAULT_CAPACITY;
}

static void
message_free(exo_message *m)
{
    exo_payload_release(&m->args);
    exo_future_drop(&m->future);
    exo_free(m);
}

/* --- Death ----------------------------------------------------------------------------------------------------------------- */

static bool
is_idle_locked(const exo_actor *a, bool with_queues)
{
    for (size_t i = 0; i < a->num_lanes; i++)
        if (a->lanes[i].running || (with_queues && a->lanes[i].queued))
            return false;
    return true;
}

/* Runs stop and frees the state of a dead actor of which nothing runs any more. Called without the lock, after anything that may
 * have been the last. */
static void
settle(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool mine = a->state == EXO_ACTOR_DEAD && !a->settled && is_idle_locked(a, false);
    void *self = a->self;
    if (mine) {
        a->settled = true;
        a->self = NULL;
    }
    pthread_mutex_unlock(&a->lock);
    if (!mine)
        return;
    if (self && a->actor_class->stop)
        a->actor_class->stop(self);
    exo_free(self);
    exo_actor_drop(a); /* the reference of being alive */
}

/* What a death leaves to be done when the lock is free again. */
struct last_will {
    exo_message *queued;
    exo_future **running; /* held futures of the calls that run */
    size_t num_running;
    exo_future **monitors;
    size_t num_monitors;
    uint64_t *links;
    size_t num_links;
};

/* Futures of running calls are completed at once: their callers shall not wait for a method that nobody needs any more. */
static void
take_running_locked(exo_actor *a, struct last_will *will)
{
    size_t count = 0;
    for (size_t i = 0; i < a->num_lanes; i++)
        count += a->lanes[i].running;
    will->running = count ? exo_calloc(count, sizeof *will->running) : NULL;
    for (size_t i = 0; will->running && i < a->num_lanes; i++)
        for (exo_message *m = a->lanes[i].current; m; m = m->next)
            will->running[will->num_running++] = exo_future_hold(m->future);
}

static void
take_will_locked(exo_actor *a, struct last_will *will)
{
    exo_message **end = &will->queued;
    for (size_t i = 0; i < a->num_lanes; i++) {
        exo_lane *lane = &a->lanes[i];
        *end = lane->first;
        while (*end)
            end = &(*end)->next;
        lane->first = NULL;
        lane->last = &lane->first;
        lane->queued = 0;
        if (lane->wake)
            pthread_cond_broadcast(lane->wake);
    }
    take_running_locked(a, will);
    will->monitors = a->monitors;
    will->num_monitors = a->num_monitors;
    will->links = a->links;
    will->num_links = a->num_links;
    a->monitors = NULL;
    a->links = NULL;
    a->num_monitors = a->cap_monitors = a->num_links = a->cap_links = 0;
}

static const char *
actor_name(const exo_actor *a)
{
    return a->name ? a->name : a->actor_class->name;
}

static void
execute_will(exo_actor *a, struct last_will *will, bool failure)
{
    exo_status status = failure ? EXO_PEER_LOST : EXO_CANCELLED;
    char reason[EXO_CAUSE + 96], cause[EXO_CAUSE + 96];
    snprintf(reason, sizeof reason, "the actor '%s' %s: %s", actor_name(a), failure ? "died" : "was stopped", a->cause);
    snprintf(cause, sizeof cause, "linked to '%s', which died: %.160s", actor_name(a), a->cause);
    for (exo_message *m = will->queued, *next; m; m = next) {
        next = m->next;
        exo_future_complete(m->future, status, reason, NULL);
        message_free(m);
    }
    for (size_t i = 0; i < will->num_running; i++) {
        if (failure)
            exo_future_complete(will->running[i], EXO_PEER_LOST, reason, NULL);
        exo_future_drop(&will->running[i]);
    }
    /* Only now: a method that sees the flag and gives up must not answer before its caller has heard of the death. */
    atomic_store(&a->stopping, true);
    for (size_t i = 0; i < will->num_monitors; i++) {
        exo_future_complete(will->monitors[i], failure ? EXO_PEER_LOST : EXO_OK, failure ? reason : NULL, NULL);
        exo_future_drop(&will->monitors[i]);
    }
    for (size_t i = 0; failure && i < will->num_links; i++)
        exo_kill(a->runtime, (exo_ref){.id = will->links[i]}, cause, NULL);
    exo_free(will->running);
    exo_free(will->monitors);
    exo_free(will->links);
}

void
exo_actor_die(exo_actor *actor, const char *cause, bool failure)
{
    exo_actor *a = actor;
    struct last_will will = {0};
    /* Out of the table before anything else: whoever hears of the death finds the name free, and only one caller gets past here. */
    if (!exo_runtime_forget(a->runtime, a, cause))
        return;
    pthread_mutex_lock(&a->lock);
    a->state = EXO_ACTOR_DEAD;
    a->failed = failure;
    snprintf(a->cause, sizeof a->cause, "%s", cause);
    take_will_locked(a, &will);
    pthread_mutex_unlock(&a->lock);
    execute_will(a, &will, failure);
    settle(a);
}

/* A draining actor with nothing left to do stops. */
static void
stop_if_drained(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool drained = a->state == EXO_ACTOR_DRAINING && is_idle_locked(a, true);
    pthread_mutex_unlock(&a->lock);
    if (drained)
        exo_actor_die(a, "stopped", false);
}

/* --- Running messages --------------------------------------------------------------------------------------------------- */

/* Takes the next message if the lane may run one more. */
static exo_message *
take_message_locked(exo_lane *lane)
{
    exo_message *m = lane->first;
    if (!m || lane->running >= lane_concurrency(lane) || lane->actor->state == EXO_ACTOR_STARTING)
        return NULL;
    lane->first = m->next;
    if (!lane->first)
        lane->last = &lane->first;
    lane->queued--;
    lane->running++;
    m->begun = exo_now(exo_runtime_clock(lane->actor->runtime));
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

/* Runs a taken message to its end, without the lock; the lane may serve the next one afterwards. */
static void
run_message(exo_lane *lane, exo_message *m)
{
    exo_actor *a = lane->actor;
    exo_call_context context = {.runtime = a->runtime, .actor = a, .message = m};
    if (exo_future_begin(m->future)) {
        exo_payload reply = {0};
        exo_err err = {0};
        exo_status st = m->method->run(&context, a->self, &m->args, &reply, &err);
        if (context.dies && st == EXO_OK)
            st = exo_fail(&err, EXO_PEER_LOST, "%s", context.cause);
        if (st != EXO_OK)
            exo_payload_release(&reply);
        exo_future_complete(m->future, st, err.text, st == EXO_OK ? &reply : NULL);
    }
    pthread_mutex_lock(&a->lock);
    return_message_locked(lane, m);
    pthread_mutex_unlock(&a->lock);
    message_free(m);
    if (context.dies)
        exo_actor_die(a, context.cause, true);
    stop_if_drained(a);
    settle(a);
}

void
exo_lane_run_one(exo_lane *lane)
{
    exo_actor *a = lane->actor;
    pthread_mutex_lock(&a->lock);
    exo_message *m = take_message_locked(lane);
    pthread_mutex_unlock(&a->lock);
    if (!m)
        return; /* it was dropped when the actor died, or another ticket's turn took it */
    run_message(lane, m);
    /* A message that came while the lane was full has had its ticket, in vain. */
    pthread_mutex_lock(&a->lock);
    bool more = lane->queued > 0 && lane->running < lane_concurrency(lane) && a->state != EXO_ACTOR_DEAD;
    pthread_mutex_unlock(&a->lock);
    if (more)
        exo_pool_push(exo_runtime_pool(a->runtime), lane);
}

/* A thread of a blocking lane. It holds its actor. */
static void *
lane_main(void *argument)
{
    exo_lane *lane = argument;
    exo_actor *a = lane->actor;
    exo_runtime *runtime = a->runtime;
    pthread_mutex_lock(&a->lock);
    while (a->state != EXO_ACTOR_DEAD) {
        exo_message *m = take_message_locked(lane);
        if (!m) {
            pthread_cond_wait(lane->wake, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        run_message(lane, m);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    exo_actor_drop(a);
    exo_runtime_thread_ended(runtime);
    return NULL;
}

/* Starts one more thread of a blocking lane if all that there are may be busy. */
static exo_status
ensure_thread_locked(exo_lane *lane, exo_err *err)
{
    exo_actor *a = lane->actor;
    if (lane->threads >= lane_concurrency(lane) || lane->threads > lane->running + lane->queued)
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
        atomic_fetch_sub(&a->references, 1); /* never the last: the caller holds the actor */
        return lane->threads
                   ? EXO_OK
                   : exo_fail(err, EXO_FAILED, "no thread for the lane '%s' can be started", lane->lane_class->name);
    }
    pthread_detach(thread);
    lane->threads++;
    return EXO_OK;
}

/* --- Calls ------------------------------------------------------------------------------------------------------------------ */

static const exo_method *
find_method(const exo_actor_class *c, const char *name)
{
    for (size_t i = 0; i < c->num_methods; i++)
        if (strcmp(c->methods[i].name, name) == 0)
            return &c->methods[i];
    return NULL;
}

/* Queues a message; on failure it stays the caller's. */
static exo_status
enqueue(exo_actor *a, exo_message *m, exo_err *err)
{
    exo_lane *lane = &a->lanes[m->method->lane];
    exo_status st = EXO_OK;
    pthread_mutex_lock(&a->lock);
    if (a->state == EXO_ACTOR_DEAD || a->state == EXO_ACTOR_DRAINING)
        st = exo_fail(err, EXO_PEER_LOST, "the actor '%s' %s", actor_name(a),
                      a->state == EXO_ACTOR_DEAD ? a->cause : "is stopping");
    else if (lane->queued >= lane_capacity(lane))
        st = exo_fail(err, EXO_FULL, "the lane '%s' of the actor '%s' holds %u calls", lane->lane_class->name,
                      actor_name(a), lane->queued);
    else if (lane->lane_class->blocking)
        st = ensure_thread_locked(lane, err);
    if (st == EXO_OK) {
        m->next = NULL;
        *lane->last = m;
        lane->last = &m->next;
        lane->queued++;
        if (lane->wake)
            pthread_cond_signal(lane->wake);
    }
    pthread_mutex_unlock(&a->lock);
    if (st == EXO_OK && !lane->lane_class->blocking)
        exo_pool_push(exo_runtime_pool(a->runtime), lane);
    return st;
}

/* Methods that every actor has, served at once by the caller's thread: the control lane. */
static bool
run_control(exo_actor *a, const char *method, exo_future *future)
{
    exo_payload reply = {0};
    exo_err err = {0};
    exo_status st = EXO_OK;
    char *text = NULL;
    if (strcmp(method, "dump") == 0) {
        st = exo_dump(a->runtime, (exo_ref){.id = a->id}, &text, &err);
        if (st == EXO_OK)
            reply = (exo_payload){.data = text, .size = strlen(text), .release = exo_free};
    } else if (strcmp(method, "stop") == 0) {
        st = exo_stop(a->runtime, (exo_ref){.id = a->id}, true, &err);
    } else if (strcmp(method, "ping") != 0) {
        return false;
    }
    exo_future_begin(future);
    exo_future_complete(future, st, err.text, &reply);
    return true;
}

static exo_status
call_actor(exo_actor *a, const char *name, exo_payload *args, exo_future *future, exo_err *err)
{
    const exo_method *method = find_method(a->actor_class, name);
    if (!method && run_control(a, name, future)) {
        exo_payload_release(args);
        return EXO_OK;
    }
    if (!method)
        return exo_fail(err, EXO_NOT_FOUND, "the class '%s' has no method '%s'", a->actor_class->name, name);
    exo_message *m = exo_calloc(1, sizeof *m);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for a call of '%s'", name);
    m->method = method;
    m->args = *args;
    m->future = exo_future_hold(future);
    exo_status st = enqueue(a, m, err);
    if (st == EXO_OK) {
        *args = (exo_payload){0};
        return EXO_OK;
    }
    exo_future_drop(&m->future);
    exo_free(m);
    return st;
}

exo_status
exo_call(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args, exo_time deadline, exo_future **out,
         exo_err *err)
{
    char cause[EXO_CAUSE];
    exo_future *future = NULL;
    exo_status st = EXO_OK;
    exo_actor *a = exo_runtime_find(runtime, actor);
    if (!a) {
        exo_runtime_cause(runtime, actor.id, cause, sizeof cause);
        st = exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s", cause);
    }
    if (st == EXO_OK)
        st = exo_future_new(&future, exo_runtime_clock(runtime), deadline, err);
    if (st == EXO_OK)
        st = call_actor(a, method, &args, future, err);
    exo_payload_release(&args); /* what was not moved */
    exo_actor_drop(a);
    if (st != EXO_OK)
        exo_future_drop(&future);
    else
        *out = future;
    return st;
}

exo_status
exo_send(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args, exo_time deadline, exo_err *err)
{
    exo_future *future = NULL;
    exo_status st = exo_call(runtime, actor, method, args, deadline, &future, err);
    exo_future_drop(&future);
    return st;
}

/* --- Stopping, linking, watching ----------------------------------------------------------------------------------------- */

static exo_status
find_living(exo_runtime *runtime, exo_ref ref, exo_actor **out, exo_err *err)
{
    char cause[EXO_CAUSE];
    *out = exo_runtime_find(runtime, ref);
    if (*out)
        return EXO_OK;
    exo_runtime_cause(runtime, ref.id, cause, sizeof cause);
    return exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s", cause);
}

exo_status
exo_stop(exo_runtime *runtime, exo_ref actor, bool drain, exo_err *err)
{
    exo_actor *a;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    if (!drain) {
        exo_actor_die(a, "stopped", false);
    } else {
        pthread_mutex_lock(&a->lock);
        if (a->state == EXO_ACTOR_ALIVE)
            a->state = EXO_ACTOR_DRAINING;
        pthread_mutex_unlock(&a->lock);
        stop_if_drained(a);
    }
    exo_actor_drop(a);
    return EXO_OK;
}

exo_status
exo_kill(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err)
{
    exo_actor *a;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_actor_die(a, cause && *cause ? cause : "killed", true);
    exo_actor_drop(a);
    return EXO_OK;
}

static bool
grow(void **array, size_t *cap, size_t count, size_t size)
{
    if (count < *cap)
        return true;
    size_t larger = *cap ? 2 * *cap : 4;
    void *memory = exo_realloc(*array, larger, size);
    if (!memory)
        return false;
    *array = memory;
    *cap = larger;
    return true;
}

/* Adds a link; PEER_LOST if it is dead by now. */
static exo_status
add_link(exo_actor *a, uint64_t to)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&a->lock);
    if (a->state == EXO_ACTOR_DEAD)
        st = EXO_PEER_LOST;
    else if (!grow((void **)&a->links, &a->cap_links, a->num_links, sizeof *a->links))
        st = EXO_NOMEM;
    else
        a->links[a->num_links++] = to;
    pthread_mutex_unlock(&a->lock);
    return st;
}

exo_status
exo_link(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err)
{
    exo_actor *first = NULL, *second = NULL;
    exo_status st = find_living(runtime, a, &first, err);
    if (st == EXO_OK)
        st = find_living(runtime, b, &second, err);
    if (st == EXO_OK) {
        st = add_link(first, b.id);
        if (st == EXO_OK)
            st = add_link(second, a.id);
        if (st == EXO_PEER_LOST && first->failed) /* it died between the two: the other one was not told */
            exo_actor_die(second, "linked to an actor that died meanwhile", true);
        if (st != EXO_OK)
            exo_fail(err, st, st == EXO_NOMEM ? "no memory for a link" : "one of the actors died meanwhile");
    }
    exo_actor_drop(first);
    exo_actor_drop(second);
    return st;
}

exo_status
exo_monitor(exo_runtime *runtime, exo_ref actor, exo_future **out, exo_err *err)
{
    exo_actor *a;
    exo_future *future = NULL;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    st = exo_future_new(&future, exo_runtime_clock(runtime), INT64_MAX, err);
    if (st == EXO_OK) {
        pthread_mutex_lock(&a->lock);
        if (a->state == EXO_ACTOR_DEAD)
            st = exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s", a->cause);
        else if (!grow((void **)&a->monitors, &a->cap_monitors, a->num_monitors, sizeof(exo_future *)))
            st = exo_fail(err, EXO_NOMEM, "no memory for a monitor");
        else
            a->monitors[a->num_monitors++] = exo_future_hold(future);
        pthread_mutex_unlock(&a->lock);
    }
    if (st != EXO_OK)
        exo_future_drop(&future);
    else
        *out = future;
    exo_actor_drop(a);
    return st;
}

/* --- Inside a method -------------------------------------------------------------------------------------------------------- */

exo_runtime *
exo_call_runtime(const exo_call_context *call)
{
    return call->runtime;
}

exo_ref
exo_call_self(const exo_call_context *call)
{
    return (exo_ref){.id = call->actor->id};
}

exo_time
exo_call_deadline(const exo_call_context *call)
{
    return call->message ? exo_future_deadline(call->message->future) : INT64_MAX;
}

bool
exo_call_cancelled(const exo_call_context *call)
{
    return atomic_load(&call->actor->stopping) || (call->message && exo_future_cancelled(call->message->future));
}

void
exo_call_die(exo_call_context *call, const char *cause)
{
    call->dies = true;
    snprintf(call->cause, sizeof call->cause, "%s", cause && *cause ? cause : "of its own accord");
}

/* --- Looking ---------------------------------------------------------------------------------------------------------------- */

/* Text that grows. */
struct text {
    char *data;
    size_t size, cap;
    bool failed;
};

static void append(struct text *t, const char *format, ...) EXO_PRINTF(2, 3);

static void
append(struct text *t, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (t->size + length + 1 > t->cap) {
        size_t cap = 2 * (t->size + length + 1);
        char *larger = exo_realloc(t->data, cap, 1);
        if (!larger) {
            t->failed = true;
            return;
        }
        t->data = larger;
        t->cap = cap;
    }
    memcpy(t->data + t->size, line, length + 1);
    t->size += length;
}

exo_status
exo_dump(exo_runtime *runtime, exo_ref actor, char **out, exo_err *err)
{
    static const char *const states[] = {"starting", "alive", "draining", "dead"};
    struct text text = {0};
    exo_actor *a;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_time now = exo_now(exo_runtime_clock(runtime));
    pthread_mutex_lock(&a->lock);
    append(&text, "actor=%s class=%s state=%s\n", actor_name(a), a->actor_class->name, states[a->state]);
    for (size_t i = 0; i < a->num_lanes; i++) {
        const exo_lane *lane = &a->lanes[i];
        append(&text, "lane=%s queued=%u running=%u", lane->lane_class->name, lane->queued, lane->running);
        for (const exo_message *m = lane->current; m; m = m->next)
            append(&text, " method=%s for_ms=%lld", m->method->name, (long long)((now - m->begun) / EXO_MS));
        append(&text, "\n");
    }
    pthread_mutex_unlock(&a->lock);
    exo_actor_drop(a);
    if (text.failed || !text.data) {
        exo_free(text.data);
        return exo_fail(err, EXO_NOMEM, "no memory for a dump");
    }
    *out = text.data;
    return EXO_OK;
}
