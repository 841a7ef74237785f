/* Actors: life, death, calls. See runtime_impl.h for locks and lifetimes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "runtime_impl.h"

#define DUMP_TIMEOUT (10 * EXO_SECOND) /* of another process, which exo_dump has no deadline for */

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
    size_t alignment = _Alignof(max_align_t), head = sizeof(exo_actor) + lanes * sizeof(exo_lane);
    head = (head + alignment - 1) / alignment * alignment;
    exo_actor *a = actor_class->state_size < SIZE_MAX - head ? exo_calloc(1, head + actor_class->state_size) : NULL;
    if (!a)
        return exo_fail(err, EXO_NOMEM, "no memory for an actor of the class '%s'", actor_class->name);
    a->runtime = runtime;
    a->actor_class = actor_class;
    a->self = (char *)a + head;
    a->num_lanes = (uint8_t)lanes;
    pthread_mutex_init(&a->lock, NULL);
    for (size_t i = 0; i < lanes; i++)
        exo_lane_init(&a->lanes[i], a, actor_class->lanes ? &actor_class->lanes[i] : &default_lane);
    *out = a;
    return EXO_OK;
}

static void
free_ties(struct exo_ties *ties)
{
    if (!ties)
        return;
    exo_free(ties->links);
    exo_free(ties->monitors);
    exo_free(ties->deferred);
    exo_free(ties);
}

void
exo_actor_free(exo_actor *actor)
{
    for (size_t i = 0; i < actor->num_lanes; i++)
        exo_lane_release(&actor->lanes[i]);
    pthread_mutex_destroy(&actor->lock);
    free_ties(actor->ties);
    exo_free(actor->entry);
    exo_free(actor);
}

const char *
exo_actor_name(const exo_actor *actor)
{
    return actor->name ? actor->name : actor->actor_class->name;
}

void
exo_actor_open(exo_actor *actor)
{
    pthread_mutex_lock(&actor->lock);
    if (actor->state == EXO_ACTOR_STARTING) {
        actor->state = actor->drains ? EXO_ACTOR_DRAINING : EXO_ACTOR_ALIVE;
        for (size_t i = 0; i < actor->num_lanes; i++)
            exo_lane_open_locked(&actor->lanes[i]);
    }
    bool drains = actor->drains;
    pthread_mutex_unlock(&actor->lock);
    if (drains)
        exo_actor_rest(actor);
}

/* --- Death ----------------------------------------------------------------------------------------------------------------- */

static bool
runs_nothing_locked(const exo_actor *a)
{
    for (size_t i = 0; i < a->num_lanes; i++)
        if (a->lanes[i].running)
            return false;
    return true;
}

/* Runs stop for a dead actor of which nothing runs any more. */
static void
settle(exo_actor *a)
{
    pthread_mutex_lock(&a->lock);
    bool mine = a->state == EXO_ACTOR_DEAD && !a->settled && runs_nothing_locked(a);
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
    exo_actor_drop(a); /* the reference of being alive */
}

/* What a death leaves to be done when the lock is free again. */
struct last_will {
    exo_message *queued[EXO_MAX_LANES];
    exo_future **running; /* held futures of the calls that run */
    size_t num_running;
    struct exo_ties *ties;
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
    for (size_t i = 0; i < a->num_lanes; i++) {
        exo_lane_close_locked(&a->lanes[i]);
        will->queued[i] = exo_lane_take_queue_locked(&a->lanes[i]);
    }
    take_running_locked(a, will);
    will->ties = a->ties;
    a->ties = NULL;
}

