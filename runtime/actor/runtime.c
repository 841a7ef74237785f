/* The runtime: the table of actors, their names, and the causes of deaths. See runtime_impl.h for
 * locks and lifetimes.
 *
 * A reference is (generation << 32 | slot + 1). An actor's death increments its slot's generation,
 * so a reference to an earlier life never finds a later one. Slots never move. One word holds a
 * slot's generation and its count of references: a caller compares the generation and adds a
 * reference in one step, without a lock. A slot is reused once its count is 0, and retired after
 * 2^31 lives, because a repeated generation would let an old reference find a new life. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <exogym/memory.h>

/* If an allocation fails, uthash refuses the name and leaves the table as it was. */
#define HASH_NONFATAL_OOM         1
#define uthash_malloc(size)       exo_calloc(1, size)
#define uthash_free(memory, size) exo_free(memory)
#include <uthash.h>

#include "actor/runtime_impl.h"
#include "base/environment.h"
#include "base/forks.h"
#include "base/parallel.h"
#include "base/printable.h"

enum {
    REMEMBERED = 1024,
    FIRST_CHUNK = 64,
    CHUNKS = 26 /* chunk k has FIRST_CHUNK << k slots: 2^32 in all */
};

/* The next generation's references would contain the bit EXO_REMOTE. */
#define LAST_GENERATION ((EXO_REMOTE >> 32) - 1)

/* The name of a living actor. The key is "namespace\0name". Guarded by runtime->lock while it is in
 * the table. */
struct exo_name {
    UT_hash_handle hh;
    exo_actor *actor;
    size_t key_size;
    char key[];
};

/* The cause of a dead actor's death. */
struct epitaph {
    uint64_t id;
    char *key; /* the key of its exo_name; NULL: anonymous */
    size_t key_size;
    char cause[EXO_CAUSE];
};

struct exo_runtime {
    const exo_clock *clock;
    unsigned forks; /* exo_forks() of the process that opened it */
    exo_pool *pool;
    _Atomic(exo_slot *) chunks[CHUNKS]; /* each is written once, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* an actor died, the last one was freed, or a thread ended */
    uint32_t num_slots;     /* guarded by lock, like all below up to `closing` */
    uint32_t first_free;
    exo_name *names;
    struct epitaph *dead; /* (REMEMBERED) a ring */
    size_t num_dead;
    size_t threads;
    size_t held; /* actors that have references, dead ones included */
    bool closing;
    _Atomic(const exo_remote_ops *) remote;
    void *remote_context; /* written before `remote` */
};

void
exo_runtime_set_remote(exo_runtime *runtime, const exo_remote_ops *ops, void *context)
{
    if (ops)
        runtime->remote_context = context;
    atomic_store(&runtime->remote, ops);
}

const exo_remote_ops *
exo_runtime_remote(const exo_runtime *runtime, void **context)
{
    const exo_remote_ops *ops = atomic_load(&runtime->remote);
    *context = ops ? runtime->remote_context : NULL;
    return ops;
}

exo_status
exo_runtime_check_own(const exo_runtime *runtime, exo_err *err)
{
    return runtime->forks == exo_forks()
               ? EXO_OK
               : exo_fail(err, EXO_UNSUPPORTED,
                          "this process was forked from that of the runtime, whose threads it does "
                          "not have: leave the runtime alone here, and open another one");
}

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

/* --- Names ------------------------------------------------------------------------------------ */

static size_t
key_size(const char *space, const char *name)
{
    return strlen(space) + 1 + strlen(name);
}

/* Writes key_size + 1 bytes: a NUL ends the key, which key_size does not count. */
static void
write_key(char *key, const char *space, const char *name)
{
    size_t size = strlen(space) + 1;
    memcpy(key, space, size);
    memcpy(key + size, name, strlen(name) + 1);
}

static exo_name *
find_name_locked(exo_runtime *rt, const char *key, size_t size)
{
    exo_name *n;
    HASH_FIND(hh, rt->names, key, size, n);
    return n;
}

