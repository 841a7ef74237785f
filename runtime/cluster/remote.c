/* Calls between runtimes: see remote.h.
 *
 * One lock guards references, pending and serving calls; it is held for moments, and never while a future is completed or a message is
 * sent. A pending call's number is (generation << 32 | slot + 1), a reference's likewise under EXO_REMOTE, so that what comes late finds
 * nothing. */
#include "remote.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <uthash.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "store.h"

enum {
    WINDOW = 65536,      /* calls that one connection may have pending                              */
    SERVED = 2 * WINDOW, /* and of its peer's, which may have given some of them up, may be going on */
    CAUSE = 256,
    GENERATION = 0x7fffffff,
    OBJECT_BYTES = 256 * 1024 /* payloads from here on go to processes of this host in shared memory */
};

/* Methods that every actor has for other processes, besides the control lane's. */
#define METHOD_MONITOR "$monitor"
#define METHOD_KILL    "$kill"
#define METHOD_STOP    "$stop"
#define METHOD_DRAIN   "$drain"

struct key {
    uint64_t node, id;
};

/* An actor of another process. */
struct reference {
    struct key key;
    exo_peer *peer; /* held; NULL: free or dead */
    char *system;   /* the name of a system actor; NULL: key.id is its reference */
    uint32_t index; /* its own */
    uint32_t generation;
    uint32_t next_free; /* index + 1 */
    bool suspect;
    char *cause; /* of a dead one, until the slot is used again */
    UT_hash_handle hh;
};

struct pending {
    exo_future *future; /* held; NULL: free */
    exo_object *lent;   /* held: the arguments, until the callee has them; may be NULL */
    exo_ref actor;
    bool watches; /* a monitor: its reply is a death */
    struct channel *channel;
    uint32_t generation;
    uint32_t next_free;  /* index + 1 */
    uint32_t prev, next; /* of the channel, index + 1 */
};

struct serving {
    exo_remote *remote;
    struct {
        const exo_peer *peer;
        uint64_t id;
    } key;
    exo_peer *peer;          /* held */
    struct channel *channel; /* of the peer; it counts this */
    exo_future *future;      /* held until the reply is out */
    UT_hash_handle hh;
};

/* An object that went with a reply, held until the caller has it. */
struct loan {
    struct {
        const exo_peer *peer;
        uint64_t id;
    } key;
    exo_object *object;
    UT_hash_handle hh;
};

/* What there is about one connection. Freed with the remote, and used again after it is closed. */
struct channel {
    exo_peer *peer; /* held while open */
    uint32_t first; /* pending, index + 1 */
    uint32_t num_pending;
    uint32_t num_serving;
    bool closed;
    struct channel *next;
};

struct exo_remote {
    exo_runtime *runtime;
    exo_net *net;
    const exo_remote_events *events;
    void *context;
    pthread_mutex_t lock;
    struct reference **references; /* guarded by lock, as all below */
    size_t num_references, cap_references;
    uint32_t free_reference;
    struct reference *by_key;
    struct pending *pending;
    size_t num_pending, cap_pending;
    uint32_t free_pending;
    struct serving *serving;
    struct loan *loans;
    struct channel *channels;
    bool closed;
};

/* --- References --------------------------------------------------------------------------------------------------------------- */

static struct reference *
find_reference_locked(exo_remote *r, exo_ref actor)
{
    uint64_t index = actor.id & UINT32_MAX;
    if (index == 0 || index > r->num_references)
        return NULL;
    struct reference *ref = r->references[index - 1];
    return ref->generation == ((actor.id & ~EXO_REMOTE) >> 32) ? ref : NULL;
}

static struct reference *
new_reference_locked(exo_remote *r)
{
    if (r->free_reference) {
        struct reference *ref = r->references[r->free_reference - 1];
        r->free_reference = ref->next_free;
        ref->generation = ref->generation % GENERATION + 1;
        ref->suspect = false;
        exo_free(ref->cause);
        ref->cause = NULL;
        return ref;
    }
    if (r->num_references == r->cap_references) {
        size_t cap = r->cap_references ? 2 * r->cap_references : 64;
        struct reference **larger = cap < UINT32_MAX ? exo_realloc(r->references, cap, sizeof *larger) : NULL;
        if (!larger)
            return NULL;
        r->references = larger;
        r->cap_references = cap;
    }
    struct reference *ref = exo_calloc(1, sizeof *ref);
    if (!ref)
        return NULL;
    ref->generation = 1;
    ref->index = (uint32_t)r->num_references;
    r->references[r->num_references++] = ref;
    return ref;
}

