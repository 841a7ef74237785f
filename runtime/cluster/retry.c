/* Repeated calls: see retry.h. One lock guards the list of actors and the calls that wait for a
 * next life. The only call under it asks exo_remote whether a reference is dead; the remote's lock
 * is taken under this one. Read next: remote_calls.c. */
#include "cluster/retry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <uthash.h>

#include <exogym/memory.h>

#include "base/thread.h"

enum {
    /* lost actors whose callers may still reach a next life: the latest */
    REMEMBERED = 10000
};

/* An actor with idempotent methods. It stays when it is lost, because a holder of the reference may
 * still call its next life. */
struct subject {
    uint64_t ref;
    char *space, *name, *methods;
    size_t size; /* of methods */
    UT_hash_handle hh;
};

struct retry {
    exo_retrier *retrier;
    char *space, *name, *method;
    exo_payload args;          /* copied for each life */
    exo_future *outer, *inner; /* held: the caller's, and the present life's */
    atomic_uint references;
    struct retry *next;
};

struct exo_retrier {
    exo_runtime *runtime;
    exo_remote *remote;
    exo_status (*find)(void *context, const char *space, const char *name, exo_ref *out,
                       exo_err *err);
    void *context;
    atomic_bool any; /* there are subjects; otherwise a call needs no lookup */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct subject *subjects; /* guarded by lock, like all below */
    size_t trim_at;           /* number of subjects at which the oldest lost ones are forgotten */
    struct retry *waiting;
    pthread_t thread;
    bool has_thread, stopped;
};

/* --- Actors ----------------------------------------------------------------------------------- */

static void
free_subject(struct subject *s)
{
    exo_free(s->space);
    exo_free(s->name);
    exo_free(s->methods);
    exo_free(s);
}

static bool
is_lost(exo_retrier *t, const struct subject *s)
{
    uint64_t node, id;
    return !exo_remote_locate(t->remote, (exo_ref){.id = s->ref}, &node, &id);
}

/* Forgets the oldest lost actors beyond REMEMBERED. Because it looks at every actor, it works only
 * when the number has grown by REMEMBERED. */
static void
trim_subjects_locked(exo_retrier *t)
{
    struct subject *s, *next;
    size_t lost = 0;
    if (HASH_COUNT(t->subjects) < (t->trim_at ? t->trim_at : 2 * REMEMBERED))
        return;
    for (s = t->subjects; s; s = s->hh.next)
        lost += is_lost(t, s);
    HASH_ITER (hh, t->subjects, s, next) {
        if (lost <= REMEMBERED)
            break;
        if (is_lost(t, s)) {
            HASH_DEL(t->subjects, s);
            free_subject(s);
            lost--;
        }
    }
    t->trim_at = HASH_COUNT(t->subjects) + REMEMBERED;
}

void
exo_retrier_learn(exo_retrier *retrier, exo_ref actor, const char *space, const char *name,
                  const void *methods, size_t size)
{
    struct subject *s = NULL;
    if (size == 0 || ((const char *)methods)[size - 1] != 0)
        return; /* no methods, or bytes of another process that are no list of names */
    pthread_mutex_lock(&retrier->lock);
    trim_subjects_locked(retrier);
    HASH_FIND(hh, retrier->subjects, &actor.id, sizeof actor.id, s);
    if (!s && (s = exo_calloc(1, sizeof *s))) {
        s->ref = actor.id;
        s->space = exo_strdup(space);
        s->name = exo_strdup(name);
        s->methods = exo_calloc(1, size);
        s->size = size;
        if (s->space && s->name && s->methods) {
            memcpy(s->methods, methods, size);
            HASH_ADD(hh, retrier->subjects, ref, sizeof s->ref, s);
            atomic_store(&retrier->any, true);
        } else {
            free_subject(s);
        }
    }
    pthread_mutex_unlock(&retrier->lock);
}

size_t
exo_retrier_remembers(exo_retrier *retrier)
{
    pthread_mutex_lock(&retrier->lock);
    size_t count = HASH_COUNT(retrier->subjects);
    pthread_mutex_unlock(&retrier->lock);
    return count;
}

static bool
has_method(const struct subject *s, const char *method)
{
    for (const char *at = s->methods; at < s->methods + s->size; at += strlen(at) + 1)
        if (strcmp(at, method) == 0)
            return true;
    return false;
}

/* --- Calls ------------------------------------------------------------------------------------ */

