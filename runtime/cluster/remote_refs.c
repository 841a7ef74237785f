/* References to actors of other processes: see remote.h. What a reference's number is, and what it leads to until its connection is lost.
 *
 * A number is (generation << 32 | slot + 1) under EXO_REMOTE, so that one that comes late finds nothing. Slots never move; everything in
 * them is guarded by the remote's lock. Read next: remote_calls.c. */
#include <stdio.h>

#include <exogym/memory.h>

#include "remote_impl.h"

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
            exo_remote_channel_locked(r, peer); /* exo_remote_peer finds it from now on, called through or not */
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
    bool dead = ref && !ref->peer && ref->cause;
    if (dead)
        snprintf(text, size, "%s", ref->cause);
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
