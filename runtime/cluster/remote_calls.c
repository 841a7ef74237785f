/* Calls to other processes: from exo_call through a reference until the future is complete.
 * remote_serve.c has the other side.
 *
 * A pending call's number is (generation << 32 | slot + 1), so that a late reply finds nothing.
 * Slots move when the table grows: a pointer to one is valid only while the remote's lock, which
 * guards them all, is held. */
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "cluster/remote_impl.h"

enum {
    /* monitors of a connection below which dropped ones are not looked for */
    FIRST_WATCHES = 256
};

struct pending {
    exo_future *future; /* held; NULL: free */
    exo_object *lent;   /* held: the arguments, until the callee has them; may be NULL */
    exo_ref actor;
    bool watches; /* a monitor: its reply reports a death */
    struct channel *channel;
    uint32_t generation;
    uint32_t next_free;  /* among the free ones, index + 1 */
    uint32_t prev, next; /* among the channel's, index + 1; 0: none */
};

/* --- Pending calls ---------------------------------------------------------------------------- */

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
new_pending_locked(exo_remote *r, struct channel *channel, exo_ref actor, bool watches,
                   exo_future *future, uint64_t *id)
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
    channel->num_watches += watches;
    *id = (uint64_t)p->generation << 32 | (index + 1);
    return p;
}

/* What a pending call held, to be released without the lock. */
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
    p->channel->num_watches -= p->watches;
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

/* --- Calling ---------------------------------------------------------------------------------- */

/* The future of a pending call is complete. If the call is still pending, no reply completed it,
 * and the callee is told to cancel it. */
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
    exo_net_kick(r->net); /* a thread in the loop may wait for this future */
}

static bool
drive_for_call(void *context, bool (*done)(void *argument), void *argument, exo_time deadline)
{
    exo_remote *r = context;
    return exo_net_drive(r->net, done, argument, deadline);
}

static const exo_future_hook call_hook = {.done = call_done, .drive = drive_for_call};

/* Finds the destination of a call, and makes the call pending. */
static exo_status
begin_call(exo_remote *r, exo_ref actor, exo_future *future, exo_envelope *e, exo_peer **peer,
           char system[EXO_WIRE_NAME], exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    const struct reference *ref = exo_remote_reference_locked(r, actor);
    bool open = ref && ref->peer && exo_peer_is_open(ref->peer);
    struct channel *channel = open ? exo_remote_channel_locked(r, ref->peer) : NULL;
    if (r->leaving) {
        st = exo_fail(err, EXO_CLOSED, "this process leaves the cluster");
    } else if (ref && ref->peer && !open) {
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost", exo_peer_name(ref->peer));
    } else if (!open) {
        st = exo_fail(err, EXO_PEER_LOST, "the actor is dead: %s",
                      ref && ref->cause ? ref->cause : "its cause is not known (any more)");
    } else if (!channel) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a connection");
    } else if (channel->num_pending >= WINDOW) {
        st = exo_fail(err, EXO_FULL, "%u calls to '%s' are not answered yet", channel->num_pending,
                      exo_peer_name(ref->peer));
    } else if (!new_pending_locked(r, channel, actor, strcmp(e->method, METHOD_MONITOR) == 0,
                                   future, &e->id)) {
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
send_call(exo_remote *r, exo_ref actor, const char *method, exo_payload *args, exo_future *future,
          exo_err *err)
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
    st = exo_remote_place_payload(peer, &e, args, &handle, &lent, err);
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
exo_remote_call(void *context, exo_ref actor, const char *method, exo_payload *args,
                exo_future *future, exo_err *err)
{
    exo_status st = send_call(context, actor, method, args, future, err);
    exo_payload_release(args);
    return st;
}

/* A call whose reply is ignored. */
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
    return st == EXO_OK ? tell(context, actor, METHOD_KILL, &text, err)
                        : exo_fail(err, st, "no memory for a cause");
}

