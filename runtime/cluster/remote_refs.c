/* References to actors of other processes: see remote.h. This file defines a reference's number,
 * and what the number leads to until its connection is lost.
 *
 * A number is (generation << 32 | slot + 1) under EXO_REMOTE, so that an old one finds nothing.
 * Slots never move; the remote's lock guards all of them. Read next: remote_calls.c. */
#include <string.h>

#include <exogym/memory.h>

#include "base/printable.h"
#include "cluster/quota.h"
#include "cluster/remote_impl.h"

enum {
    /* dead references whose causes are kept at least */
    KEPT_DEAD = 1024,
    FIRST_SWEEP = 1024 /* references below which no process is asked for deaths */
};

#define SWEEP_TIMEOUT (30 * EXO_SECOND)

struct reference *
exo_remote_reference_locked(exo_remote *r, exo_ref actor)
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
    if (r->num_free > KEPT_DEAD) {
        struct reference *ref = r->references[r->first_free - 1];
        r->first_free = ref->next_free;
        r->num_free--;
        ref->generation = ref->generation % GENERATION + 1;
        ref->suspect = false;
        exo_free(ref->cause);
        ref->cause = NULL;
        return ref;
    }
    if (r->num_references == r->cap_references) {
        size_t cap = r->cap_references ? 2 * r->cap_references : 64;
        struct reference **larger =
            cap < UINT32_MAX ? exo_realloc(r->references, cap, sizeof *larger) : NULL;
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

static uint64_t
hash_text(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

/* Counts the reference in the channel of its actor's process. */
static void
count_reference_locked(const struct reference *ref, bool more)
{
    struct channel *c = exo_peer_user(ref->peer);
    if (c && !c->closed && c->peer == ref->peer && !ref->system)
        c->num_references += more ? 1 : -1u;
}

/* Ends a reference. Its cause is kept until the slot is used again; a cause that a monitor has
 * reported is more precise than `cause`, and stays. */
static void
bury_reference_locked(exo_remote *r, struct reference *ref, const char *cause)
{
    HASH_DEL(r->by_key, ref);
    count_reference_locked(ref, false);
    exo_peer_drop(&ref->peer);
    exo_free(ref->system);
    ref->system = NULL;
    if (!ref->cause)
        ref->cause = exo_strdup(cause);
    ref->next_free = 0;
    if (r->num_free++)
        r->references[r->last_free - 1]->next_free = ref->index + 1;
    else
        r->first_free = ref->index + 1;
    r->last_free = ref->index + 1;
}

/* --- References to dead actors ---------------------------------------------------------------- */

/* A question to a process, which of its actors are dead. */
struct sweep {
    exo_remote *remote;
    uint64_t node;
    exo_future *future; /* held */
};

static void
sweep_answered(void *context, uint64_t tag, exo_future *future)
{
    struct sweep *s = context;
    exo_remote *r = s->remote;
    exo_payload reply = {0};
    (void)tag;
    /* otherwise the references stay for now */
    bool told = exo_future_take(future, &reply, NULL) == EXO_OK;
    pthread_mutex_lock(&r->lock);
    const char *at = reply.data, *end = at + reply.size;
    while (told && at && (size_t)(end - at) > sizeof(uint64_t)) {
        struct key key = {.node = s->node};
        struct reference *ref = NULL;
        memcpy(&key.id, at, sizeof key.id);
        const char *cause = at + sizeof key.id, *last = memchr(cause, 0, (size_t)(end - cause));
        if (!last)
            break;
        HASH_FIND(hh, r->by_key, &key, sizeof key, ref);
        if (ref && !ref->system)
            bury_reference_locked(r, ref,
                                  cause[0] ? cause : "its process says so, and does not know why");
        at = last + 1;
    }
    size_t left = HASH_COUNT(r->by_key);
    r->sweep_at = left > FIRST_SWEEP / 2 ? 2 * left : FIRST_SWEEP;
    pthread_mutex_unlock(&r->lock);
    exo_payload_release(&reply);
    exo_future_drop(&s->future);
    exo_free(s);
}

static const exo_future_hook sweep_hook = {.done = sweep_answered};

static void
ask_which_are_dead(exo_remote *r, exo_peer *peer, const uint64_t *ids, size_t count)
{
    exo_ref process;
    exo_payload args = {0};
    struct sweep *s = exo_calloc(1, sizeof *s);
    exo_status st = s ? exo_remote_system(r, peer, "", &process, NULL) : EXO_NOMEM;
    if (st == EXO_OK)
        st = exo_payload_copy(&args, ids, count * sizeof *ids);
    if (st == EXO_OK) {
        const exo_clock *clock = exo_runtime_clock(r->runtime);
        *s = (struct sweep){.remote = r, .node = exo_peer_node(peer)};
        st = exo_future_new(&s->future, clock, exo_deadline(clock, SWEEP_TIMEOUT), NULL);
    }
    if (st == EXO_OK)
        st = exo_remote_call(r, process, EXO_REMOTE_DEATHS, &args, s->future, NULL);
    exo_payload_release(&args);
    if (st != EXO_OK) {
        if (s)
            exo_future_drop(&s->future);
        exo_free(s);
        return;
    }
    exo_future *future = exo_future_hold(s->future); /* s may be freed once the hook is set */
    exo_future_set_hook(future, &sweep_hook, s, 0);
    exo_future_drop(&future);
}

/* Gathers the actors of a process from slot *from on, at most ASKED_AT_ONCE. *from becomes the slot
 * at which to continue. */
static size_t
gather_locked(const exo_remote *r, const exo_peer *peer, uint32_t *from,
              uint64_t ids[ASKED_AT_ONCE])
{
    size_t count = 0;
    for (; *from < r->num_references && count < ASKED_AT_ONCE; ++*from) {
        const struct reference *ref = r->references[*from];
        if (ref->peer == peer && !ref->system)
            ids[count++] = ref->key.id;
    }
    return count;
}

/* Asks every connected process. The answers come later. */
static void
sweep_references(exo_remote *r)
{
    uint64_t ids[ASKED_AT_ONCE];
    size_t num_peers = 0, count;
    pthread_mutex_lock(&r->lock);
    for (const struct channel *c = r->channels; c; c = c->next)
        num_peers++;
    exo_peer **peers = exo_calloc(num_peers + 1, sizeof(exo_peer *));
    num_peers = 0;
    for (const struct channel *c = r->channels; peers && c; c = c->next)
        if (!c->closed)
            peers[num_peers++] = exo_peer_hold(c->peer);
    pthread_mutex_unlock(&r->lock);
    for (size_t i = 0; i < num_peers; i++) {
        uint32_t from = 0;
        do {
            pthread_mutex_lock(&r->lock);
            count = gather_locked(r, peers[i], &from, ids);
            pthread_mutex_unlock(&r->lock);
            if (count > 0)
                ask_which_are_dead(r, peers[i], ids, count);
        } while (count == ASKED_AT_ONCE);
        exo_peer_drop(&peers[i]);
    }
    exo_free(peers);
}

/* Whether there are so many references that some actors may be dead. After a true result it is
 * false until their number has doubled, or the processes have answered. */
static bool
is_sweep_due_locked(exo_remote *r)
{
    size_t count = HASH_COUNT(r->by_key), at = r->sweep_at ? r->sweep_at : FIRST_SWEEP;
    if (count < at)
        return false;
    r->sweep_at = 2 * count;
    return true;
}

static exo_status
get_reference(exo_remote *r, exo_peer *peer, uint64_t id, const char *system, exo_ref *out,
              exo_err *err)
{
    struct key key = {.node = exo_peer_node(peer), .id = system ? hash_text(system) : id};
    struct reference *ref = NULL;
    const struct channel *channel = NULL;
    exo_status st = EXO_OK;
    bool sweep = false;
    pthread_mutex_lock(&r->lock);
    HASH_FIND(hh, r->by_key, &key, sizeof key, ref);
    if (ref && ref->peer != peer && !exo_peer_is_open(ref->peer)) {
        /* the same process, over another connection */
        exo_peer_drop(&ref->peer);
        ref->peer = exo_peer_hold(peer);
        count_reference_locked(ref, true);
    }
    if (!ref && !exo_peer_is_open(peer)) {
        st = exo_fail(err, EXO_PEER_LOST, "'%s' is lost", exo_peer_name(peer));
    } else if (!ref && !(channel = exo_remote_channel_locked(r, peer))) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a connection");
    } else if (!ref && !system) {
        st = exo_quota_check(NULL, EXO_QUOTA_REFERENCES, channel->num_references, 1, err);
    }
    if (st == EXO_OK && !ref) {
        char *name = system ? exo_strdup(system) : NULL;
        ref = name || !system ? new_reference_locked(r) : NULL;
        if (ref) {
            ref->key = key;
            ref->peer = exo_peer_hold(peer);
            ref->system = name;
            HASH_ADD(hh, r->by_key, key, sizeof key, ref);
            count_reference_locked(ref, true);
            sweep = !system && is_sweep_due_locked(r);
        } else {
            exo_free(name);
            st = exo_fail(err, EXO_NOMEM, "no memory for a reference");
        }
    }
    if (st == EXO_OK) {
        out->id = EXO_REMOTE | (uint64_t)ref->generation << 32 | (ref->index + 1);
        /* so that exo_remote_peer finds the connection, even before the first call */
        if (exo_peer_is_open(peer))
            exo_remote_channel_locked(r, peer);
    }
    pthread_mutex_unlock(&r->lock);
    if (sweep)
        sweep_references(r);
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

void
exo_remote_bury_references_locked(exo_remote *r, const exo_peer *peer, const char *cause)
{
    for (uint32_t i = 0; i < r->num_references; i++)
        if (r->references[i]->peer == peer)
            bury_reference_locked(r, r->references[i], cause);
}

bool
exo_remote_locate(exo_remote *remote, exo_ref actor, uint64_t *node, uint64_t *id)
{
    pthread_mutex_lock(&remote->lock);
    const struct reference *ref = exo_remote_reference_locked(remote, actor);
    bool there = ref && ref->peer;
    if (there) {
        *node = ref->key.node;
        *id = ref->system ? 0 : ref->key.id;
    }
    pthread_mutex_unlock(&remote->lock);
    return there;
}

bool
exo_remote_is_near(exo_remote *remote, exo_ref actor)
{
    pthread_mutex_lock(&remote->lock);
    const struct reference *ref = exo_remote_reference_locked(remote, actor);
    bool near = ref && ref->peer && exo_peer_is_by_ipc(ref->peer);
    pthread_mutex_unlock(&remote->lock);
    return near;
}

bool
exo_remote_is_suspect(exo_remote *remote, exo_ref actor)
{
    pthread_mutex_lock(&remote->lock);
    const struct reference *ref = exo_remote_reference_locked(remote, actor);
    bool suspect = ref && ref->suspect;
    pthread_mutex_unlock(&remote->lock);
    return suspect;
}

exo_status
exo_remote_cause(void *context, exo_ref actor, char *text, size_t size)
{
    exo_remote *r = context;
    pthread_mutex_lock(&r->lock);
    const struct reference *ref = exo_remote_reference_locked(r, actor);
    bool dead = ref && ref->cause;
    if (dead)
        exo_cut(text, size, ref->cause);
    pthread_mutex_unlock(&r->lock);
    return dead ? EXO_OK : EXO_NOT_FOUND;
}

void
exo_remote_free_references(exo_remote *r)
{
    for (size_t i = 0; i < r->num_references; i++) {
        exo_peer_drop(&r->references[i]->peer);
        exo_free(r->references[i]->system);
        exo_free(r->references[i]->cause);
    }
    HASH_CLEAR(hh, r->by_key);
    for (size_t i = 0; i < r->num_references; i++)
        exo_free(r->references[i]);
    exo_free(r->references);
}