static exo_status
add_name_locked(exo_runtime *rt, exo_name *n)
{
    HASH_ADD_KEYPTR(hh, rt->names, n->key, n->key_size, n);
    return n->hh.tbl ? EXO_OK : EXO_NOMEM;
}

static void
remove_name_locked(exo_runtime *rt, exo_name *n)
{
    HASH_DELETE(hh, rt->names, n);
}

/* --- The table -------------------------------------------------------------------------------- */

static uint32_t
references(uint64_t life)
{
    return (uint32_t)life;
}

static uint64_t
generation(uint64_t life_or_id)
{
    return life_or_id >> 32;
}

/* The chunk of a slot; *at becomes the slot's place in it. */
static unsigned
chunk_of(uint32_t index, size_t *at)
{
    uint64_t n = (uint64_t)index + FIRST_CHUNK;
    unsigned k = 63 - (unsigned)__builtin_clzll(n) - (unsigned)__builtin_ctz(FIRST_CHUNK);
    *at = (size_t)(n - ((uint64_t)FIRST_CHUNK << k));
    return k;
}

/* NULL: the slot does not exist yet. */
static exo_slot *
slot_at(exo_runtime *rt, uint32_t index)
{
    size_t at;
    unsigned k = chunk_of(index, &at);
    exo_slot *chunk = k < CHUNKS ? atomic_load(&rt->chunks[k]) : NULL;
    return chunk ? &chunk[at] : NULL;
}

/* Returns an unused slot; NULL: no memory, or all slots are in use. */
static exo_slot *
take_slot_locked(exo_runtime *rt)
{
    exo_slot *s;
    if (rt->first_free) {
        s = slot_at(rt, rt->first_free - 1);
        rt->first_free = s->next_free;
        return s;
    }
    size_t at;
    unsigned k = chunk_of(rt->num_slots, &at);
    if (k >= CHUNKS || rt->num_slots == UINT32_MAX - 1)
        return NULL;
    if (at == 0) {
        exo_slot *chunk = exo_calloc((size_t)FIRST_CHUNK << k, sizeof *chunk);
        if (!chunk)
            return NULL;
        atomic_store(&rt->chunks[k], chunk);
    }
    s = slot_at(rt, rt->num_slots);
    s->index = rt->num_slots++;
    atomic_store(&s->life, UINT64_C(1) << 32);
    return s;
}

/* Returns a slot to the free list, or retires it if its generations are used up. */
static void
return_slot_locked(exo_runtime *rt, exo_slot *s)
{
    if (generation(atomic_load(&s->life)) > LAST_GENERATION)
        return;
    s->next_free = rt->first_free;
    rt->first_free = s->index + 1;
}

/* Adds a reference if the slot has any and its generation is `wanted`. */
static bool
hold_slot(exo_slot *s, uint64_t wanted)
{
    uint64_t life = atomic_load(&s->life);
    do {
        if (generation(life) != wanted || references(life) == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&s->life, &life, life + 1));
    return true;
}

exo_actor *
exo_runtime_find(exo_runtime *runtime, exo_ref ref)
{
    uint32_t index = (uint32_t)ref.id;
    exo_slot *s = index ? slot_at(runtime, index - 1) : NULL;
    return s && hold_slot(s, generation(ref.id)) ? s->actor : NULL;
}

void
exo_actor_hold(exo_actor *actor)
{
    atomic_fetch_add(&actor->slot->life, 1);
}

void
exo_actor_drop(exo_actor *actor)
{
    if (!actor)
        return;
    exo_slot *s = actor->slot;
    exo_runtime *rt = actor->runtime;
    if (references(atomic_fetch_sub(&s->life, 1)) > 1)
        return;
    exo_actor_free(actor);
    pthread_mutex_lock(&rt->lock);
    return_slot_locked(rt, s);
    /* closing: exo_runtime_close frees the runtime once the lock is released */
    if (--rt->held == 0 && rt->closing)
        pthread_cond_broadcast(&rt->changed);
    pthread_mutex_unlock(&rt->lock);
}