static void
execute_will(exo_actor *a, struct last_will *will, const char *cause, bool failure)
{
    static struct exo_ties none;
    const struct exo_ties *ties = will->ties ? will->ties : &none;
    exo_status status = failure ? EXO_PEER_LOST : EXO_CANCELLED;
    char reason[EXO_CAUSE + 96], theirs[EXO_CAUSE + 96];
    snprintf(reason, sizeof reason, "the actor '%s' %s: %s", exo_actor_name(a), failure ? "died" : "was stopped",
             cause);
    snprintf(theirs, sizeof theirs, "linked to '%s', which died: %.160s", exo_actor_name(a), cause);
    for (size_t i = 0; i < a->num_lanes; i++) {
        for (exo_message *m = will->queued[i], *next; m; m = next) {
            next = m->next;
            exo_future_complete(m->future, status, reason, NULL);
            exo_message_free(m);
        }
    }
    for (size_t i = 0; i < will->num_running; i++) {
        if (failure)
            exo_future_complete(will->running[i], EXO_PEER_LOST, reason, NULL);
        exo_future_drop(&will->running[i]);
    }
    /* Only now: a method that sees the flag and gives up must not answer before its caller has heard of the death. */
    atomic_store(&a->stopping, true);
    for (size_t i = 0; i < ties->num_monitors; i++) {
        exo_future_complete(ties->monitors[i], failure ? EXO_PEER_LOST : EXO_OK, failure ? reason : NULL, NULL);
        exo_future_drop(&ties->monitors[i]);
    }
    for (size_t i = 0; i < ties->num_deferred; i++) {
        exo_future_complete(ties->deferred[i], status, reason, NULL);
        exo_future_drop(&ties->deferred[i]);
    }
    for (size_t i = 0; failure && i < ties->num_links; i++)
        exo_kill(a->runtime, (exo_ref){.id = ties->links[i]}, theirs, NULL);
    exo_free(will->running);
    free_ties(will->ties);
}

void
exo_actor_die(exo_actor *actor, const char *cause, bool failure)
{
    exo_actor *a = actor;
    struct last_will will = {0};
    char line[EXO_CAUSE];
    snprintf(line, sizeof line, "%s", cause);
    /* Out of the table before anything else: whoever hears of the death finds the name free, and only one caller gets past here. */
    if (!exo_runtime_forget(a->runtime, a, line))
        return;
    pthread_mutex_lock(&a->lock);
    a->state = EXO_ACTOR_DEAD;
    a->failed = failure;
    take_will_locked(a, &will);
    pthread_mutex_unlock(&a->lock);
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(a->runtime, &context);
    if (remote)
        remote->died(context, exo_actor_space(a), a->name, (exo_ref){.id = a->id}, line, failure);
    execute_will(a, &will, line, failure);
    settle(a);
}

void
exo_actor_rest(exo_actor *actor)
{
    pthread_mutex_lock(&actor->lock);
    bool drained = actor->state == EXO_ACTOR_DRAINING && runs_nothing_locked(actor);
    for (size_t i = 0; drained && i < actor->num_lanes; i++)
        drained = !actor->lanes[i].first;
    pthread_mutex_unlock(&actor->lock);
    if (drained)
        exo_actor_die(actor, "stopped", false);
    settle(actor);
}

/* --- Calls ------------------------------------------------------------------------------------------------------------------ */

static exo_status
fail_dead(exo_runtime *runtime, exo_ref ref, exo_err *err)
{
    char cause[EXO_CAUSE];
    exo_runtime_cause(runtime, ref.id, cause, sizeof cause);
    return exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s", cause);
}

/* The actor, held, or PEER_LOST. */
static exo_status
find_living(exo_runtime *runtime, exo_ref ref, exo_actor **out, exo_err *err)
{
    *out = exo_runtime_find(runtime, ref);
    return *out ? EXO_OK : fail_dead(runtime, ref, err);
}

static const exo_method *
find_method(const exo_actor_class *c, const char *name)
{
    for (size_t i = 0; i < c->num_methods; i++)
        if (strcmp(c->methods[i].name, name) == 0)
            return &c->methods[i];
    return NULL;
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
    exo_message *m = exo_future_message(future);
    m->method = method;
    m->args = *args;
    m->future = exo_future_hold(future);
    exo_status st = exo_lane_put(&a->lanes[method->lane], m, err);
    if (st == EXO_OK)
        *args = (exo_payload){0};
    else
        exo_future_drop(&m->future);
    return st;
}