static struct channel *get_channel_locked(exo_remote *r, exo_peer *peer);

static uint64_t
hash_text(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

static exo_status
get_reference(exo_remote *r, exo_peer *peer, uint64_t id, const char *system, exo_ref *out, exo_err *err)
{
    struct key key = {.node = exo_peer_node(peer), .id = system ? hash_text(system) : id};
    struct reference *ref = NULL;
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->by_key, &key, sizeof key, ref);
    if (ref && ref->peer != peer && !exo_peer_is_open(ref->peer)) {
        exo_peer_drop(&ref->peer); /* another connection to the same process */
        ref->peer = exo_peer_hold(peer);
    }
    if (!ref && !exo_peer_is_open(peer)) {
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost", exo_peer_name(peer));
    } else if (!ref) {
        char *name = system ? exo_strdup(system) : NULL;
        ref = name || !system ? new_reference_locked(r) : NULL;
        if (ref) {
            ref->key = key;
            ref->peer = exo_peer_hold(peer);
            ref->system = name;
            HASH_ADD(hh, r->by_key, key, sizeof key, ref);
        } else {
            exo_free(name);
            st = exo_fail(err, EXO_NOMEM, "no memory for a reference");
        }
    }
    if (st == EXO_OK) {
        out->id = EXO_REMOTE | (uint64_t)ref->generation << 32 | (ref->index + 1);
        if (exo_peer_is_open(peer))
            get_channel_locked(r, peer); /* exo_remote_peer finds it from now on, called through or not */
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

exo_status
exo_remote_actor(exo_remote *remote, exo_peer *peer, uint64_t id, exo_ref *out, exo_err *err)
{
    return get_reference(remote, peer, id, NULL, out, err);
}

exo_status
exo_remote_system(exo_remote *remote, exo_peer *peer, const char *name, exo_ref *out, exo_err *err)
{
    return get_reference(remote, peer, 0, name, out, err);
}

/* Ends a reference; its cause stays until the slot is needed. */
static void
bury_reference_locked(exo_remote *r, struct reference *ref, const char *cause)
{
    HASH_DEL(r->by_key, ref);
    exo_peer_drop(&ref->peer);
    exo_free(ref->system);
    ref->system = NULL;
    ref->cause = exo_strdup(cause);
    ref->next_free = r->free_reference;
    r->free_reference = ref->index + 1;
}

exo_peer *
exo_remote_peer(exo_remote *remote, uint64_t node)
{
    exo_peer *found = NULL;
    pthread_mutex_lock(&remote->lock);
    for (struct channel *c = remote->channels; c && !found; c = c->next)
        if (!c->closed && exo_peer_node(c->peer) == node && exo_peer_is_open(c->peer))
            found = exo_peer_hold(c->peer);
    pthread_mutex_unlock(&remote->lock);
    return found;
}

bool
exo_remote_locate(exo_remote *remote, exo_ref actor, uint64_t *node, uint64_t *id)
{
    pthread_mutex_lock(&remote->lock);
    const struct reference *ref = find_reference_locked(remote, actor);
    bool there = ref && ref->peer;
    if (there) {
        *node = ref->key.node;
        *id = ref->system ? 0 : ref->key.id;
    }
    pthread_mutex_unlock(&remote->lock);
    return there;
}

bool
exo_remote_is_suspect(exo_remote *remote, exo_ref actor)
{
    pthread_mutex_lock(&remote->lock);
    const struct reference *ref = find_reference_locked(remote, actor);
    bool suspect = ref && ref->suspect;
    pthread_mutex_unlock(&remote->lock);
    return suspect;
}

exo_status
exo_remote_cause(void *context, exo_ref actor, char *text, size_t size)
{
    exo_remote *r = context;
    pthread_mutex_lock(&r->lock);
    const struct reference *ref = find_reference_locked(r, actor);
    bool dead = ref && !ref->peer && ref->cause;
    if (dead)
        snprintf(text, size, "%s", ref->cause);
    pthread_mutex_unlock(&r->lock);
    return dead ? EXO_OK : EXO_NOT_FOUND;
}

/* --- Channels ----------------------------------------------------------------------------------------------------------------- */

/* An open connection's; made when it is first used. */
static struct channel *
get_channel_locked(exo_remote *r, exo_peer *peer)
{
    struct channel *c = exo_peer_user(peer);
    if (c)
        return c;
    for (c = r->channels; c && !c->closed; c = c->next) /* a closed one is used again */
        continue;
    if (!c) {
        c = exo_calloc(1, sizeof *c);
        if (!c)
            return NULL;
        c->next = r->channels;
        r->channels = c;
    }
    c->closed = false;
    c->peer = exo_peer_hold(peer);
    exo_peer_set_user(peer, c);
    return c;
}

/* --- Pending calls ------------------------------------------------------------------------------------------------------------ */

static struct pending *
find_pending_locked(exo_remote *r, uint64_t id)
{
    uint64_t index = id & UINT32_MAX;
    if (index == 0 || index > r->num_pending)
        return NULL;
    struct pending *p = &r->pending[index - 1];
    return p->future && p->generation == id >> 32 ? p : NULL;
}

static struct pending *
new_pending_locked(exo_remote *r, struct channel *channel, exo_ref actor, bool watches, exo_future *future,
                   uint64_t *id)
{
    if (!r->free_pending) {
        size_t cap = r->cap_pending ? 2 * r->cap_pending : 256;
        struct pending *larger = exo_realloc(r->pending, cap, sizeof *larger);
        if (!larger)
            return NULL;
        r->pending = larger;
        for (size_t i = r->cap_pending; i < cap; i++)
            r->pending[i] = (struct pending){.next_free = i + 1 < cap ? (uint32_t)(i + 2) : 0};
        r->free_pending = (uint32_t)(r->cap_pending + 1);
        r->cap_pending = r->num_pending = cap;
    }
    uint32_t index = r->free_pending - 1;
    struct pending *p = &r->pending[index];
    r->free_pending = p->next_free;
    p->generation = p->generation % GENERATION + 1;
    p->future = exo_future_hold(future);
    p->actor = actor;
    p->watches = watches;
    p->channel = channel;
    p->prev = 0;
    p->next = channel->first;
    if (channel->first)
        r->pending[channel->first - 1].prev = index + 1;
    channel->first = index + 1;
    channel->num_pending++;
    *id = (uint64_t)p->generation << 32 | (index + 1);
    return p;
}

/* What a call held that is not pending any more. */
struct taken {
    exo_future *future;
    exo_object *lent;
};

static struct taken
take_pending_locked(exo_remote *r, struct pending *p)
{
    uint32_t index = (uint32_t)(p - r->pending);
    struct taken taken = {.future = p->future, .lent = p->lent};
    p->future = NULL;
    p->lent = NULL;
    if (p->prev)
        r->pending[p->prev - 1].next = p->next;
    else
        p->channel->first = p->next;
    if (p->next)
        r->pending[p->next - 1].prev = p->prev;
    p->channel->num_pending--;
    p->next_free = r->free_pending;
    r->free_pending = index + 1;
    return taken;
}

static void
release_taken(struct taken *taken)
{
    exo_object_drop(&taken->lent);
    exo_future_drop(&taken->future);
}

/* --- Payloads in shared memory -------------------------------------------------------------------------------------------------- */

/* Puts a payload for a process of this host into shared memory, if it is an object or large, and its handle into the envelope. *lent is
 * to be held until the other side has it. No room is no error: then the bytes are sent. */
static exo_status
place_payload(exo_peer *peer, exo_envelope *e, const exo_payload *payload, exo_object_handle *handle, exo_object **lent,
              exo_err *err)
{
    exo_object *object = exo_object_of_payload(payload);
    *lent = NULL;
    if (!exo_peer_is_near(peer) || (!object && payload->size < OBJECT_BYTES))
        return EXO_OK;
    /* What belongs to a third process may be gone before it is imported: it is sent on as our own. */
    if (object && !exo_object_is_imported(object))
        exo_object_hold(object);
    else if (exo_object_put(&object, payload->data, payload->size, NULL) != EXO_OK)
        return EXO_OK;
    exo_status st = exo_object_export(object, handle, err);
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    e->payload = (exo_wire_payload){.place = EXO_WIRE_OBJECT, .data = handle, .size = sizeof *handle};
    *lent = object;
    return EXO_OK;
}

/* The payload of an envelope that has a handle. */
static exo_status
fetch_payload(const exo_envelope *e, exo_payload *out, exo_err *err)
{
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_object_handle handle;
    if (e->payload.size != sizeof handle)
        return exo_fail(err, EXO_INVAL, "an object's handle of %zu bytes", e->payload.size);
    memcpy(&handle, e->payload.data, sizeof handle);
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &handle, &object, err);
    if (st == EXO_OK)
        *out = exo_object_payload(object);
    exo_object_drop(&object);
    return st;
}

/* The future of a pending call is complete. If that was not the reply's doing, the callee need not go on. */
static void
call_done(void *context, uint64_t id, exo_future *future)
{
    exo_remote *r = context;
    exo_peer *peer = NULL;
    pthread_mutex_lock(&r->lock);
    struct pending *p = find_pending_locked(r, id);
    if (p && p->future == future) {
        peer = p->channel->closed ? NULL : exo_peer_hold(p->channel->peer);
        struct taken taken = take_pending_locked(r, p);
        pthread_mutex_unlock(&r->lock);
        release_taken(&taken);
    } else {
        pthread_mutex_unlock(&r->lock);
    }
    if (peer) {
        exo_envelope cancel = {.kind = EXO_WIRE_CANCEL, .id = id};
        exo_net_send(r->net, peer, &cancel, NULL, NULL);
        exo_peer_drop(&peer);
    }
    exo_net_kick(r->net); /* somebody may wait for it in the loop */
}

static bool
drive_for_call(void *context, bool (*done)(void *argument), void *argument, exo_time deadline)
{
    exo_remote *r = context;
    return exo_net_drive(r->net, done, argument, deadline);
}

static const exo_future_hook call_hook = {.done = call_done, .drive = drive_for_call};

/* Finds where a call goes, and makes it pending. */
static exo_status
begin_call(exo_remote *r, exo_ref actor, exo_future *future, exo_envelope *e, exo_peer **peer,
           char system[EXO_WIRE_NAME], exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    const struct reference *ref = find_reference_locked(r, actor);
    bool open = ref && ref->peer && exo_peer_is_open(ref->peer);
    struct channel *channel = open ? get_channel_locked(r, ref->peer) : NULL;
    if (ref && ref->peer && !open) {
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost", exo_peer_name(ref->peer));
    } else if (!open) {
        st = exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s",
                      ref && ref->cause ? ref->cause : "its cause is not known (any more)");
    } else if (!channel) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a connection");
    } else if (channel->num_pending >= WINDOW) {
        st = exo_fail(err, EXO_FULL, "%u calls to '%s' are not answered yet", channel->num_pending,
                      exo_peer_name(ref->peer));
    } else if (!new_pending_locked(r, channel, actor, strcmp(e->method, METHOD_MONITOR) == 0, future, &e->id)) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a call");
    } else {
        *peer = exo_peer_hold(ref->peer);
        e->actor = ref->system ? 0 : ref->key.id;
        if (ref->system) {
            snprintf(system, EXO_WIRE_NAME, "%s", ref->system);
            e->text = system;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

static exo_status
send_call(exo_remote *r, exo_ref actor, const char *method, exo_payload *args, exo_future *future, exo_err *err)
{
    exo_peer *peer = NULL;
    char system[EXO_WIRE_NAME];
    exo_time deadline = exo_future_deadline(future);
    exo_envelope e = {.kind = EXO_WIRE_CALL, .method = method, .timeout = INT64_MAX};
    if (deadline < INT64_MAX) {
        exo_time now = exo_now(exo_runtime_clock(r->runtime));
        e.timeout = deadline > now ? deadline - now : 0;
    }
    exo_status st = begin_call(r, actor, future, &e, &peer, system, err);
    if (st != EXO_OK)
        return st;
    exo_object_handle handle;
    exo_object *lent = NULL;
    st = place_payload(peer, &e, args, &handle, &lent, err);
    pthread_mutex_lock(&r->lock);
    struct pending *p = find_pending_locked(r, e.id);
    if (p)
        p->lent = lent;
    else
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost", exo_peer_name(peer));
    pthread_mutex_unlock(&r->lock);
    if (!p)
        exo_object_drop(&lent);
    exo_future_set_hook(future, &call_hook, r, e.id);
    if (st == EXO_OK)
        st = exo_net_send(r->net, peer, &e, lent ? NULL : args, err);
    if (st != EXO_OK) {
        struct taken taken = {0};
        pthread_mutex_lock(&r->lock);
        if ((p = find_pending_locked(r, e.id)))
            taken = take_pending_locked(r, p);
        pthread_mutex_unlock(&r->lock);
        release_taken(&taken);
    }
    exo_peer_drop(&peer);
    return st;
}

exo_status
exo_remote_call(void *context, exo_ref actor, const char *method, exo_payload *args, exo_future *future, exo_err *err)
{
    exo_status st = send_call(context, actor, method, args, future, err);
    exo_payload_release(args);
    return st;
}

/* Calls without waiting: the reply goes nowhere. */
static exo_status
tell(exo_remote *r, exo_ref actor, const char *method, exo_payload *args, exo_err *err)
{
    exo_future *future = NULL;
    exo_status st = exo_future_new(&future, exo_runtime_clock(r->runtime), INT64_MAX, err);
    if (st == EXO_OK)
        st = exo_remote_call(r, actor, method, args, future, err);
    exo_future_drop(&future);
    return st;
}

exo_status
exo_remote_stop(void *context, exo_ref actor, bool drain, exo_err *err)
{
    exo_payload none = {0};
    return tell(context, actor, drain ? METHOD_DRAIN : METHOD_STOP, &none, err);
}

exo_status
exo_remote_kill(void *context, exo_ref actor, const char *cause, exo_err *err)
{
    exo_payload text = {0};
    const char *why = cause && *cause ? cause : "killed";
    exo_status st = exo_payload_copy(&text, why, strlen(why) + 1);
    return st == EXO_OK ? tell(context, actor, METHOD_KILL, &text, err) : exo_fail(err, st, "no memory for a cause");
}

exo_status
exo_remote_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_payload none = {0};
    return exo_remote_call(context, actor, METHOD_MONITOR, &none, future, err);
}

/* --- Serving calls ------------------------------------------------------------------------------------------------------------ */

/* Keeps an object until the caller has it; it is the table's from here on. */
static exo_status
lend(exo_remote *r, exo_peer *peer, uint64_t id, exo_object *object, exo_err *err)
{
    struct loan *loan = exo_calloc(1, sizeof *loan);
    if (!loan) {
        exo_object_drop(&object);
        return exo_fail(err, EXO_NOMEM, "no memory to lend an object");
    }
    loan->key.peer = peer;
    loan->key.id = id;
    loan->object = object;
    pthread_mutex_lock(&r->lock);
    bool open = exo_peer_is_open(peer); /* else nobody would take it back */
    if (open)
        HASH_ADD(hh, r->loans, key, sizeof loan->key, loan);
    pthread_mutex_unlock(&r->lock);
    if (open)
        return EXO_OK;
    exo_object_drop(&loan->object);
    exo_free(loan);
    return exo_fail(err, EXO_PEER_LOST, "the caller is lost");
}

/* The call's future is complete: the reply goes out. */
static void
serving_done(void *context, uint64_t unused, exo_future *future)
{
    struct serving *s = context;
    exo_remote *r = s->remote;
    exo_err err = {0};
    exo_payload value = {0};
    (void)unused;
    pthread_mutex_lock(&r->lock);
    HASH_DEL(r->serving, s);
    s->channel->num_serving--;
    pthread_mutex_unlock(&r->lock);
    exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = s->key.id};
    exo_object_handle handle;
    exo_object *lent = NULL;
    reply.status = exo_future_take(future, &value, &err);
    reply.text = err.text;
    exo_status st = place_payload(s->peer, &reply, &value, &handle, &lent, &err);
    if (st == EXO_OK && lent)
        st = lend(r, s->peer, s->key.id, lent, &err);
    if (st == EXO_OK)
        st = exo_net_send(r->net, s->peer, &reply, lent ? NULL : &value, &err);
    exo_payload_release(&value);
    if (st == EXO_INVAL || st == EXO_NOMEM) { /* the caller shall not wait for a reply that cannot be sent */
        exo_envelope failure = {.kind = EXO_WIRE_REPLY, .id = s->key.id, .status = st, .text = err.text};
        exo_net_send(r->net, s->peer, &failure, NULL, NULL);
    }
    exo_peer_drop(&s->peer);
    exo_future_drop(&s->future);
    exo_free(s);
}