static bool
lives_locked(exo_runtime *rt, uint64_t id)
{
    exo_slot *s = (uint32_t)id ? slot_at(rt, (uint32_t)id - 1) : NULL;
    uint64_t life = s ? atomic_load(&s->life) : 0;
    return references(life) > 0 && generation(life) == generation(id);
}

bool
exo_runtime_lives(exo_runtime *runtime, exo_ref actor)
{
    pthread_mutex_lock(&runtime->lock);
    bool lives = lives_locked(runtime, actor.id);
    pthread_mutex_unlock(&runtime->lock);
    return lives;
}

static void
write_epitaph_locked(exo_runtime *rt, const exo_actor *actor, const char *cause)
{
    struct epitaph *e = &rt->dead[rt->num_dead++ % REMEMBERED];
    exo_free(e->key);
    e->key = actor->entry ? exo_calloc(actor->entry->key_size, 1) : NULL;
    e->key_size = e->key ? actor->entry->key_size : 0;
    if (e->key)
        memcpy(e->key, actor->entry->key, e->key_size);
    e->id = actor->id;
    exo_cut(e->cause, sizeof e->cause, cause);
}

bool
exo_runtime_forget(exo_runtime *rt, exo_actor *actor, const char *cause)
{
    pthread_mutex_lock(&rt->lock);
    bool there = lives_locked(rt, actor->id);
    if (there) {
        /* from here on no reference finds the actor */
        atomic_fetch_add(&actor->slot->life, UINT64_C(1) << 32);
        if (actor->entry)
            remove_name_locked(rt, actor->entry);
        write_epitaph_locked(rt, actor, cause);
        pthread_cond_broadcast(&rt->changed);
    }
    pthread_mutex_unlock(&rt->lock);
    return there;
}

static const struct epitaph *
find_epitaph_locked(const exo_runtime *rt, uint64_t id, const char *key, size_t size)
{
    size_t count = rt->num_dead < REMEMBERED ? rt->num_dead : REMEMBERED;
    for (size_t i = 0; i < count; i++) { /* the newest first */
        const struct epitaph *e = &rt->dead[(rt->num_dead - 1 - i) % REMEMBERED];
        if (key ? e->key_size == size && memcmp(e->key, key, size) == 0 : e->id == id)
            return e;
    }
    return NULL;
}

void
exo_runtime_cause(exo_runtime *runtime, uint64_t id, char *text, size_t size)
{
    pthread_mutex_lock(&runtime->lock);
    const struct epitaph *e = find_epitaph_locked(runtime, id, NULL, 0);
    exo_cut(text, size, e ? e->cause : "its cause is not known (any more)");
    pthread_mutex_unlock(&runtime->lock);
}

const char *
exo_actor_space(const exo_actor *actor)
{
    return actor->entry ? actor->entry->key : NULL;
}

exo_status
exo_cause(exo_runtime *runtime, exo_ref actor, char *text, size_t size)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    exo_status own = exo_runtime_check_own(runtime, NULL);
    if (own != EXO_OK)
        return own;
    if (actor.id & EXO_REMOTE)
        return remote ? remote->cause(context, actor, text, size) : EXO_NOT_FOUND;
    pthread_mutex_lock(&runtime->lock);
    const struct epitaph *e =
        lives_locked(runtime, actor.id) ? NULL : find_epitaph_locked(runtime, actor.id, NULL, 0);
    if (e)
        exo_cut(text, size, e->cause);
    pthread_mutex_unlock(&runtime->lock);
    return e ? EXO_OK : EXO_NOT_FOUND;
}

