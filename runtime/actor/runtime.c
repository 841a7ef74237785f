/* The runtime: the table of actors, their names, and the causes of the dead. See runtime_impl.h for locks and lifetimes.
 *
 * A reference is (generation << 32 | slot + 1). A slot's generation grows when its actor dies, so a reference to an earlier life
 * never finds a later one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "parallel.h"
#include "runtime_impl.h"

enum {
    REMEMBERED = 1024,
    FIRST_BUCKETS = 64
};

struct slot {
    exo_actor *actor; /* NULL: free */
    uint32_t generation;
    uint32_t next_free; /* index + 1 */
};

/* The name of a living actor. */
struct name {
    struct name *next;
    uint64_t hash;
    exo_actor *actor; /* its name and space are the key */
};

struct epitaph {
    uint64_t id;
    char *full_name; /* "space/name", or NULL */
    char cause[EXO_CAUSE];
};

struct exo_runtime {
    const exo_clock *clock;
    exo_pool *pool;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an actor settled or a thread ended */
    struct slot *slots;     /* guarded by lock, as all below */
    size_t num_slots, cap_slots;
    uint32_t first_free;
    struct name **buckets;
    size_t num_buckets, num_names;
    struct epitaph *dead; /* (REMEMBERED) a ring */
    size_t num_dead;
    size_t living;
    size_t threads;
    bool closing;
};

const exo_clock *
exo_runtime_clock(const exo_runtime *runtime)
{
    return runtime->clock;
}

exo_pool *
exo_runtime_pool(exo_runtime *runtime)
{
    return runtime->pool;
}

void
exo_runtime_thread_began(exo_runtime *runtime)
{
    pthread_mutex_lock(&runtime->lock);
    runtime->threads++;
    pthread_mutex_unlock(&runtime->lock);
}

void
exo_runtime_thread_ended(exo_runtime *runtime)
{
    pthread_mutex_lock(&runtime->lock);
    runtime->threads--;
    pthread_cond_broadcast(&runtime->changed);
    pthread_mutex_unlock(&runtime->lock);
}

/* --- Names -------------------------------------------------------------------------------------------------------------------- */

