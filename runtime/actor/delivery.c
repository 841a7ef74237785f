/* Large messages whose loss is reported: see delivery.h. Replies may come after the owner has
 * closed, so they share the state, which counts them. */
#include "actor/delivery.h"

#include <pthread.h>

#include <exogym/memory.h>

#include "actor/future.h"

struct exo_delivery {
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* `reporting` has become 0 */
    exo_delivery_lost *lost;
    void *context;
    bool closed;
    unsigned reporting; /* calls of `lost` that run */
    size_t references;  /* the owner's, and one for each message without a reply */
};

exo_delivery *
exo_delivery_open(exo_delivery_lost *lost, void *context)
{
    exo_delivery *d = exo_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->lost = lost;
    d->context = context;
    d->references = 1;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->quiet, NULL);
    return d;
}

/* Drops a reference, and releases the lock. */
static void
drop_locked(exo_delivery *d)
{
    bool last = --d->references == 0;
    pthread_mutex_unlock(&d->lock);
    if (!last)
        return;
    pthread_cond_destroy(&d->quiet);
    pthread_mutex_destroy(&d->lock);
    exo_free(d);
}

void
exo_delivery_close(exo_delivery *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    while (d->reporting > 0) /* a few instructions */
        pthread_cond_wait(&d->quiet, &d->lock);
    drop_locked(d);
}

/* Whether the receiver's process lacked something. Its end, and refusals by its actor, are known
 * otherwise. */
static bool
is_lack(exo_status st)
{
    return st == EXO_FULL || st == EXO_NOMEM || st == EXO_IO || st == EXO_UNSUPPORTED;
}

static void
on_reply(void *context, uint64_t tag, exo_future *future)
{
    exo_delivery *d = context;
    exo_err reason = {0};
    bool lost = is_lack(exo_wait(future, INT64_MAX, NULL, &reason));
    pthread_mutex_lock(&d->lock);
    if (lost && !d->closed) {
        d->reporting++;
        pthread_mutex_unlock(&d->lock);
        d->lost(d->context, tag, &reason);
        pthread_mutex_lock(&d->lock);
        if (--d->reporting == 0)
            pthread_cond_broadcast(&d->quiet);
    }
    drop_locked(d);
}

static const exo_future_hook reply_hook = {.done = on_reply};

exo_status
exo_delivery_send(exo_delivery *d, exo_runtime *runtime, exo_ref actor, const char *method,
                  exo_payload args, uint64_t tag, exo_err *err)
{
    exo_future *future = NULL;
    if (args.size < EXO_DELIVERY_LARGE)
        return exo_send(runtime, actor, method, args, INT64_MAX, err);
    exo_status st = exo_call(runtime, actor, method, args, INT64_MAX, &future, err);
    if (st != EXO_OK)
        return st;
    pthread_mutex_lock(&d->lock);
    d->references++;
    pthread_mutex_unlock(&d->lock);
    exo_future_set_hook(future, &reply_hook, d, tag);
    exo_future_drop(&future);
    return EXO_OK;
}