exo_status
exo_get_actor(exo_runtime *runtime, const char *namespace_name, const char *name, exo_ref *out,
              exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    const char *space = namespace_name ? namespace_name : "default";
    /* a search that succeeds in the end must not leave an error in *err */
    exo_err reason = {0};
    exo_status st = exo_runtime_check_own(runtime, &reason);
    if (st == EXO_OK)
        st = exo_runtime_find_name(runtime, space, name, out, &reason);
    if (st == EXO_NOT_FOUND && remote) {
        reason = (exo_err){0};
        st = remote->find(context, space, name, out, &reason);
    }
    if (st != EXO_OK && err)
        *err = reason;
    return st;
}

exo_status
exo_runtime_find_name(exo_runtime *runtime, const char *space, const char *name, exo_ref *out,
                      exo_err *err)
{
    char few[256], *key = few;
    exo_status st = EXO_OK;
    size_t size = key_size(space, name);
    if (size >= sizeof few && !(key = exo_calloc(size + 1, 1)))
        return exo_fail(err, EXO_NOMEM, "no memory to look for the actor '%s'", name);
    write_key(key, space, name);
    pthread_mutex_lock(&runtime->lock);
    const exo_name *n = find_name_locked(runtime, key, size);
    if (n) {
        out->id = n->actor->id;
    } else {
        const struct epitaph *e = find_epitaph_locked(runtime, 0, key, size);
        st = exo_fail(err, EXO_NOT_FOUND, "there is no actor '%s' in the namespace '%s'%s%s", name,
                      space, e ? "; the last one died: " : "", e ? e->cause : "");
    }
    pthread_mutex_unlock(&runtime->lock);
    if (key != few)
        exo_free(key);
    return st;
}

bool
exo_runtime_look(exo_runtime *runtime, exo_ref actor, exo_actor_info *out)
{
    exo_actor *a = exo_runtime_find(runtime, actor);
    *out = (exo_actor_info){0};
    if (!a)
        return false;
    *out = (exo_actor_info){
        .actor_class = a->actor_class, .space = exo_actor_space(a), .name = a->name, .held = a};
    return true;
}

void
exo_actor_info_release(exo_actor_info *info)
{
    exo_actor_drop(info->held);
    *info = (exo_actor_info){0};
}

/* --- Spawning --------------------------------------------------------------------------------- */

static exo_status
enter_locked(exo_runtime *rt, exo_actor *actor)
{
    exo_slot *s = take_slot_locked(rt);
    if (!s)
        return EXO_NOMEM;
    if (actor->entry && add_name_locked(rt, actor->entry) != EXO_OK) {
        return_slot_locked(rt, s);
        return EXO_NOMEM;
    }
    s->actor = actor;
    actor->slot = s;
    uint64_t life = atomic_load(&s->life);
    actor->id = (life & ~(uint64_t)UINT32_MAX) | (s->index + 1);
    /* the references of being alive and of the caller */
    atomic_store(&s->life, life + 2);
    rt->held++;
    return EXO_OK;
}

/* Enters the actor into the table, with its name if it has one, held; or returns the existing actor
 * of that name. */
static exo_status
enter(exo_runtime *rt, exo_actor *actor, bool get_if_exists, exo_ref *existing, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_mutex_lock(&rt->lock);
    const exo_name *n =
        actor->entry ? find_name_locked(rt, actor->entry->key, actor->entry->key_size) : NULL;
    if (rt->closing)
        st = exo_fail(err, EXO_CLOSED, "the runtime is closing");
    else if (n && get_if_exists)
        existing->id = n->actor->id;
    else if (n)
        st = exo_fail(err, EXO_EXISTS, "there is an actor '%s' in the namespace '%s' already",
                      actor->name, actor->entry->key);
    else if (enter_locked(rt, actor) != EXO_OK)
        st = exo_fail(err, EXO_NOMEM, "no memory for an actor");
    pthread_mutex_unlock(&rt->lock);
    return st;
}