static uint64_t
hash_name(const char *space, const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (const char *c = space; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    h = (h ^ '/') * UINT64_C(1099511628211);
    for (const char *c = name; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return h;
}

static struct name **
find_name_locked(exo_runtime *rt, const char *space, const char *name)
{
    uint64_t h = hash_name(space, name);
    struct name **at = &rt->buckets[h % rt->num_buckets];
    while (*at &&
           !((*at)->hash == h && strcmp((*at)->actor->name, name) == 0 && strcmp((*at)->actor->space, space) == 0))
        at = &(*at)->next;
    return at;
}

static void
grow_buckets_locked(exo_runtime *rt)
{
    size_t larger = 2 * rt->num_buckets;
    struct name **buckets = exo_calloc(larger, sizeof(struct name *));
    if (!buckets)
        return; /* longer chains: slower, not wrong */
    for (size_t i = 0; i < rt->num_buckets; i++) {
        for (struct name *n = rt->buckets[i], *next; n; n = next) {
            next = n->next;
            n->next = buckets[n->hash % larger];
            buckets[n->hash % larger] = n;
        }
    }
    exo_free(rt->buckets);
    rt->buckets = buckets;
    rt->num_buckets = larger;
}

static exo_status
add_name_locked(exo_runtime *rt, exo_actor *actor)
{
    struct name *n = exo_calloc(1, sizeof *n);
    if (!n)
        return EXO_NOMEM;
    if (rt->num_names >= rt->num_buckets)
        grow_buckets_locked(rt);
    n->hash = hash_name(actor->space, actor->name);
    n->actor = actor;
    n->next = rt->buckets[n->hash % rt->num_buckets];
    rt->buckets[n->hash % rt->num_buckets] = n;
    rt->num_names++;
    return EXO_OK;
}

static void
remove_name_locked(exo_runtime *rt, exo_actor *actor)
{
    struct name **at = actor->name ? find_name_locked(rt, actor->space, actor->name) : NULL;
    if (!at || !*at || (*at)->actor != actor)
        return;
    struct name *n = *at;
    *at = n->next;
    rt->num_names--;
    exo_free(n);
}

/* --- The table ------------------------------------------------------------------------------------------------------------------ */

static exo_status
add_actor_locked(exo_runtime *rt, exo_actor *actor)
{
    if (rt->first_free == 0) {
        if (rt->num_slots == rt->cap_slots) {
            size_t cap = rt->cap_slots ? 2 * rt->cap_slots : 64;
            struct slot *larger = cap < UINT32_MAX ? exo_realloc(rt->slots, cap, sizeof *larger) : NULL;
            if (!larger)
                return EXO_NOMEM;
            rt->slots = larger;
            rt->cap_slots = cap;
        }
        rt->slots[rt->num_slots++] = (struct slot){.generation = 1};
        rt->first_free = (uint32_t)rt->num_slots;
    }
    uint32_t index = rt->first_free - 1;
    struct slot *s = &rt->slots[index];
    rt->first_free = s->next_free;
    s->actor = actor;
    actor->id = (uint64_t)s->generation << 32 | (index + 1);
    rt->living++;
    return EXO_OK;
}

static exo_actor *
find_actor_locked(exo_runtime *rt, uint64_t id)
{
    uint64_t index = id & UINT32_MAX;
    if (index == 0 || index > rt->num_slots)
        return NULL;
    struct slot *s = &rt->slots[index - 1];
    return s->actor && s->generation == id >> 32 ? s->actor : NULL;
}

exo_actor *
exo_runtime_find(exo_runtime *runtime, exo_ref ref)
{
    pthread_mutex_lock(&runtime->lock);
    exo_actor *actor = find_actor_locked(runtime, ref.id);
    if (actor)
        exo_actor_hold(actor);
    pthread_mutex_unlock(&runtime->lock);
    return actor;
}

bool
exo_runtime_forget(exo_runtime *rt, exo_actor *actor, const char *cause)
{
    char full[256];
    pthread_mutex_lock(&rt->lock);
    bool there = find_actor_locked(rt, actor->id) == actor;
    if (there) {
        struct slot *s = &rt->slots[(actor->id & UINT32_MAX) - 1];
        remove_name_locked(rt, actor);
        s->actor = NULL;
        s->generation++;
        s->next_free = rt->first_free;
        rt->first_free = (uint32_t)(actor->id & UINT32_MAX);

        struct epitaph *e = &rt->dead[rt->num_dead++ % REMEMBERED];
        exo_free(e->full_name);
        e->full_name = NULL;
        if (actor->name) {
            snprintf(full, sizeof full, "%s/%s", actor->space, actor->name);
            e->full_name = exo_strdup(full);
        }
        e->id = actor->id;
        snprintf(e->cause, sizeof e->cause, "%s", cause);
        rt->living--;
        pthread_cond_broadcast(&rt->changed);
    }
    pthread_mutex_unlock(&rt->lock);
    return there;
}

static const struct epitaph *
find_epitaph_locked(const exo_runtime *rt, uint64_t id, const char *full_name)
{
    size_t count = rt->num_dead < REMEMBERED ? rt->num_dead : REMEMBERED;
    for (size_t i = 0; i < count; i++) { /* the latest first */
        const struct epitaph *e = &rt->dead[(rt->num_dead - 1 - i) % REMEMBERED];
        if (full_name ? e->full_name && strcmp(e->full_name, full_name) == 0 : e->id == id)
            return e;
    }
    return NULL;
}

void
exo_runtime_cause(exo_runtime *runtime, uint64_t id, char *text, size_t size)
{
    pthread_mutex_lock(&runtime->lock);
    const struct epitaph *e = find_epitaph_locked(runtime, id, NULL);
    snprintf(text, size, "%s", e ? e->cause : "its cause is not known (any more)");
    pthread_mutex_unlock(&runtime->lock);
}

exo_status
exo_cause(exo_runtime *runtime, exo_ref actor, char *text, size_t size)
{
    pthread_mutex_lock(&runtime->lock);
    const struct epitaph *e =
        find_actor_locked(runtime, actor.id) ? NULL : find_epitaph_locked(runtime, actor.id, NULL);
    if (e)
        snprintf(text, size, "%s", e->cause);
    pthread_mutex_unlock(&runtime->lock);
    return e ? EXO_OK : EXO_NOT_FOUND;
}

exo_status
exo_get_actor(exo_runtime *runtime, const char *namespace_name, const char *name, exo_ref *out, exo_err *err)
{
    const char *space = namespace_name ? namespace_name : "default";
    char full[256];
    exo_status st = EXO_OK;
    pthread_mutex_lock(&runtime->lock);
    struct name *n = *find_name_locked(runtime, space, name);
    if (n) {
        out->id = n->actor->id;
    } else {
        snprintf(full, sizeof full, "%s/%s", space, name);
        const struct epitaph *e = find_epitaph_locked(runtime, 0, full);
        st = exo_fail(err, EXO_NOT_FOUND, "there is no actor '%s' in the namespace '%s'%s%s", name, space,
                      e ? "; the last one died: " : "", e ? e->cause : "");
    }
    pthread_mutex_unlock(&runtime->lock);
    return st;
}

/* --- Spawning ------------------------------------------------------------------------------------------------------------------- */

/* Enters the actor into the table, under its name if it has one. */
static exo_status
enter(exo_runtime *rt, exo_actor *actor, bool get_if_exists, exo_ref *existing, exo_err *err)
{
    exo_status st = EXO_OK;
    existing->id = 0;
    pthread_mutex_lock(&rt->lock);
    struct name *n = actor->name ? *find_name_locked(rt, actor->space, actor->name) : NULL;
    if (rt->closing) {
        st = exo_fail(err, EXO_CLOSED, "the runtime is closing");
    } else if (n && get_if_exists) {
        existing->id = n->actor->id;
    } else if (n) {
        st = exo_fail(err, EXO_EXISTS, "there is an actor '%s' in the namespace '%s' already", actor->name,
                      actor->space);
    } else {
        st = add_actor_locked(rt, actor);
        if (st == EXO_OK && actor->name && add_name_locked(rt, actor) != EXO_OK) {
            struct slot *s = &rt->slots[(actor->id & UINT32_MAX) - 1];
            s->actor = NULL;
            s->next_free = rt->first_free;
            rt->first_free = (uint32_t)(actor->id & UINT32_MAX);
            rt->living--;
            st = EXO_NOMEM;
        }
        if (st != EXO_OK)
            exo_fail(err, st, "no memory for an actor");
        else
            exo_actor_hold(actor); /* the spawner's; the first reference is that of being alive */
    }
    pthread_mutex_unlock(&rt->lock);
    return st;
}

static exo_status
copy_names(exo_actor *actor, const exo_spawn_opts *opts, exo_err *err)
{
    if (!opts->name)
        return EXO_OK;
    actor->name = exo_strdup(opts->name);
    actor->space = exo_strdup(opts->namespace_name ? opts->namespace_name : "default");
    return actor->name && actor->space ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the name '%s'", opts->name);
}

/* Runs the class's start, then opens the lanes: calls that came meanwhile are served now. */
static exo_status
start_actor(exo_actor *actor, const exo_payload *args, exo_err *err)
{
    exo_err reason = {0};
    exo_call_context context = {.runtime = actor->runtime, .actor = actor};
    exo_status st =
        actor->actor_class->start ? actor->actor_class->start(&context, actor->self, args, &reason) : EXO_OK;
    if (st == EXO_OK && context.dies)
        st = exo_fail(&reason, EXO_FAILED, "%s", context.cause);
    if (st != EXO_OK) {
        /* What start did it has undone: stop is for actors that lived. */
        pthread_mutex_lock(&actor->lock);
        void *self = actor->self;
        actor->self = NULL;
        pthread_mutex_unlock(&actor->lock);
        exo_free(self);
        const char *text = reason.text[0] ? reason.text : exo_status_text(st);
        exo_actor_die(actor, text, true);
        return exo_fail(err, st, "%s", text);
    }
    pthread_mutex_lock(&actor->lock);
    if (actor->state == EXO_ACTOR_STARTING)
        actor->state = EXO_ACTOR_ALIVE;
    for (size_t i = 0; i < actor->num_lanes; i++) {
        if (actor->lanes[i].wake)
            pthread_cond_broadcast(actor->lanes[i].wake);
        else if (actor->lanes[i].queued)
            exo_pool_push(actor->runtime->pool, &actor->lanes[i]);
    }
    pthread_mutex_unlock(&actor->lock);
    return EXO_OK;
}

exo_status
exo_spawn(exo_runtime *runtime, const exo_actor_class *actor_class, const exo_spawn_opts *opts, exo_ref *out,
          exo_err *err)
{
    static const exo_spawn_opts anonymous = {0};
    exo_payload args = opts ? opts->args : anonymous.args;
    opts = opts ? opts : &anonymous;
    exo_actor *actor = NULL;
    exo_ref existing = {0};
    exo_status st = exo_actor_new(runtime, actor_class, &actor, err);
    if (st == EXO_OK)
        st = copy_names(actor, opts, err);
    if (st == EXO_OK)
        st = enter(runtime, actor, opts->get_if_exists, &existing, err);
    if (st != EXO_OK || existing.id) {
        exo_actor_drop(actor); /* it never lived */
        exo_payload_release(&args);
        *out = existing;
        return st;
    }
    out->id = actor->id;
    st = start_actor(actor, &args, err);
    if (st != EXO_OK)
        out->id = 0;
    exo_payload_release(&args);
    exo_actor_drop(actor);
    return st;
}

/* --- Opening and closing ---------------------------------------------------------------------------------------------------------- */

exo_status
exo_runtime_open(exo_runtime **out, const exo_runtime_opts *opts, exo_err *err)
{
    exo_runtime *rt = exo_calloc(1, sizeof *rt);
    if (!rt)
        return exo_fail(err, EXO_NOMEM, "no memory for a runtime");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&rt->lock, NULL);
    pthread_cond_init(&rt->changed, &attr);
    pthread_condattr_destroy(&attr);
    rt->clock = opts && opts->clock ? opts->clock : exo_clock_real();
    rt->num_buckets = FIRST_BUCKETS;
    rt->buckets = exo_calloc(rt->num_buckets, sizeof(struct name *));
    rt->dead = exo_calloc(REMEMBERED, sizeof *rt->dead);
    unsigned threads = opts && opts->threads ? opts->threads : exo_usable_cores();
    exo_status st = rt->buckets && rt->dead ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a runtime");
    if (st == EXO_OK)
        st = exo_pool_open(&rt->pool, rt, threads, err);
    if (st != EXO_OK) {
        exo_err ignored;
        exo_runtime_close(&rt, INT64_MAX, &ignored);
        return st;
    }
    *out = rt;
    return EXO_OK;
}

/* Any living actor, held. */
static exo_actor *
any_actor(exo_runtime *rt)
{
    exo_actor *actor = NULL;
    pthread_mutex_lock(&rt->lock);
    for (size_t i = 0; !actor && i < rt->num_slots; i++)
        actor = rt->slots[i].actor;
    if (actor)
        exo_actor_hold(actor);
    pthread_mutex_unlock(&rt->lock);
    return actor;
}

static void
free_runtime(exo_runtime *rt)
{
    exo_pool_free(&rt->pool);
    for (size_t i = 0; rt->dead && i < REMEMBERED; i++)
        exo_free(rt->dead[i].full_name);
    exo_free(rt->dead);
    exo_free(rt->buckets);
    exo_free(rt->slots);
    pthread_cond_destroy(&rt->changed);
    pthread_mutex_destroy(&rt->lock);
    exo_free(rt);
}

/* Waits for the last thread; a clock that is not the real one is looked at every few milliseconds. */
static bool
wait_for_threads(exo_runtime *rt, exo_time deadline)
{
    pthread_mutex_lock(&rt->lock);
    while (rt->threads > 0) {
        exo_time now = exo_now(rt->clock), left = deadline - now;
        if (now >= deadline)
            break;
        exo_time slice = rt->clock == exo_clock_real() ? EXO_SECOND : 2 * EXO_MS;
        left = left < slice ? left : slice;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + left;
        until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND), .tv_nsec = (long)(at % EXO_SECOND)};
        pthread_cond_timedwait(&rt->changed, &rt->lock, &until);
    }
    bool ended = rt->threads == 0;
    pthread_mutex_unlock(&rt->lock);
    return ended;
}

exo_status
exo_runtime_close(exo_runtime **runtime, exo_time deadline, exo_err *err)
{
    exo_runtime *rt = *runtime;
    if (!rt)
        return EXO_OK;
    *runtime = NULL;
    pthread_mutex_lock(&rt->lock);
    rt->closing = true;
    pthread_mutex_unlock(&rt->lock);
    for (exo_actor *a; (a = any_actor(rt));) {
        exo_actor_die(a, "the runtime was closed", false);
        exo_actor_drop(a);
    }
    if (rt->pool)
        exo_pool_stop(rt->pool);
    if (!wait_for_threads(rt, deadline))
        return exo_fail(err, EXO_TIMEOUT, "%zu threads of actors did not end: their memory is left to them",
                        rt->threads);
    free_runtime(rt);
    return EXO_OK;
}