static void
drop_retry(struct retry *r)
{
    if (atomic_fetch_sub(&r->references, 1) > 1)
        return;
    exo_payload_release(&r->args);
    exo_future_drop(&r->outer);
    exo_future_drop(&r->inner);
    exo_free(r->space);
    exo_free(r->name);
    exo_free(r->method);
    exo_free(r);
}

static void *retrier_main(void *argument);

/* The actor is lost: the retrier's thread waits for its next life, because this thread may not
 * block. */
static bool
wait_for_next_life(struct retry *r)
{
    exo_retrier *t = r->retrier;
    pthread_mutex_lock(&t->lock);
    if (!t->has_thread && !t->stopped)
        t->has_thread =
            exo_thread_start(&t->thread, retrier_main, t, "repeated calls", NULL) == EXO_OK;
    bool waits = t->has_thread && !t->stopped;
    if (waits) {
        atomic_fetch_add(&r->references, 1);
        r->next = t->waiting;
        t->waiting = r;
        pthread_cond_signal(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return waits;
}

static bool
is_late(const struct retry *r)
{
    return exo_future_ready(r->outer) ||
           exo_now(exo_runtime_clock(r->retrier->runtime)) >= exo_future_deadline(r->outer);
}

/* A life has answered, or is lost. */
static void
inner_done(void *context, uint64_t tag, exo_future *future)
{
    struct retry *r = context;
    exo_payload reply = {0};
    exo_err err = {0};
    (void)tag;
    exo_status st = exo_future_take(future, &reply, &err);
    if (st != EXO_PEER_LOST || is_late(r) || !wait_for_next_life(r))
        exo_future_complete(r->outer, st, err.text, &reply);
    exo_payload_release(&reply);
    drop_retry(r);
}

static const exo_future_hook inner_hook = {.done = inner_done};

/* Calls one life. *again: it was lost before the call was sent. */
static exo_status
call_life(struct retry *r, exo_ref actor, bool *again, exo_err *err)
{
    exo_future *inner = NULL;
    exo_payload args = {0};
    *again = false;
    exo_status st = exo_future_new(&inner, exo_runtime_clock(r->retrier->runtime),
                                   exo_future_deadline(r->outer), err);
    if (st == EXO_OK)
        st = exo_payload_copy(&args, r->args.data, r->args.size);
    if (st == EXO_OK) {
        st = exo_remote_call(r->retrier->remote, actor, r->method, &args, inner, err);
        *again = st == EXO_PEER_LOST;
    }
    if (st == EXO_OK) {
        pthread_mutex_lock(&r->retrier->lock);
        exo_future *old = r->inner;
        r->inner = exo_future_hold(inner);
        pthread_mutex_unlock(&r->retrier->lock);
        exo_future_drop(&old);
        atomic_fetch_add(&r->references, 1); /* the hook's */
        exo_future_set_hook(inner, &inner_hook, r, 0);
    }
    exo_future_drop(&inner);
    return st;
}

/* The caller's future is complete: by the reply, by cancellation or by its deadline. In the latter
 * cases the present life need not go on. */
static void
outer_done(void *context, uint64_t tag, exo_future *future)
{
    struct retry *r = context;
    (void)tag;
    (void)future;
    pthread_mutex_lock(&r->retrier->lock);
    exo_future *inner = r->inner ? exo_future_hold(r->inner) : NULL;
    pthread_mutex_unlock(&r->retrier->lock);
    if (inner && !exo_future_ready(inner))
        exo_cancel(inner);
    exo_future_drop(&inner);
    exo_net_kick(exo_remote_net(r->retrier->remote));
    drop_retry(r);
}

static bool
drive(void *context, bool (*done)(void *argument), void *argument, exo_time deadline)
{
    const struct retry *r = context;
    return exo_net_drive(exo_remote_net(r->retrier->remote), done, argument, deadline);
}

static const exo_future_hook outer_hook = {.done = outer_done, .drive = drive};

static struct retry *
new_retry(exo_retrier *t, const struct subject *s, const char *method, exo_payload *args,
          exo_future *future)
{
    struct retry *r = exo_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->references = 1;
    r->retrier = t;
    r->space = exo_strdup(s->space);
    r->name = exo_strdup(s->name);
    r->method = exo_strdup(method);
    r->outer = exo_future_hold(future);
    if (!r->space || !r->name || !r->method) {
        drop_retry(r);
        return NULL;
    }
    r->args = *args;
    *args = (exo_payload){0};
    return r;
}

bool
exo_retrier_call(exo_retrier *retrier, exo_ref actor, const char *method, exo_payload *args,
                 exo_future *future, exo_status *st, exo_err *err)
{
    struct subject *s = NULL;
    bool again = false;
    if (!atomic_load(&retrier->any))
        return false;
    pthread_mutex_lock(&retrier->lock);
    HASH_FIND(hh, retrier->subjects, &actor.id, sizeof actor.id, s);
    bool mine = s && has_method(s, method);
    struct retry *r = mine ? new_retry(retrier, s, method, args, future) : NULL;
    pthread_mutex_unlock(&retrier->lock);
    if (!mine)
        return false;
    if (!r) {
        *st = exo_fail(err, EXO_NOMEM, "no memory for a call");
        return true;
    }
    atomic_fetch_add(&r->references, 1); /* the hook's */
    exo_future_set_hook(future, &outer_hook, r, 0);
    *st = call_life(r, actor, &again, err);
    if (again && !is_late(r) && wait_for_next_life(r))
        *st = EXO_OK;
    if (*st != EXO_OK)
        exo_future_complete(future, *st, NULL, NULL); /* its hook drops the rest */
    drop_retry(r);
    return true;
}

/* --- The thread ------------------------------------------------------------------------------- */

static void
make_again(struct retry *r)
{
    exo_err err = {0};
    exo_ref actor = {0};
    bool again = false;
    if (is_late(r))
        return;
    exo_status st = r->retrier->find(r->retrier->context, r->space, r->name, &actor, &err);
    if (st == EXO_OK)
        st = call_life(r, actor, &again, &err);
    if (st == EXO_OK || (again && !is_late(r) && wait_for_next_life(r)))
        return;
    /* There will be no further life. */
    exo_future_complete(r->outer, EXO_PEER_LOST, err.text, NULL);
}

static void *
retrier_main(void *argument)
{
    exo_retrier *t = argument;
    pthread_mutex_lock(&t->lock);
    while (!t->stopped) {
        struct retry *r = t->waiting;
        if (!r) {
            pthread_cond_wait(&t->changed, &t->lock);
            continue;
        }
        t->waiting = r->next;
        pthread_mutex_unlock(&t->lock);
        make_again(r);
        drop_retry(r);
        pthread_mutex_lock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

exo_status
exo_retrier_new(exo_retrier **out, exo_runtime *runtime, exo_remote *remote,
                exo_status (*find)(void *context, const char *space, const char *name, exo_ref *out,
                                   exo_err *err),
                void *context, exo_err *err)
{
    exo_retrier *t = exo_calloc(1, sizeof *t);
    if (!t)
        return exo_fail(err, EXO_NOMEM, "no memory for calls that are made again");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->runtime = runtime;
    t->remote = remote;
    t->find = find;
    t->context = context;
    *out = t;
    return EXO_OK;
}

void
exo_retrier_stop(exo_retrier *retrier)
{
    if (!retrier)
        return;
    pthread_mutex_lock(&retrier->lock);
    retrier->stopped = true;
    pthread_cond_broadcast(&retrier->changed);
    pthread_mutex_unlock(&retrier->lock);
    for (;;) {
        pthread_mutex_lock(&retrier->lock);
        struct retry *r = retrier->waiting;
        if (r)
            retrier->waiting = r->next;
        pthread_mutex_unlock(&retrier->lock);
        if (!r)
            return;
        exo_future_complete(r->outer, EXO_PEER_LOST, "this process leaves the cluster", NULL);
        drop_retry(r);
    }
}

void
exo_retrier_join(exo_retrier *retrier)
{
    if (!retrier)
        return;
    pthread_mutex_lock(&retrier->lock);
    bool has_thread = retrier->has_thread; /* no thread is started any more */
    retrier->has_thread = false;
    pthread_mutex_unlock(&retrier->lock);
    if (has_thread)
        pthread_join(retrier->thread, NULL);
}

void
exo_retrier_free(exo_retrier **retrier)
{
    exo_retrier *t = *retrier;
    struct subject *s, *next;
    *retrier = NULL;
    if (!t)
        return;
    HASH_ITER (hh, t->subjects, s, next) {
        HASH_DEL(t->subjects, s);
        free_subject(s);
    }
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    exo_free(t);
}