static const exo_future_hook serving_hook = {.done = serving_done};

static void
answer(exo_remote *r, exo_peer *peer, uint64_t id, exo_status status, const char *reason)
{
    exo_envelope reply = {.kind = EXO_WIRE_REPLY, .id = id, .status = status, .text = reason};
    exo_net_send(r->net, peer, &reply, NULL, NULL);
}

/* What is not the actor's own method. True: it was such, and *st is its result. */
static bool
run_control(exo_remote *r, exo_ref actor, const char *method, const exo_payload *args, exo_future *future,
            exo_status *st, exo_err *err)
{
    char cause[CAUSE];
    if (method[0] != '$')
        return false;
    if (strcmp(method, METHOD_MONITOR) == 0) {
        *st = exo_runtime_monitor(r->runtime, actor, future, err);
        return true;
    }
    if (strcmp(method, METHOD_KILL) == 0) {
        snprintf(cause, sizeof cause, "%.*s", args->data ? (int)args->size : 0,
                 args->data ? (const char *)args->data : "");
        *st = exo_kill(r->runtime, actor, cause, err);
    } else if (strcmp(method, METHOD_STOP) == 0 || strcmp(method, METHOD_DRAIN) == 0) {
        *st = exo_stop(r->runtime, actor, strcmp(method, METHOD_DRAIN) == 0, err);
    } else {
        *st = exo_fail(err, EXO_NOT_FOUND, "there is no method '%s'", method);
    }
    if (*st == EXO_OK)
        exo_future_complete(future, EXO_OK, NULL, NULL);
    return true;
}

