/* Turns of other processes at this process's system actors, the head and the worker, each of which
 * has one mailbox for all callers. Each connection may have EXO_QUOTA_TURNS calls in the mailbox,
 * or one large one. Further calls wait here, in their order, until one of those has run. So a call
 * waits for a few calls of each other process, however many calls that process makes; and quotas
 * bound the waiting calls.
 *
 * The head asks a worker for actors on behalf of other processes, over one connection. Such calls
 * name their asker. Each asker has a line here, with as many turns as a connection. All askers of a
 * connection share EXO_QUOTA_ASKED_TURNS, which their lines get in rotation, so nobody gains by
 * naming many askers. The peer's own calls never wait for those of askers.
 *
 * The remote's lock guards everything. A gate lives as long as its connection and as its calls in a
 * mailbox. Read next: remote_serve.c. */
#include <inttypes.h>
#include <string.h>

#include <exogym/memory.h>

#include "cluster/quota.h"
#include "cluster/remote_impl.h"

/* A waiting call. */
struct waiting {
    struct waiting *next;
    exo_ref actor;
    exo_future *future; /* held */
    exo_payload args;
    exo_identity *caller; /* held */
    char method[];
};

/* The calls of one asker, in their order. */
struct line {
    uint64_t asker;      /* 0: the peer itself */
    uint32_t turns;      /* calls in a mailbox, or on their way to it */
    uint64_t turn_bytes; /* bytes of their arguments */
    struct waiting *first, *last;
    uint64_t count, bytes; /* of waiting calls */
    UT_hash_handle hh;
};

struct gate {
    exo_remote *remote;
    uint32_t references; /* the channel's, one for each turn, and one while a call enters */
    bool passing;        /* a thread hands waiting calls over */
    bool closed;
    struct line own; /* the peer's own calls */
    /* lines with waiting calls or turns; the one that is next comes first */
    struct line *askers;
    uint32_t asked_turns;  /* turns of these lines */
    uint64_t count, bytes; /* of waiting calls, in all lines */
};

/* Accompanies a call's arguments into the mailbox. Their release shows that the call has run or was
 * dropped. */
struct turn {
    struct gate *gate;
    struct line *line;
    exo_payload args;
};

static void pass(struct gate *g);

static void
drop_gate_locked(struct gate *g)
{
    if (--g->references == 0)
        exo_free(g);
}

/* The asker's line, made if it is missing. NULL: no memory. */
static struct line *
line_of_locked(struct gate *g, uint64_t asker)
{
    struct line *l = NULL;
    if (!asker)
        return &g->own;
    HASH_FIND(hh, g->askers, &asker, sizeof asker, l);
    if (!l && (l = exo_calloc(1, sizeof *l))) {
        l->asker = asker;
        HASH_ADD(hh, g->askers, asker, sizeof l->asker, l);
    }
    return l;
}

/* Frees an asker's line that has neither waiting calls nor turns. */
static void
tidy_line_locked(struct gate *g, struct line *l)
{
    if (l == &g->own || l->turns > 0 || l->first)
        return;
    HASH_DEL(g->askers, l);
    exo_free(l);
}

static void
give_turn_locked(struct gate *g, struct line *l, size_t size)
{
    l->turns--;
    l->turn_bytes -= size;
    g->asked_turns -= l != &g->own;
    tidy_line_locked(g, l);
}

static void
end_turn(void *owner)
{
    struct turn *t = owner;
    struct gate *g = t->gate;
    struct line *l = t->line;
    exo_remote *r = g->remote;
    size_t size = t->args.size;
    exo_payload_release(&t->args);
    exo_free(t);
    pthread_mutex_lock(&r->lock);
    give_turn_locked(g, l, size);
    pthread_mutex_unlock(&r->lock);
    pass(g);
    pthread_mutex_lock(&r->lock);
    drop_gate_locked(g);
    pthread_mutex_unlock(&r->lock);
}

