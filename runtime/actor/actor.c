/* Actors: creation, calls, stopping. See runtime_impl.h for locks and lifetimes. Read next:
 * death.c. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "actor/runtime_impl.h"
#include "base/grow_text.h"
#include "base/nearest.h"
#include "base/printable.h"

/* for exo_dump of another process's actor, as exo_dump takes no deadline */
#define DUMP_TIMEOUT (10 * EXO_SECOND)

static const exo_lane_class default_lane = {.name = "main"};

/* Refuses unknown roles, which are a mistake of the class's author. */
static exo_status
check_callers(const exo_actor_class *c, exo_err *err)
{
    const unsigned all = EXO_CALLERS_DRIVERS | EXO_CALLERS_WORKERS | EXO_CALLERS_ADMINS;
    if (c->callers & ~all)
        return exo_fail(err, EXO_INVAL,
                        "the class '%s' has callers 0x%x, which are none of exo_callers", c->name,
                        c->callers);
    for (size_t i = 0; i < c->num_methods; i++)
        if (c->methods[i].callers & ~all)
            return exo_fail(
                err, EXO_INVAL,
                "the method '%s' of the class '%s' has callers 0x%x, which are none of exo_callers",
                c->methods[i].name, c->name, c->methods[i].callers);
    return EXO_OK;
}