/* A piece of an object of this process, for another host: a part of its memory, not a copy. */
static void
release_piece(void *owner)
{
    exo_object *object = owner;
    exo_object_drop(&object);
}

static exo_status
read_piece(const exo_payload *args, exo_payload *out, exo_err *err)
{
    exo_remote_fetch fetch;
    exo_store *store = NULL;
    exo_object *object = NULL;
    if (args->size != sizeof fetch)
        return exo_fail(err, EXO_INVAL, "a piece of an object: the arguments cannot be read");
    memcpy(&fetch, args->data, sizeof fetch);
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &fetch.handle, &object, err);
    if (st == EXO_OK && (exo_object_is_imported(object) || fetch.first > exo_object_size(object)))
        st = exo_fail(err, EXO_INVAL, "a piece of an object that is not of this process, or beyond its end");
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    uint64_t left = exo_object_size(object) - fetch.first;
    *out = (exo_payload){.data = (char *)exo_object_data(object) + fetch.first,
                         .size = left < fetch.size ? left : fetch.size,
                         .release = release_piece,
                         .owner = object};
    return EXO_OK;
}

/* Objects of this process, gathered. */
struct gathering {
    exo_remote_object *objects;
    size_t count, cap;
};

static void
gather_object(void *context, const exo_object_info *info)
{
    struct gathering *g = context;
    if (g->count == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        exo_remote_object *larger = exo_realloc(g->objects, cap, sizeof *larger);
        if (!larger)
            return;
        g->objects = larger;
        g->cap = cap;
    }
    g->objects[g->count++] = (exo_remote_object){.size = info->handle.size,
                                                 .nonce = info->handle.nonce,
                                                 .slot = info->handle.slot,
                                                 .references = info->references,
                                                 .borrowers = info->borrowers,
                                                 .sealed = info->sealed,
                                                 .imported = info->imported};
}