/* What is elsewhere, for a reference that says that it is. */
static const exo_remote_ops *
elsewhere(exo_runtime *runtime, exo_ref actor, void **context)
{
    const exo_remote_ops *remote = actor.id & EXO_REMOTE ? exo_runtime_remote(runtime, context) : NULL;
    return remote;
}

exo_status
exo_runtime_deliver(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload *args, exo_future *future,
                    exo_err *err)
{
    exo_actor *a;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st == EXO_OK)
        st = call_actor(a, method, args, future, err);
    exo_payload_release(args); /* what was not moved */
    exo_actor_drop(a);
    return st;
}

exo_status
exo_call(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args, exo_time deadline, exo_future **out,
         exo_err *err)
{
    exo_future *future = NULL;
    void *context;
    const exo_remote_ops *remote = elsewhere(runtime, actor, &context);
    exo_status st = exo_future_new(&future, exo_runtime_clock(runtime), deadline, err);
    if (st != EXO_OK)
        exo_payload_release(&args);
    else if (remote)
        st = remote->call(context, actor, method, &args, future, err);
    else
        st = exo_runtime_deliver(runtime, actor, method, &args, future, err);
    if (st != EXO_OK)
        exo_future_drop(&future);
    else
        *out = future;
    return st;
}

exo_status
exo_call_wait(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args, exo_time deadline,
              exo_payload *reply, exo_err *err)
{
    exo_future *future = NULL;
    exo_status st = exo_call(runtime, actor, method, args, deadline, &future, err);
    if (reply)
        *reply = (exo_payload){0};
    if (st == EXO_OK)
        st = exo_wait(future, deadline, NULL, err);
    if (st == EXO_OK && reply)
        exo_future_take(future, reply, NULL);
    else if (st == EXO_TIMEOUT && future)
        exo_cancel(future); /* nobody will look at it any more */
    exo_future_drop(&future);
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

exo_status
exo_stop(exo_runtime *runtime, exo_ref actor, bool drain, exo_err *err)
{
    exo_actor *a;
    void *context;
    const exo_remote_ops *remote = elsewhere(runtime, actor, &context);
    if (remote)
        return remote->stop(context, actor, drain, err);
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    if (!drain) {
        exo_actor_die(a, "stopped", false);
    } else {
        pthread_mutex_lock(&a->lock);
        if (a->state == EXO_ACTOR_STARTING || a->state == EXO_ACTOR_ALIVE) {
            a->drains = true;
            a->state = a->state == EXO_ACTOR_ALIVE ? EXO_ACTOR_DRAINING : a->state;
            for (size_t i = 0; i < a->num_lanes; i++)
                exo_lane_close_locked(&a->lanes[i]);
        }
        pthread_mutex_unlock(&a->lock);
        exo_actor_rest(a);
    }
    exo_actor_drop(a);
    return EXO_OK;
}

exo_status
exo_kill(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err)
{
    exo_actor *a;
    void *context;
    const exo_remote_ops *remote = elsewhere(runtime, actor, &context);
    if (remote)
        return remote->kill(context, actor, cause, err);
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

/* Those that are complete make room for others. */
static void
drop_done_locked(exo_future **futures, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (exo_future_ready(futures[i]))
            exo_future_drop(&futures[i]);
        else
            futures[kept++] = futures[i];
    }
    *count = kept;
}

static struct exo_ties *
make_ties_locked(exo_actor *a)
{
    if (!a->ties)
        a->ties = exo_calloc(1, sizeof *a->ties);
    return a->ties;
}

/* Adds a link; PEER_LOST if it is dead by now. */
static exo_status
add_link(exo_actor *a, uint64_t to)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&a->lock);
    if (a->state == EXO_ACTOR_DEAD)
        st = EXO_PEER_LOST;
    else if (!make_ties_locked(a) ||
             !grow((void **)&a->ties->links, &a->ties->cap_links, a->ties->num_links, sizeof *a->ties->links))
        st = EXO_NOMEM;
    else
        a->ties->links[a->ties->num_links++] = to;
    pthread_mutex_unlock(&a->lock);
    return st;
}