exo_status
exo_actor_new(exo_runtime *runtime, const exo_actor_class *actor_class, exo_actor **out,
              exo_err *err)
{
    size_t lanes = actor_class->lanes ? actor_class->num_lanes : 1;
    if (lanes < 1 || lanes > EXO_MAX_LANES)
        return exo_fail(err, EXO_INVAL, "the class '%s' has %zu lanes: 1 to %d are possible",
                        actor_class->name, lanes, EXO_MAX_LANES);
    for (size_t i = 0; i < actor_class->num_methods; i++)
        if (actor_class->methods[i].lane >= lanes)
            return exo_fail(err, EXO_INVAL,
                            "the method '%s' of the class '%s' names lane %u of %zu",
                            actor_class->methods[i].name, actor_class->name,
                            actor_class->methods[i].lane, lanes);
    exo_status st = check_callers(actor_class, err);
    if (st != EXO_OK)
        return st;
    size_t alignment = _Alignof(max_align_t), head = sizeof(exo_actor) + lanes * sizeof(exo_lane);
    head = (head + alignment - 1) / alignment * alignment;
    exo_actor *a = actor_class->state_size < SIZE_MAX - head
                       ? exo_calloc(1, head + actor_class->state_size)
                       : NULL;
    if (!a)
        return exo_fail(err, EXO_NOMEM, "no memory for an actor of the class '%s'",
                        actor_class->name);
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

void
exo_actor_free(exo_actor *actor)
{
    for (size_t i = 0; i < actor->num_lanes; i++)
        exo_lane_release(&actor->lanes[i]);
    pthread_mutex_destroy(&actor->lock);
    exo_ties_free(actor->ties);
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

/* --- Calls ------------------------------------------------------------------------------------ */

exo_status
exo_actor_fail_dead(exo_runtime *runtime, exo_ref ref, exo_err *err)
{
    char cause[EXO_CAUSE];
    if (ref.id == 0)
        return exo_fail(err, EXO_PEER_LOST,
                        "the reference is none (its id is 0): nothing was spawned or found for it");
    exo_runtime_cause(runtime, ref.id, cause, sizeof cause);
    return exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s", cause);
}

exo_status
exo_actor_find(exo_runtime *runtime, exo_ref ref, exo_actor **out, exo_err *err)
{
    *out = exo_runtime_find(runtime, ref);
    return *out ? EXO_OK : exo_actor_fail_dead(runtime, ref, err);
}

static const exo_method *
find_method(const exo_actor_class *c, const char *name)
{
    for (size_t i = 0; i < c->num_methods; i++)
        if (strcmp(c->methods[i].name, name) == 0)
            return &c->methods[i];
    return NULL;
}

static const char *const controls[] = {"ping", "dump", "stop"};

/* The reply of EXO_METHOD_METHODS; NULL: no memory. */
static char *
describe_methods(const exo_actor *a)
{
    exo_text text = {0};
    for (size_t i = 0; i < a->actor_class->num_methods; i++) {
        const exo_method *m = &a->actor_class->methods[i];
        const exo_lane_class *lane = a->lanes[m->lane].lane_class;
        exo_text_add(&text, "%s\t%s\t%s\t%s\n", m->name, lane->name,
                     lane->blocking ? "blocking" : "light", m->idempotent ? "idempotent" : "once");
    }
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
        if (!find_method(a->actor_class, controls[i]))
            exo_text_add(&text, "%s\tcontrol\tcontrol\tidempotent\n", controls[i]);
    if (!text.failed)
        return text.data;
    exo_free(text.data);
    return NULL;
}

/* Returns NOT_FOUND with the class's methods and the nearest name; the text is cut to the room in
 * `err`. */
static exo_status
fail_no_method(const exo_actor_class *c, const char *name, exo_err *err)
{
    exo_nearest nearest = {.word = name};
    exo_text known = {0};
    for (size_t i = 0; i < c->num_methods; i++) {
        exo_nearest_try(&nearest, c->methods[i].name);
        exo_text_add(&known, "%s, ", c->methods[i].name);
    }
    for (size_t i = 0; i < sizeof controls / sizeof *controls; i++) {
        exo_nearest_try(&nearest, controls[i]);
        exo_text_add(&known, "%s%s", i ? ", " : "", controls[i]);
    }
    const char *meant = exo_nearest_name(&nearest);
    exo_status st =
        exo_fail(err, EXO_NOT_FOUND, "the class '%s' has no method '%.60s'%s%s%s; it has %s",
                 c->name, name, meant ? " (did you mean '" : "", meant ? meant : "",
                 meant ? "'?)" : "", known.failed ? "" : known.data);
    exo_free(known.data);
    return st;
}

/* The control lane: methods of every actor, which run at once on the caller's thread. */
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
    } else if (strcmp(method, EXO_METHOD_METHODS) == 0) {
        text = describe_methods(a);
        st = text ? EXO_OK : exo_fail(&err, EXO_NOMEM, "no memory for a list of methods");
        if (text)
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
call_actor(exo_actor *a, const char *name, exo_payload *args, const exo_identity *caller,
           exo_future *future, exo_err *err)
{
    const exo_method *method = find_method(a->actor_class, name);
    if (!method && run_control(a, name, future)) {
        exo_payload_release(args);
        return EXO_OK;
    }
    if (!method)
        return fail_no_method(a->actor_class, name, err);
    exo_message *m = exo_future_message(future);
    m->method = method;
    m->args = *args;
    m->caller = exo_identity_hold(caller);
    m->future = exo_future_hold(future);
    exo_status st = exo_lane_put(&a->lanes[method->lane], m, err);
    if (st == EXO_OK)
        *args = (exo_payload){0};
    else
        exo_future_drop(&m->future);
    return st;
}

const exo_remote_ops *
exo_runtime_elsewhere(exo_runtime *runtime, exo_ref actor, void **context)
{
    const exo_remote_ops *remote =
        actor.id & EXO_REMOTE ? exo_runtime_remote(runtime, context) : NULL;
    return remote;
}

exo_status
exo_runtime_deliver(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload *args,
                    const exo_identity *caller, exo_future *future, exo_err *err)
{
    exo_actor *a;
    exo_status st = exo_actor_find(runtime, actor, &a, err);
    if (st == EXO_OK)
        st = call_actor(a, method, args, caller, future, err);
    exo_payload_release(args); /* unless it was moved */
    exo_actor_drop(a);
    return st;
}

exo_status
exo_call(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args,
         exo_time deadline, exo_future **out, exo_err *err)
{
    exo_future *future = NULL;
    void *context;
    const exo_remote_ops *remote = exo_runtime_elsewhere(runtime, actor, &context);
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK)
        st = exo_future_new(&future, exo_runtime_clock(runtime), deadline, err);
    if (st != EXO_OK)
        exo_payload_release(&args);
    else if (remote)
        st = remote->call(context, actor, method, &args, future, err);
    else
        st = exo_runtime_deliver(runtime, actor, method, &args, NULL, future, err);
    if (st != EXO_OK)
        exo_future_drop(&future);
    *out = future;
    return st;
}

exo_status
exo_call_wait(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args,
              exo_time deadline, exo_payload *reply, exo_err *err)
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
        exo_cancel(future); /* nobody will read its result any more */
    exo_future_drop(&future);
    return st;
}

exo_status
exo_send(exo_runtime *runtime, exo_ref actor, const char *method, exo_payload args,
         exo_time deadline, exo_err *err)
{
    exo_future *future = NULL;
    exo_status st = exo_call(runtime, actor, method, args, deadline, &future, err);
    exo_future_drop(&future);
    return st;
}

/* --- Stopping --------------------------------------------------------------------------------- */