static exo_status
list_objects(exo_payload *out, exo_err *err)
{
    struct gathering g = {0};
    exo_store *store = NULL;
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK && exo_store_each(store, gather_object, &g) != EXO_OK)
        st = exo_fail(err, EXO_NOMEM, "no memory to list objects");
    if (st == EXO_OK)
        *out = (exo_payload){.data = g.objects, .size = g.count * sizeof *g.objects, .release = exo_free};
    else
        exo_free(g.objects);
    return st;
}

/* Methods of the process itself. */
static exo_status
run_own(const char *method, const exo_payload *args, exo_payload *value, exo_err *err)
{
    if (strcmp(method, EXO_REMOTE_FETCH) == 0)
        return read_piece(args, value, err);
    if (strcmp(method, EXO_REMOTE_OBJECTS) == 0)
        return list_objects(value, err);
    return exo_fail(err, EXO_NOT_FOUND, "there is no method '%s'", method);
}

/* False: it has enough of the peer's calls to do. A caller's own window is no bound for a callee that does not trust it, nor are replies
 * that the peer does not read. */
static bool
begin_serving(exo_remote *r, exo_peer *peer, struct serving *s)
{
    pthread_mutex_lock(&r->lock);
    struct channel *c = get_channel_locked(r, peer);
    bool room = c && c->num_serving < SERVED && !exo_peer_is_full(peer);
    if (room) {
        c->num_serving++;
        s->channel = c;
        s->peer = exo_peer_hold(peer);
        HASH_ADD(hh, r->serving, key, sizeof s->key, s);
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

static void
serve_call(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *args)
{
    exo_err err = {0};
    exo_ref actor = {.id = e->actor};
    exo_time deadline = e->timeout == INT64_MAX ? INT64_MAX : exo_deadline(exo_runtime_clock(r->runtime), e->timeout);
    struct serving *s = exo_calloc(1, sizeof *s);
    exo_status st = s ? EXO_OK : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_future_new(&s->future, exo_runtime_clock(r->runtime), deadline, &err);
    if (st != EXO_OK) {
        exo_free(s);
        answer(r, peer, e->id, EXO_NOMEM, "the callee has no memory for a call");
        exo_payload_release(args);
        return;
    }
    s->remote = r;
    s->key.peer = peer;
    s->key.id = e->id;
    if (!begin_serving(r, peer, s)) {
        exo_future_drop(&s->future);
        exo_free(s);
        answer(r, peer, e->id, EXO_FULL,
               "the callee has too many calls of this process, or replies that it has not read");
        exo_payload_release(args);
        return;
    }
    if (e->payload.place == EXO_WIRE_OBJECT)
        st = fetch_payload(e, args, &err);
    exo_future *future = exo_future_hold(s->future); /* s may be gone as soon as the future is complete */
    exo_future_set_hook(future, &serving_hook, s, 0);
    if (st == EXO_OK && e->actor == 0 && e->text[0] == 0) {
        exo_payload value = {0};
        st = run_own(e->method, args, &value, &err);
        exo_future_complete(future, st, err.text, &value);
        exo_payload_release(args);
        exo_future_drop(&future);
        return;
    }
    if (st == EXO_OK && e->actor == 0)
        st = exo_runtime_find_name(r->runtime, "exogym", e->text, &actor, &err);
    if (st == EXO_OK && (actor.id & EXO_REMOTE))
        st = exo_fail(&err, EXO_INVAL, "a reference that is no actor of this process");
    if (st == EXO_OK && !run_control(r, actor, e->method, args, future, &st, &err))
        st = exo_runtime_deliver(r->runtime, actor, e->method, args, future, &err);
    if (st != EXO_OK)
        exo_future_complete(future, st, err.text, NULL);
    exo_payload_release(args);
    exo_future_drop(&future);
}

static void
take_reply(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *value)
{
    pthread_mutex_lock(&r->lock);
    struct pending *p = find_pending_locked(r, e->id);
    struct taken taken = {0};
    if (p && p->channel->peer == peer) {
        bool death = e->status == EXO_PEER_LOST || (p->watches && e->status == EXO_OK);
        struct reference *ref = death ? find_reference_locked(r, p->actor) : NULL;
        if (ref)
            ref->suspect = true;
        taken = take_pending_locked(r, p);
    }
    pthread_mutex_unlock(&r->lock);
    exo_err err = {0};
    exo_status st = e->status;
    if (e->payload.place == EXO_WIRE_OBJECT) {
        exo_status fetched = taken.future ? fetch_payload(e, value, &err) : EXO_OK;
        st = fetched == EXO_OK ? st : fetched;
        exo_envelope thanks = {.kind = EXO_WIRE_CANCEL, .id = e->id};
        exo_net_send(r->net, peer, &thanks, NULL, NULL);
    }
    if (taken.future)
        exo_future_complete(taken.future, st, err.text[0] ? err.text : e->text, value);
    exo_payload_release(value);
    release_taken(&taken);
}

/* The caller does not want its call any more; or, if it has been answered, has the object that went with the reply. */
static void
cancel_call(exo_remote *r, exo_peer *peer, uint64_t id)
{
    struct serving *s = NULL, probe = {0}; /* zeroed: the key's padding counts */
    struct loan *loan = NULL;
    exo_future *future = NULL;
    probe.key.peer = peer;
    probe.key.id = id;
    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->serving, &probe.key, sizeof probe.key, s);
    if (s)
        future = exo_future_hold(s->future);
    else
        HASH_FIND(hh, r->loans, &probe.key, sizeof probe.key, loan);
    if (loan)
        HASH_DEL(r->loans, loan);
    pthread_mutex_unlock(&r->lock);
    if (future)
        exo_cancel(future);
    exo_future_drop(&future);
    if (loan)
        exo_object_drop(&loan->object);
    exo_free(loan);
}

/* --- The net's events --------------------------------------------------------------------------------------------------------- */

static void
on_received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    exo_remote *r = context;
    exo_lanes_collect();
    if (e->kind == EXO_WIRE_CALL)
        serve_call(r, peer, e, payload);
    else if (e->kind == EXO_WIRE_REPLY)
        take_reply(r, peer, e, payload);
    else
        cancel_call(r, peer, e->id);
    exo_payload_release(payload);
}