/* Delivers a call for which a turn was taken. *args is moved. */
static exo_status
deliver(struct gate *g, struct line *l, exo_ref actor, const char *method, exo_payload *args,
        const exo_identity *caller, exo_future *future, exo_err *err)
{
    exo_remote *r = g->remote;
    struct turn *t = exo_calloc(1, sizeof *t);
    if (!t) {
        pthread_mutex_lock(&r->lock);
        give_turn_locked(g, l, args->size);
        drop_gate_locked(g);
        pthread_mutex_unlock(&r->lock);
        exo_payload_release(args);
        return exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    }
    *t = (struct turn){.gate = g, .line = l, .args = *args};
    exo_payload with_turn = {
        .data = args->data, .size = args->size, .release = end_turn, .owner = t};
    *args = (exo_payload){0};
    return exo_runtime_deliver(r->runtime, actor, method, &with_turn, caller, future, err);
}

/* Whether the line may have a turn for a call of `size` bytes. A large call needs a line without
 * turns. */
static bool
has_turn_locked(const struct gate *g, const struct line *l, size_t size)
{
    if (l != &g->own && g->asked_turns >= EXO_QUOTA_ASKED_TURNS)
        return false;
    return l->turns == 0 ||
           (l->turns < EXO_QUOTA_TURNS && l->turn_bytes + size <= EXO_QUOTA_TURN_BYTES);
}

static void
take_turn_locked(struct gate *g, struct line *l, size_t size)
{
    l->turns++;
    l->turn_bytes += size;
    g->asked_turns += l != &g->own;
    g->references++;
}

static bool
may_go_locked(const struct gate *g, const struct line *l)
{
    return l->first && (g->closed || has_turn_locked(g, l, l->first->args.size));
}

/* The line whose first call may go; NULL: there is none. Lines that are skipped have turns, so they
 * are few. */
static struct line *
next_line_locked(struct gate *g)
{
    struct line *l = g->askers;
    if (may_go_locked(g, &g->own))
        return &g->own;
    if (!g->closed && g->asked_turns >= EXO_QUOTA_ASKED_TURNS)
        return NULL;
    while (l && !may_go_locked(g, l))
        l = l->hh.next;
    return l;
}