static exo_status
link_local(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err)
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
exo_runtime_monitor(exo_runtime *runtime, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_actor *a;
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&a->lock);
    struct exo_ties *ties = a->state == EXO_ACTOR_DEAD ? NULL : make_ties_locked(a);
    if (ties && ties->num_monitors == ties->cap_monitors)
        drop_done_locked(ties->monitors, &ties->num_monitors);
    if (a->state == EXO_ACTOR_DEAD)
        st = EXO_PEER_LOST;
    else if (!ties || !grow((void **)&ties->monitors, &ties->cap_monitors, ties->num_monitors, sizeof(exo_future *)))
        st = exo_fail(err, EXO_NOMEM, "no memory for a monitor");
    else
        ties->monitors[ties->num_monitors++] = exo_future_hold(future);
    pthread_mutex_unlock(&a->lock);
    if (st == EXO_PEER_LOST)
        st = fail_dead(runtime, actor, err);
    exo_actor_drop(a);
    return st;
}

exo_status
exo_monitor(exo_runtime *runtime, exo_ref actor, exo_future **out, exo_err *err)
{
    exo_future *future = NULL;
    void *context;
    const exo_remote_ops *remote = elsewhere(runtime, actor, &context);
    exo_status st = exo_future_new(&future, exo_runtime_clock(runtime), INT64_MAX, err);
    if (st == EXO_OK)
        st = remote ? remote->monitor(context, actor, future, err) : exo_runtime_monitor(runtime, actor, future, err);
    if (st != EXO_OK)
        exo_future_drop(&future);
    else
        *out = future;
    return st;
}

/* One direction of a link to or from another process: when the one dies of a failure, the other is killed. */
struct far_link {
    exo_runtime *runtime;
    exo_ref other;
    exo_future *future; /* held: the monitor */
};

static void
far_link_done(void *context, uint64_t tag, exo_future *future)
{
    struct far_link *link = context;
    exo_err err = {0};
    char cause[EXO_CAUSE];
    (void)tag;
    if (exo_wait(future, INT64_MAX, NULL, &err) == EXO_PEER_LOST) {
        snprintf(cause, sizeof cause, "linked: %.240s", err.text);
        exo_kill(link->runtime, link->other, cause, NULL);
    }
    exo_future_drop(&link->future);
    exo_free(link);
}

static const exo_future_hook far_link_hook = {.done = far_link_done};

/* A local actor's monitor has the hook itself; a remote one's future is hooked to its call, so a local one stands behind it. */
static exo_status
watch_for_link(exo_runtime *runtime, exo_ref actor, exo_ref other, exo_err *err)
{
    struct far_link *link = exo_calloc(1, sizeof *link);
    if (!link)
        return exo_fail(err, EXO_NOMEM, "no memory for a link");
    link->runtime = runtime;
    link->other = other;
    exo_status st = exo_monitor(runtime, actor, &link->future, err);
    if (st != EXO_OK) {
        exo_free(link);
        return st;
    }
    exo_future *future = exo_future_hold(link->future);
    exo_future_set_hook(future, &far_link_hook, link, 0);
    exo_future_drop(&future);
    return EXO_OK;
}

exo_status
exo_link(exo_runtime *runtime, exo_ref a, exo_ref b, exo_err *err)
{
    if (!((a.id | b.id) & EXO_REMOTE))
        return link_local(runtime, a, b, err);
    exo_status st = watch_for_link(runtime, a, b, err);
    return st == EXO_OK ? watch_for_link(runtime, b, a, err) : st;
}