static void
on_settle(void *context, exo_driver driver)
{
    exo_remote *r = context;
    exo_lanes_settle(r->runtime, driver == EXO_DRIVER_HOME);
}

static void
on_opened(void *context, exo_peer *peer)
{
    exo_remote *r = context;
    pthread_mutex_lock(&r->lock);
    get_channel_locked(r, peer);
    pthread_mutex_unlock(&r->lock);
    if (r->events->opened)
        r->events->opened(r->context, peer);
}

/* Work that nobody waits for any more need not be done. */
static void
cancel_serving_of(exo_remote *r, const exo_peer *peer)
{
    for (;;) {
        exo_future *future = NULL;
        pthread_mutex_lock(&r->lock);
        for (struct serving *s = r->serving; s && !future; s = s->hh.next)
            if (s->peer == peer && !exo_future_cancelled(s->future))
                future = exo_future_hold(s->future);
        pthread_mutex_unlock(&r->lock);
        if (!future)
            return;
        exo_cancel(future);
        exo_future_drop(&future);
    }
}

static void
take_loans_back(exo_remote *r, const exo_peer *peer)
{
    struct loan *loan, *next, *mine = NULL;
    pthread_mutex_lock(&r->lock);
    HASH_ITER (hh, r->loans, loan, next) {
        if (loan->key.peer != peer)
            continue;
        HASH_DEL(r->loans, loan);
        loan->hh.next = mine; /* a list from here on */
        mine = loan;
    }
    pthread_mutex_unlock(&r->lock);
    for (; mine; mine = next) {
        next = mine->hh.next;
        exo_object_drop(&mine->object);
        exo_free(mine);
    }
}

