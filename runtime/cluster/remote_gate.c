/* The way of other processes' calls to this one's system actors, the head and the worker, which have one mailbox for everybody. Of each
 * connection, EXO_QUOTA_TURNS calls are in that mailbox, or one large one; the others wait here, in their order, until one of those has run. So a call waits for
 * a few of each other process, however many that one makes; and what waits is bounded by quotas.
 *
 * Everything is guarded by the remote's lock. A gate lives as long as its connection, and as any of its calls in a mailbox. Read next:
 * remote_serve.c. */
#include <stdio.h>
#include <string.h>

#include <utlist.h>

#include <exogym/memory.h>

#include "cluster/quota.h"
#include "cluster/remote_impl.h"

/* A call that waits. */
struct waiting {
    struct waiting *next;
    exo_ref actor;
    exo_future *future; /* held */
    exo_payload args;
    exo_identity *caller; /* held */
    char method[];
};

struct gate {
    exo_remote *remote;
    uint32_t references; /* the channel's, and one for each turn */
    uint32_t turns;      /* calls in a mailbox, or on their way there */
    uint64_t turn_bytes; /* their arguments */
    bool passing;        /* a thread hands waiting calls over */
    bool closed;
    struct waiting *first, *last;
    uint64_t count, bytes; /* of what waits */
};

/* Goes with a call's arguments into the mailbox: when they are released, the call has run or was dropped. */
struct turn {
    struct gate *gate;
    exo_payload args;
};

static void pass(struct gate *g);

static void
drop_gate_locked(struct gate *g)
{
    if (--g->references == 0)
        exo_free(g);
}

static void
end_turn(void *owner)
{
    struct turn *t = owner;
    struct gate *g = t->gate;
    exo_remote *r = g->remote;
    size_t size = t->args.size;
    exo_payload_release(&t->args);
    exo_free(t);
    pthread_mutex_lock(&r->lock);
    g->turns--;
    g->turn_bytes -= size;
    pthread_mutex_unlock(&r->lock);
    pass(g);
    pthread_mutex_lock(&r->lock);
    drop_gate_locked(g);
    pthread_mutex_unlock(&r->lock);
}

/* A turn was taken for it. *args is moved. */
static exo_status
deliver(struct gate *g, exo_ref actor, const char *method, exo_payload *args, const exo_identity *caller,
        exo_future *future, exo_err *err)
{
    struct turn *t = exo_calloc(1, sizeof *t);
    if (!t) {
        pthread_mutex_lock(&g->remote->lock);
        g->turns--;
        g->turn_bytes -= args->size;
        drop_gate_locked(g);
        pthread_mutex_unlock(&g->remote->lock);
        exo_payload_release(args);
        return exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    }
    *t = (struct turn){.gate = g, .args = *args};
    exo_payload with_turn = {.data = args->data, .size = args->size, .release = end_turn, .owner = t};
    *args = (exo_payload){0};
    return exo_runtime_deliver(g->remote->runtime, actor, method, &with_turn, caller, future, err);
}

/* A large call goes alone. */
static bool
has_turn_locked(const struct gate *g, size_t size)
{
    return g->turns == 0 || (g->turns < EXO_QUOTA_TURNS && g->turn_bytes + size <= EXO_QUOTA_TURN_BYTES);
}

static void
take_turn_locked(struct gate *g, size_t size)
{
    g->turns++;
    g->turn_bytes += size;
    g->references++;
}

static struct waiting *
take_first_locked(struct gate *g)
{
    struct waiting *w = g->first;
    if (!w || (!g->closed && !has_turn_locked(g, w->args.size)))
        return NULL;
    g->first = w->next;
    g->last = g->first ? g->last : NULL;
    g->count--;
    g->bytes -= w->args.size;
    return w;
}

static void
free_waiting(struct waiting *w)
{
    exo_payload_release(&w->args);
    exo_future_drop(&w->future);
    exo_identity_drop(&w->caller);
    exo_free(w);
}

/* Hands over what waits and may go; one thread at a time, so that the order stays. After the end of the connection nothing goes. */
static void
pass(struct gate *g)
{
    exo_remote *r = g->remote;
    struct waiting *w;
    pthread_mutex_lock(&r->lock);
    if (g->passing) {
        pthread_mutex_unlock(&r->lock);
        return;
    }
    g->passing = true;
    while (!g->closed && (w = take_first_locked(g))) {
        take_turn_locked(g, w->args.size);
        pthread_mutex_unlock(&r->lock);
        exo_err err = {0};
        exo_status st = deliver(g, w->actor, w->method, &w->args, w->caller, w->future, &err);
        if (st != EXO_OK)
            exo_future_complete(w->future, st, err.text, NULL);
        free_waiting(w);
        pthread_mutex_lock(&r->lock);
    }
    g->passing = false;
    pthread_mutex_unlock(&r->lock);
}