/* --- Monitors --------------------------------------------------------------------------------- */

/* The monitors of a connection whose futures only this table holds. The list's futures are held.
 * NULL: it is not time to look, or there is no memory. */
static exo_future **
take_forsaken_locked(exo_remote *r, struct channel *c, size_t *count)
{
    uint32_t at = c->sweep_at > FIRST_WATCHES ? c->sweep_at : FIRST_WATCHES;
    *count = 0;
    if (c->num_watches < at)
        return NULL;
    exo_future **list = exo_calloc(c->num_watches, sizeof(exo_future *));
    for (uint32_t i = list ? c->first : 0; i; i = r->pending[i - 1].next)
        if (r->pending[i - 1].watches && exo_future_is_forsaken(r->pending[i - 1].future, 1))
            list[(*count)++] = exo_future_hold(r->pending[i - 1].future);
    c->sweep_at = 2 * (c->num_watches - (uint32_t)*count);
    return list;
}

/* Cancels monitors whose owners dropped them without cancelling; else they would be pending until
 * their actors die. The threshold doubles, so each monitor is looked at only a few times. */
static void
sweep_watches(exo_remote *r, exo_ref actor)
{
    size_t count = 0;
    exo_future **list = NULL;
    pthread_mutex_lock(&r->lock);
    const struct reference *ref = exo_remote_reference_locked(r, actor);
    struct channel *c = ref && ref->peer ? exo_peer_user(ref->peer) : NULL;
    if (c)
        list = take_forsaken_locked(r, c, &count);
    pthread_mutex_unlock(&r->lock);
    for (size_t i = 0; i < count; i++) {
        exo_cancel(list[i]);
        exo_future_drop(&list[i]);
    }
    exo_free(list);
}

exo_status
exo_remote_monitor(void *context, exo_ref actor, exo_future *future, exo_err *err)
{
    exo_payload none = {0};
    sweep_watches(context, actor);
    return exo_remote_call(context, actor, METHOD_MONITOR, &none, future, err);
}

/* --- Replies and losses ----------------------------------------------------------------------- */

void
exo_remote_take_reply(exo_remote *r, exo_peer *peer, const exo_envelope *e, exo_payload *value)
{
    pthread_mutex_lock(&r->lock);
    struct pending *p = find_pending_locked(r, e->id);
    struct taken taken = {0};
    if (p && p->channel->peer == peer) {
        bool death = e->status == EXO_PEER_LOST || (p->watches && e->status == EXO_OK);
        struct reference *ref = death ? exo_remote_reference_locked(r, p->actor) : NULL;
        if (ref)
            ref->suspect = true;
        if (ref && p->watches && !ref->cause)
            ref->cause = exo_strdup(e->status == EXO_OK ? "it was stopped" : e->text);
        taken = take_pending_locked(r, p);
    }
    pthread_mutex_unlock(&r->lock);
    exo_err err = {0};
    exo_status st = e->status;
    if (e->payload.place == EXO_WIRE_OBJECT) {
        exo_status fetched = taken.future ? exo_remote_fetch_payload(e, value, &err) : EXO_OK;
        st = fetched == EXO_OK ? st : fetched;
        exo_envelope thanks = {.kind = EXO_WIRE_CANCEL, .id = e->id};
        exo_net_send(r->net, peer, &thanks, NULL, NULL);
    }
    if (taken.future)
        exo_future_complete(taken.future, st, err.text[0] ? err.text : e->text, value);
    exo_payload_release(value);
    release_taken(&taken);
}

void
exo_remote_end_pending_locked(exo_remote *r, struct channel *c, const char *reason)
{
    while (c->first) {
        struct taken taken = take_pending_locked(r, &r->pending[c->first - 1]);
        pthread_mutex_unlock(&r->lock);
        exo_future_complete(taken.future, EXO_PEER_LOST, reason, NULL);
        release_taken(&taken);
        pthread_mutex_lock(&r->lock);
    }
}