/* --- References in messages -------------------------------------------------------------------------------------------------- */

exo_status
exo_ref_export(exo_runtime *runtime, exo_ref actor, exo_actor_id *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    if (remote)
        return remote->export(context, actor, out, err);
    *out = (exo_actor_id){.id = actor.id};
    return EXO_OK;
}

exo_status
exo_ref_import(exo_runtime *runtime, const exo_actor_id *id, exo_time deadline, exo_ref *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    if (remote)
        return remote->import(context, id, deadline, out, err);
    if (id->node != 0 || (id->id & EXO_REMOTE))
        return exo_fail(err, EXO_PEER_LOST, "the actor is of another process, and this one belongs to no cluster");
    out->id = id->id;
    return EXO_OK;
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

exo_future *
exo_call_defer(exo_call_context *call)
{
    exo_actor *a = call->actor;
    exo_future *future = exo_future_hold(call->message->future);
    pthread_mutex_lock(&a->lock);
    struct exo_ties *ties = a->state == EXO_ACTOR_DEAD ? NULL : make_ties_locked(a);
    if (ties && ties->num_deferred == ties->cap_deferred)
        drop_done_locked(ties->deferred, &ties->num_deferred);
    bool kept = ties && grow((void **)&ties->deferred, &ties->cap_deferred, ties->num_deferred, sizeof(exo_future *));
    if (kept)
        ties->deferred[ties->num_deferred++] = exo_future_hold(future);
    pthread_mutex_unlock(&a->lock);
    call->deferred = kept;
    if (!kept)
        exo_future_drop(&future);
    return future;
}

void
exo_reply(exo_future **deferred, exo_status status, const char *reason, exo_payload *reply)
{
    if (status != EXO_OK && reply)
        exo_payload_release(reply);
    exo_future_complete(*deferred, status, reason, status == EXO_OK ? reply : NULL);
    exo_future_drop(deferred);
}

void
exo_call_take_args(exo_call_context *call, exo_payload *out)
{
    *out = (exo_payload){0};
    if (!call->message)
        return;
    *out = call->message->args;
    call->message->args = (exo_payload){0};
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

/* The control lane there has it. */
static exo_status
dump_elsewhere(exo_runtime *runtime, exo_ref actor, char **out, exo_err *err)
{
    exo_future *future = NULL;
    const exo_payload *reply = NULL;
    exo_time deadline = exo_deadline(exo_runtime_clock(runtime), DUMP_TIMEOUT);
    exo_status st = exo_call(runtime, actor, "dump", (exo_payload){0}, deadline, &future, err);
    if (st == EXO_OK)
        st = exo_wait(future, deadline, &reply, err);
    if (st == EXO_OK) {
        *out = exo_calloc(1, reply->size + 1);
        if (*out)
            memcpy(*out, reply->data, reply->size);
        else
            st = exo_fail(err, EXO_NOMEM, "no memory for a dump");
    }
    exo_future_drop(&future);
    return st;
}

exo_status
exo_dump(exo_runtime *runtime, exo_ref actor, char **out, exo_err *err)
{
    static const char *const states[] = {"starting", "alive", "draining", "dead"};
    struct text text = {0};
    exo_actor *a;
    void *context;
    if (elsewhere(runtime, actor, &context))
        return dump_elsewhere(runtime, actor, out, err);
    exo_status st = find_living(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_time now = exo_now(exo_runtime_clock(runtime));
    pthread_mutex_lock(&a->lock);
    append(&text, "actor=%s class=%s state=%s\n", exo_actor_name(a), a->actor_class->name, states[a->state]);
    for (size_t i = 0; i < a->num_lanes; i++) {
        const exo_lane *lane = &a->lanes[i];
        append(&text, "lane=%s queued=%u running=%u", lane->lane_class->name, atomic_load(&lane->queued),
               lane->running);
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