static exo_status
check_room_locked(const struct gate *g, size_t size, exo_err *err)
{
    exo_status st = exo_quota_check(NULL, EXO_QUOTA_WAITING, g->count, 1, err);
    return st == EXO_OK ? exo_quota_check(NULL, EXO_QUOTA_WAITING_BYTES, g->bytes, size, err) : st;
}

exo_status
exo_remote_check_gate(exo_remote *r, exo_peer *peer, size_t size, exo_err *err)
{
    pthread_mutex_lock(&r->lock);
    const struct channel *c = exo_peer_user(peer);
    exo_status st = c && c->gate ? check_room_locked(c->gate, size, err) : EXO_OK;
    pthread_mutex_unlock(&r->lock);
    return st;
}

static exo_status
wait_locked(struct gate *g, exo_ref actor, const char *method, exo_payload *args, const exo_identity *caller,
            exo_future *future, exo_err *err)
{
    exo_status st = check_room_locked(g, args->size, err);
    struct waiting *w = st == EXO_OK ? exo_calloc(1, sizeof *w + strlen(method) + 1) : NULL;
    if (!w)
        return st != EXO_OK ? st : exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    w->actor = actor;
    w->future = exo_future_hold(future);
    w->caller = exo_identity_hold(caller);
    w->args = *args;
    *args = (exo_payload){0};
    strcpy(w->method, method);
    if (g->last)
        g->last->next = w;
    else
        g->first = w;
    g->last = w;
    g->count++;
    g->bytes += w->args.size;
    return EXO_OK;
}

exo_status
exo_remote_pass(exo_remote *r, struct channel *c, exo_peer *peer, exo_ref actor, const char *method, exo_payload *args,
                exo_future *future, exo_err *err)
{
    const exo_identity *caller = exo_peer_identity(peer);
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    struct gate *g = c->gate;
    if (!g && (g = c->gate = exo_calloc(1, sizeof *g))) {
        g->remote = r;
        g->references = 1;
    }
    bool now = g && !g->first && !g->passing && has_turn_locked(g, args->size);
    if (!g)
        st = exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    else if (now)
        take_turn_locked(g, args->size);
    else
        st = wait_locked(g, actor, method, args, caller, future, err);
    if (g && !now)
        g->references++;
    pthread_mutex_unlock(&r->lock);
    if (now)
        return deliver(g, actor, method, args, caller, future, err);
    if (!g)
        return st;
    pass(g); /* the last turn may have ended meanwhile */
    pthread_mutex_lock(&r->lock);
    drop_gate_locked(g);
    pthread_mutex_unlock(&r->lock);
    return st;
}

static void
add_held_locked(const struct channel *c, exo_remote_held *out)
{
    out->waiting += c->gate ? c->gate->count : 0;
    out->waiting_bytes += c->gate ? c->gate->bytes : 0;
    out->lent += c->num_lent;
    out->lent_bytes += c->lent_bytes;
    out->monitors += c->num_monitors;
    out->references += c->num_references;
}

void
exo_remote_held_for(exo_remote *r, uint64_t node, exo_remote_held *out)
{
    *out = (exo_remote_held){0};
    pthread_mutex_lock(&r->lock);
    for (const struct channel *c = r->channels; c; c = c->next)
        if (!c->closed && exo_peer_node(c->peer) == node)
            add_held_locked(c, out);
    pthread_mutex_unlock(&r->lock);
}

size_t
exo_remote_list_held(exo_remote *r, exo_peer **peers, exo_remote_held *held, size_t most)
{
    size_t count = 0;
    pthread_mutex_lock(&r->lock);
    for (const struct channel *c = r->channels; c && count < most; c = c->next) {
        exo_remote_held *h = &held[count];
        *h = (exo_remote_held){0};
        if (c->closed)
            continue;
        add_held_locked(c, h);
        if (h->waiting + h->lent + h->monitors + h->references > 0)
            peers[count++] = exo_peer_hold(c->peer);
    }
    pthread_mutex_unlock(&r->lock);
    return count;
}

void
exo_remote_close_gate_locked(struct channel *c)
{
    if (c->gate)
        c->gate->closed = true;
}

bool
exo_remote_drain_gate(exo_remote *r, struct channel *c)
{
    struct waiting *w = NULL;
    pthread_mutex_lock(&r->lock);
    struct gate *g = c->gate;
    for (size_t i = 0; g && i < ENDED_AT_ONCE && (w = take_first_locked(g)); i++) {
        pthread_mutex_unlock(&r->lock);
        exo_future_complete(w->future, EXO_CANCELLED, "the caller is gone", NULL);
        free_waiting(w);
        pthread_mutex_lock(&r->lock);
    }
    bool more = g && w;
    if (g && !more) {
        c->gate = NULL;
        drop_gate_locked(g);
    }
    pthread_mutex_unlock(&r->lock);
    return more;
}