static void
on_lost(void *context, exo_peer *peer, const char *cause)
{
    exo_remote *r = context;
    char reason[CAUSE + 128];
    snprintf(reason, sizeof reason, "'%s' is lost: %.200s", exo_peer_name(peer), cause);
    pthread_mutex_lock(&r->lock);
    struct channel *c = exo_peer_user(peer);
    for (uint32_t i = 0; i < r->num_references; i++)
        if (r->references[i]->peer == peer)
            bury_reference_locked(r, r->references[i], reason);
    exo_peer_set_user(peer, NULL); /* nothing becomes pending any more: the peer is not open */
    while (c && c->first) {
        struct taken taken = take_pending_locked(r, &r->pending[c->first - 1]);
        pthread_mutex_unlock(&r->lock);
        exo_future_complete(taken.future, EXO_PEER_LOST, reason, NULL);
        release_taken(&taken);
        pthread_mutex_lock(&r->lock);
    }
    if (c) {
        exo_peer_drop(&c->peer);
        c->closed = true; /* to be used again */
    }
    pthread_mutex_unlock(&r->lock);
    cancel_serving_of(r, peer);
    take_loans_back(r, peer);
    if (r->events->lost)
        r->events->lost(r->context, peer, cause);
}

static const exo_net_handler handler = {
    .received = on_received, .settle = on_settle, .opened = on_opened, .lost = on_lost};