static exo_status
name_actor(exo_actor *actor, const exo_spawn_opts *opts, exo_err *err)
{
    if (opts->namespace_name && !opts->namespace_name[0])
        return exo_fail(err, EXO_INVAL, "an actor of an empty namespace: give NULL for 'default'");
    if (!opts->name)
        return EXO_OK;
    const char *space = opts->namespace_name ? opts->namespace_name : "default";
    size_t size = key_size(space, opts->name);
    exo_name *n = exo_calloc(1, sizeof *n + size + 1);
    if (!n)
        return exo_fail(err, EXO_NOMEM, "no memory for the name '%s'", opts->name);
    write_key(n->key, space, opts->name);
    n->key_size = size;
    n->actor = actor;
    actor->entry = n;
    actor->name = n->key + strlen(space) + 1;
    return EXO_OK;
}

/* Replaces the class's concurrency and capacity of lanes by the caller's. */
static exo_status
set_lanes(exo_actor *actor, const exo_spawn_opts *opts, exo_err *err)
{
    for (size_t i = 0; i < opts->num_lanes; i++) {
        const exo_lane_opts *o = &opts->lanes[i];
        size_t found = 0;
        for (uint8_t j = 0; j < actor->num_lanes; j++) {
            exo_lane *lane = &actor->lanes[j];
            if (o->lane && strcmp(o->lane, lane->lane_class->name) != 0)
                continue;
            found++;
            lane->concurrency = o->max_concurrency ? o->max_concurrency : lane->concurrency;
            lane->capacity = o->max_pending_calls ? o->max_pending_calls : lane->capacity;
        }
        if (found == 0)
            return exo_fail(err, EXO_INVAL, "the class '%s' has no lane '%s'",
                            actor->actor_class->name, o->lane);
    }
    return EXO_OK;
}

/* Claims the actor's name in the cluster, where names are unique among all processes. */
static exo_status
claim_name(exo_actor *actor, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(actor->runtime, &context);
    if (!remote || !actor->name || strcmp(actor->entry->key, EXO_SYSTEM_SPACE) == 0)
        return EXO_OK;
    return remote->claim(context, actor->entry->key, actor->name, (exo_ref){.id = actor->id}, err);
}

/* `start` has returned. An actor that was ended meanwhile is stopped now; a failed `start` has undone
 * its own work, and `stop` does not run. */
static void
end_start(exo_actor *actor, bool failed)
{
    pthread_mutex_lock(&actor->lock);
    actor->started = true;
    if (failed)
        actor->self = NULL;
    pthread_mutex_unlock(&actor->lock);
    exo_actor_rest(actor);
}

/* Runs the class's `start`, then opens the lanes, which run the calls that came meanwhile. */
static exo_status
start_actor(exo_actor *actor, const exo_payload *args, exo_err *err)
{
    exo_err reason = {0};
    exo_call_context context = {.runtime = actor->runtime, .actor = actor};
    exo_status st = claim_name(actor, &reason);
    if (st == EXO_OK && actor->actor_class->start)
        st = actor->actor_class->start(&context, actor->self, args, &reason);
    if (st == EXO_OK && context.dies)
        st = exo_fail(&reason, EXO_FAILED, "%s", context.cause);
    end_start(actor, st != EXO_OK);
    if (st != EXO_OK) {
        const char *text = reason.text[0] ? reason.text : exo_status_text(st);
        exo_actor_die(actor, text, true);
        return exo_fail(err, st, "%s", text);
    }
    exo_actor_open(actor);
    return EXO_OK;
}