/* Takes the line's first call, and moves the line behind the others. */
static struct waiting *
take_first_locked(struct gate *g, struct line *l)
{
    struct waiting *w = l->first;
    l->first = w->next;
    l->last = l->first ? l->last : NULL;
    l->count--;
    l->bytes -= w->args.size;
    g->count--;
    g->bytes -= w->args.size;
    if (l != &g->own && l->hh.next) {
        HASH_DEL(g->askers, l);
        HASH_ADD(hh, g->askers, asker, sizeof l->asker, l);
    }
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

/* Hands over the waiting calls that may go. One thread does so at a time, which preserves their
 * order. After the end of the connection no call goes. */
static void
pass(struct gate *g)
{
    exo_remote *r = g->remote;
    struct line *l;
    pthread_mutex_lock(&r->lock);
    if (g->passing) {
        pthread_mutex_unlock(&r->lock);
        return;
    }
    g->passing = true;
    while (!g->closed && (l = next_line_locked(g))) {
        struct waiting *w = take_first_locked(g, l);
        take_turn_locked(g, l, w->args.size);
        pthread_mutex_unlock(&r->lock);
        exo_err err = {0};
        exo_status st = deliver(g, l, w->actor, w->method, &w->args, w->caller, w->future, &err);
        if (st != EXO_OK)
            exo_future_complete(w->future, st, err.text, NULL);
        free_waiting(w);
        pthread_mutex_lock(&r->lock);
    }
    g->passing = false;
    pthread_mutex_unlock(&r->lock);
}

/* Whether a further call may wait. l: NULL if the asker has no line. */
static exo_status
check_room_locked(const struct gate *g, const struct line *l, size_t size, exo_err *err)
{
    const uint64_t *most = exo_quotas_default.most;
    exo_status st = exo_quota_check(NULL, EXO_QUOTA_WAITING, l ? l->count : 0, 1, err);
    if (st == EXO_OK)
        st = exo_quota_check(NULL, EXO_QUOTA_WAITING_BYTES, l ? l->bytes : 0, size, err);
    if (st != EXO_OK || (g->count < 2 * most[EXO_QUOTA_WAITING] &&
                         g->bytes + size <= 2 * most[EXO_QUOTA_WAITING_BYTES]))
        return st;
    return exo_fail(err, EXO_FULL,
                    "%" PRIu64 " calls with %" PRIu64
                    " bytes that others have asked for wait for a turn: wait for some "
                    "of them (docs/security.md)",
                    g->count, g->bytes);
}

exo_status
exo_remote_check_gate(exo_remote *r, exo_peer *peer, uint64_t asker, size_t size, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    const struct channel *c = exo_peer_user(peer);
    if (c && c->gate) {
        const struct line *l = &c->gate->own;
        if (asker)
            HASH_FIND(hh, c->gate->askers, &asker, sizeof asker, l);
        st = check_room_locked(c->gate, l, size, err);
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

static exo_status
wait_locked(struct gate *g, struct line *l, exo_ref actor, const char *method, exo_payload *args,
            const exo_identity *caller, exo_future *future, exo_err *err)
{
    exo_status st = check_room_locked(g, l, args->size, err);
    struct waiting *w = st == EXO_OK ? exo_calloc(1, sizeof *w + strlen(method) + 1) : NULL;
    if (!w) {
        tidy_line_locked(g, l);
        return st != EXO_OK ? st : exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    }
    w->actor = actor;
    w->future = exo_future_hold(future);
    w->caller = exo_identity_hold(caller);
    w->args = *args;
    *args = (exo_payload){0};
    strcpy(w->method, method);
    if (l->last)
        l->last->next = w;
    else
        l->first = w;
    l->last = w;
    l->count++;
    l->bytes += w->args.size;
    g->count++;
    g->bytes += w->args.size;
    return EXO_OK;
}

exo_status
exo_remote_pass(exo_remote *r, struct channel *c, exo_peer *peer, uint64_t asker, exo_ref actor,
                const char *method, exo_payload *args, exo_future *future, exo_err *err)
{
    const exo_identity *caller = exo_peer_identity(peer);
    exo_status st = EXO_OK;
    pthread_mutex_lock(&r->lock);
    struct gate *g = c->gate;
    if (!g && (g = c->gate = exo_calloc(1, sizeof *g))) {
        g->remote = r;
        g->references = 1;
    }
    struct line *l = g ? line_of_locked(g, asker) : NULL;
    bool now = l && !l->first && !g->passing && has_turn_locked(g, l, args->size);
    if (!l)
        st = exo_fail(err, EXO_NOMEM, "the callee has no memory for a call");
    else if (now)
        take_turn_locked(g, l, args->size);
    else
        st = wait_locked(g, l, actor, method, args, caller, future, err);
    if (l && !now)
        g->references++;
    pthread_mutex_unlock(&r->lock);
    if (now)
        return deliver(g, l, actor, method, args, caller, future, err);
    if (!l)
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
    struct line *l = NULL;
    pthread_mutex_lock(&r->lock);
    struct gate *g = c->gate;
    for (size_t i = 0; g && i < ENDED_AT_ONCE && (l = next_line_locked(g)); i++) {
        struct waiting *w = take_first_locked(g, l);
        tidy_line_locked(g, l);
        pthread_mutex_unlock(&r->lock);
        exo_future_complete(w->future, EXO_CANCELLED, "the caller is gone", NULL);
        free_waiting(w);
        pthread_mutex_lock(&r->lock);
    }
    bool more = g && l;
    if (g && !more) {
        c->gate = NULL;
        drop_gate_locked(g);
    }
    pthread_mutex_unlock(&r->lock);
    return more;
}