/* --- Opening and closing ------------------------------------------------------------------------------------------------------ */

exo_status
exo_remote_open(exo_remote **out, exo_runtime *runtime, const exo_net_opts *opts, const exo_remote_events *events,
                void *context, exo_err *err)
{
    static const exo_remote_events none = {0};
    exo_remote *r = exo_calloc(1, sizeof *r);
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for connections");
    pthread_mutex_init(&r->lock, NULL);
    r->runtime = runtime;
    r->events = events ? events : &none;
    r->context = context;
    *out = r; /* what comes at once must find it */
    exo_net_opts with_handler = *opts;
    with_handler.handler = &handler;
    with_handler.context = r;
    exo_status st = exo_net_open(&r->net, &with_handler, err);
    if (st != EXO_OK) {
        *out = NULL;
        exo_remote_free(&r);
    }
    return st;
}

void
exo_remote_close(exo_remote *remote)
{
    if (remote)
        exo_net_stop(remote->net);
}

void
exo_remote_free(exo_remote **remote)
{
    exo_remote *r = *remote;
    *remote = NULL;
    if (!r)
        return;
    exo_net_close(&r->net);
    for (size_t i = 0; i < r->num_references; i++) {
        exo_peer_drop(&r->references[i]->peer);
        exo_free(r->references[i]->system);
        exo_free(r->references[i]->cause);
    }
    HASH_CLEAR(hh, r->by_key);
    for (size_t i = 0; i < r->num_references; i++)
        exo_free(r->references[i]);
    exo_free(r->references);
    exo_free(r->pending);
    for (struct channel *c = r->channels, *next; c; c = next) {
        next = c->next;
        exo_peer_drop(&c->peer);
        exo_free(c);
    }
    pthread_mutex_destroy(&r->lock);
    exo_free(r);
}

exo_net *
exo_remote_net(exo_remote *remote)
{
    return remote->net;
}
