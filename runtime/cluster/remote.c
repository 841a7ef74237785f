/* Calls between runtimes: see remote.h. This file opens and closes them, and has the connections
 * and their events.
 *
 * Owns the net and the channels; remote_impl.h says which file owns the rest, and what the lock
 * guards. Read next: remote_refs.c (references), remote_calls.c (calls from here), remote_serve.c
 * (calls to here), remote_gate.c (their turns at system actors), remote_objects.c (payloads in
 * shared memory). */
#include "cluster/remote.h"

#include <exogym/memory.h>

#include "base/printable.h"
#include "cluster/remote_impl.h"

/* --- Channels --------------------------------------------------------------------------------- */

struct channel *
exo_remote_channel_locked(exo_remote *r, exo_peer *peer)
{
    struct channel *c = exo_peer_user(peer);
    if (c)
        return c;
    /* a channel that is no longer in use is used again */
    for (c = r->channels; c && !(c->closed && !c->ends && c->num_serving == 0); c = c->next)
        continue;
    if (!c) {
        c = exo_calloc(1, sizeof *c);
        if (!c)
            return NULL;
        c->next = r->channels;
        r->channels = c;
    }
    c->closed = false;
    c->num_references = 0;
    c->sweep_at = 0;
    c->peer = exo_peer_hold(peer);
    exo_peer_set_user(peer, c);
    return c;
}

void
exo_remote_know(exo_remote *remote, exo_peer *peer)
{
    pthread_mutex_lock(&remote->lock);
    if (exo_peer_is_open(peer))
        exo_remote_channel_locked(remote, peer);
    pthread_mutex_unlock(&remote->lock);
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

/* --- The net's events ------------------------------------------------------------------------- */

static void
on_received(void *context, exo_peer *peer, const exo_envelope *e, exo_payload *payload)
{
    exo_remote *r = context;
    exo_lanes_collect();
    if (e->kind == EXO_WIRE_CALL)
        exo_remote_serve_call(r, peer, e, payload);
    else if (e->kind == EXO_WIRE_REPLY)
        exo_remote_take_reply(r, peer, e, payload);
    else
        exo_remote_cancel_call(r, peer, e->id);
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
    exo_remote_channel_locked(r, peer);
    pthread_mutex_unlock(&r->lock);
    if (r->events->opened)
        r->events->opened(r->context, peer);
}

static void
on_lost(void *context, exo_peer *peer, const char *cause)
{
    exo_remote *r = context;
    char reason[CAUSE + 128];
    exo_format_cut(reason, sizeof reason, "'%s' is lost: %s", exo_peer_name(peer), cause);
    pthread_mutex_lock(&r->lock);
    struct channel *c = exo_peer_user(peer);
    exo_remote_bury_references_locked(r, peer, reason);
    exo_peer_set_user(peer, NULL); /* the peer is not open, so no further call becomes pending */
    if (c) {
        c->closed = c->ends = true; /* it may be used again after on_ending */
        exo_remote_end_pending_locked(r, c, reason);
        exo_remote_close_gate_locked(c);
    }
    pthread_mutex_unlock(&r->lock);
    if (r->events->lost)
        r->events->lost(r->context, peer, cause);
}

/* Ends some of what was done for a lost peer. True: there is more. */
static bool
on_ending(void *context, exo_peer *peer)
{
    exo_remote *r = context;
    struct channel *c;
    pthread_mutex_lock(&r->lock);
    for (c = r->channels; c && !(c->ends && c->peer == peer); c = c->next)
        continue;
    pthread_mutex_unlock(&r->lock);
    if (!c)
        return false;
    bool waits = exo_remote_drain_gate(r, c), serves = exo_remote_end_serving(r, c);
    if (waits || serves)
        return true;
    pthread_mutex_lock(&r->lock);
    exo_peer_drop(&c->peer);
    c->ends = false;
    pthread_mutex_unlock(&r->lock);
    return false;
}

static const exo_net_handler handler = {.received = on_received,
                                        .settle = on_settle,
                                        .opened = on_opened,
                                        .lost = on_lost,
                                        .ending = on_ending};

/* --- Opening and closing ---------------------------------------------------------------------- */

exo_status
exo_remote_open(exo_remote **out, exo_runtime *runtime, const exo_net_opts *opts,
                const exo_remote_events *events, void *context, exo_err *err)
{
    static const exo_remote_events none = {0};
    exo_remote *r = exo_calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return exo_fail(err, EXO_NOMEM, "no memory for connections");
    pthread_mutex_init(&r->lock, NULL);
    r->runtime = runtime;
    r->events = events ? events : &none;
    r->context = context;
    r->audit = opts->audit;
    exo_net_opts with_handler = *opts;
    with_handler.handler = &handler;
    with_handler.context = r;
    with_handler.held = true; /* the system actors do not exist yet: see exo_remote_start */
    exo_status st = exo_net_open(&r->net, &with_handler, err);
    if (st != EXO_OK)
        exo_remote_free(&r);
    *out = r;
    return st;
}

exo_status
exo_remote_start(exo_remote *remote, exo_err *err)
{
    return exo_net_start(remote->net, err);
}

/* Ends all pending calls before the net stops. The net waits for its own thread, and a method that
 * this thread runs may wait, without a deadline, for a reply that nobody would receive. */
static void
end_calls(exo_remote *r)
{
    struct channel *c;
    pthread_mutex_lock(&r->lock);
    r->leaving = true;
    do {
        for (c = r->channels; c && !c->first; c = c->next)
            continue;
        if (c)
            exo_remote_end_pending_locked(r, c, "this process leaves the cluster");
    } while (c);
    pthread_mutex_unlock(&r->lock);
}

void
exo_remote_close(exo_remote *remote, const char *why)
{
    if (!remote)
        return;
    end_calls(remote);
    exo_net_stop(remote->net, why);
}

void
exo_remote_free(exo_remote **remote)
{
    exo_remote *r = *remote;
    *remote = NULL;
    if (!r)
        return;
    exo_net_close(&r->net);
    exo_remote_free_references(r);
    exo_free(r->pending);
    for (struct channel *c = r->channels, *next; c; c = next) {
        next = c->next;
        exo_remote_close_gate_locked(c);
        while (exo_remote_drain_gate(r, c))
            continue;
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