exo_status
exo_stop(exo_runtime *runtime, exo_ref actor, bool drain, exo_err *err)
{
    exo_actor *a;
    void *context;
    const exo_remote_ops *remote = exo_runtime_elsewhere(runtime, actor, &context);
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK && remote)
        return remote->stop(context, actor, drain, err);
    if (st == EXO_OK)
        st = exo_actor_find(runtime, actor, &a, err);
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
exo_runtime_stop(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err)
{
    exo_actor *a;
    exo_status st = exo_actor_find(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_actor_die(a, cause && *cause ? cause : "stopped", false);
    exo_actor_drop(a);
    return EXO_OK;
}

exo_status
exo_kill(exo_runtime *runtime, exo_ref actor, const char *cause, exo_err *err)
{
    exo_actor *a;
    void *context;
    const exo_remote_ops *remote = exo_runtime_elsewhere(runtime, actor, &context);
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK && remote)
        return remote->kill(context, actor, cause, err);
    if (st == EXO_OK)
        st = exo_actor_find(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_actor_die(a, cause && *cause ? cause : "killed", true);
    exo_actor_drop(a);
    return EXO_OK;
}

/* --- References in messages ------------------------------------------------------------------- */

exo_status
exo_ref_export(exo_runtime *runtime, exo_ref actor, exo_actor_id *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    exo_status own = exo_runtime_check_own(runtime, err);
    if (own != EXO_OK)
        return own;
    if (remote)
        return remote->export(context, actor, out, err);
    *out = (exo_actor_id){.id = actor.id};
    return EXO_OK;
}

exo_status
exo_ref_import(exo_runtime *runtime, const exo_actor_id *id, exo_time deadline, exo_ref *out,
               exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    exo_status own = exo_runtime_check_own(runtime, err);
    if (own != EXO_OK)
        return own;
    if (remote)
        return remote->import(context, id, deadline, out, err);
    if (id->node != 0 || (id->id & EXO_REMOTE))
        return exo_fail(err, EXO_PEER_LOST,
                        "the actor is of another process, and this one belongs to no cluster");
    out->id = id->id;
    return EXO_OK;
}

/* --- Inside a method -------------------------------------------------------------------------- */

exo_runtime *
exo_call_runtime(const exo_call_context *call)
{
    return call->runtime;
}

size_t
exo_actor_gpus(exo_runtime *runtime, exo_ref actor, uint32_t *out, size_t most)
{
    exo_actor *a = exo_runtime_find(runtime, actor);
    size_t count = 0;
    for (uint32_t g = 0; a && g < EXO_MAX_GPUS; g++)
        if (a->gpus >> g & 1) {
            if (count < most)
                out[count] = g;
            count++;
        }
    exo_actor_drop(a);
    return count;
}

uint32_t
exo_actor_place(exo_runtime *runtime, exo_ref actor, uint32_t otherwise)
{
    uint32_t gpu;
    return exo_actor_gpus(runtime, actor, &gpu, 1) > 0 ? gpu : otherwise;
}

exo_ref
exo_call_self(const exo_call_context *call)
{
    return (exo_ref){.id = call->actor->id};
}

const exo_identity *
exo_call_identity(const exo_call_context *call)
{
    return call->message ? call->message->caller : NULL;
}

uint64_t
exo_call_node(const exo_call_context *call)
{
    const exo_identity *who = exo_call_identity(call);
    return who ? who->node : 0;
}

const char *
exo_call_method(const exo_call_context *call)
{
    return call->message ? call->message->method->name : "";
}

exo_time
exo_call_deadline(const exo_call_context *call)
{
    return call->message ? exo_future_deadline(call->message->future) : INT64_MAX;
}

exo_future *
exo_call_defer(exo_call_context *call)
{
    exo_future *future = exo_future_hold(call->message->future);
    call->deferred = exo_actor_tie_deferred(call->actor, future);
    if (!call->deferred)
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
    return atomic_load(&call->actor->stopping) ||
           (call->message && exo_future_cancelled(call->message->future));
}

void
exo_call_die(exo_call_context *call, const char *cause)
{
    call->dies = true;
    exo_cut(call->cause, sizeof call->cause, cause && *cause ? cause : "of its own accord");
}

/* --- Inspection ------------------------------------------------------------------------------- */

/* The actor's own process writes the dump, on the control lane. */
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
    exo_text text = {0};
    exo_actor *a;
    void *context;
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK && exo_runtime_elsewhere(runtime, actor, &context))
        return dump_elsewhere(runtime, actor, out, err);
    if (st == EXO_OK)
        st = exo_actor_find(runtime, actor, &a, err);
    if (st != EXO_OK)
        return st;
    exo_time now = exo_now(exo_runtime_clock(runtime));
    pthread_mutex_lock(&a->lock);
    exo_text_add(&text, "actor=%s class=%s state=%s\n", exo_actor_name(a), a->actor_class->name,
                 states[a->state]);
    for (size_t i = 0; i < a->num_lanes; i++) {
        const exo_lane *lane = &a->lanes[i];
        exo_text_add(&text, "lane=%s queued=%u running=%u", lane->lane_class->name,
                     atomic_load(&lane->queued), lane->running);
        for (const exo_message *m = lane->current; m; m = m->next)
            exo_text_add(&text, " method=%s for_ms=%lld", m->method->name,
                         (long long)((now - m->begun) / EXO_MS));
        exo_text_add(&text, "\n");
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