exo_status
exo_spawn(exo_runtime *runtime, const exo_actor_class *actor_class, const exo_spawn_opts *opts,
          exo_ref *out, exo_err *err)
{
    static const exo_spawn_opts anonymous = {0};
    exo_payload args = opts ? opts->args : anonymous.args;
    opts = opts ? opts : &anonymous;
    exo_actor *actor = NULL;
    exo_ref existing = {0};
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK)
        st = exo_actor_new(runtime, actor_class, &actor, err);
    if (st == EXO_OK)
        actor->gpus = opts->gpus;
    if (st == EXO_OK)
        st = set_lanes(actor, opts, err);
    if (st == EXO_OK)
        st = name_actor(actor, opts, err);
    if (st == EXO_OK)
        st = enter(runtime, actor, opts->get_if_exists, &existing, err);
    if (st != EXO_OK || existing.id) {
        if (actor)
            exo_actor_free(actor); /* it never was in the table */
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

/* --- Opening and closing ---------------------------------------------------------------------- */

exo_status
exo_runtime_open(exo_runtime **out, const exo_runtime_opts *opts, exo_err *err)
{
    exo_status st = exo_environment_check(err);
    if (st != EXO_OK)
        return st;
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
    rt->forks = exo_forks();
    rt->dead = exo_calloc(REMEMBERED, sizeof *rt->dead);
    unsigned threads = opts && opts->threads ? opts->threads : exo_usable_cores();
    st = rt->dead ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for a runtime");
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

/* Returns the next actor in the table, held; it may be dead already. */
static exo_actor *
next_actor(exo_runtime *rt, uint32_t *at)
{
    exo_actor *actor = NULL;
    pthread_mutex_lock(&rt->lock);
    for (; !actor && *at < rt->num_slots; ++*at) {
        exo_slot *s = slot_at(rt, *at);
        if (hold_slot(s, generation(atomic_load(&s->life))))
            actor = s->actor;
    }
    pthread_mutex_unlock(&rt->lock);
    return actor;
}

static void
free_runtime(exo_runtime *rt)
{
    exo_pool_free(&rt->pool);
    for (size_t i = 0; rt->dead && i < REMEMBERED; i++)
        exo_free(rt->dead[i].key);
    exo_free(rt->dead);
    for (size_t i = 0; i < CHUNKS; i++)
        exo_free(atomic_load(&rt->chunks[i]));
    pthread_cond_destroy(&rt->changed);
    pthread_mutex_destroy(&rt->lock);
    exo_free(rt);
}

/* Waits for the last thread and for the last held actor: another thread may be running a `stop`, or
 * about to. With a clock other than the real one, it reads the clock every few milliseconds. */
static bool
wait_for_others(exo_runtime *rt, exo_time deadline)
{
    pthread_mutex_lock(&rt->lock);
    while (rt->threads > 0 || rt->held > 0) {
        exo_time now = exo_now(rt->clock), left = deadline - now;
        if (now >= deadline)
            break;
        exo_time slice = rt->clock == exo_clock_real() ? EXO_SECOND : 2 * EXO_MS;
        left = left < slice ? left : slice;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        exo_time at = (exo_time)until.tv_sec * EXO_SECOND + until.tv_nsec + left;
        until = (struct timespec){.tv_sec = (time_t)(at / EXO_SECOND),
                                  .tv_nsec = (long)(at % EXO_SECOND)};
        pthread_cond_timedwait(&rt->changed, &rt->lock, &until);
    }
    bool ended = rt->threads == 0 && rt->held == 0;
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
    exo_status st = exo_runtime_check_own(rt, err);
    if (st != EXO_OK)
        return st;
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(rt, &context);
    if (remote && remote->close)
        remote->close(context);
    pthread_mutex_lock(&rt->lock);
    rt->closing = true;
    pthread_mutex_unlock(&rt->lock);
    /* one pass: no actor is entered any more */
    uint32_t at = 0;
    for (exo_actor *a; (a = next_actor(rt, &at));) {
        exo_actor_die(a, "the runtime was closed", false);
        exo_actor_drop(a);
    }
    exo_actors_settle(rt);
    if (rt->pool)
        exo_pool_stop(rt->pool);
    if (!wait_for_others(rt, deadline))
        return exo_fail(
            err, EXO_TIMEOUT,
            "%zu threads of actors and %zu actors did not end: their memory is left to them",
            rt->threads, rt->held);
    free_runtime(rt);
    return EXO_OK;
}
