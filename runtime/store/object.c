/* The public functions of objects (object.h): this process's one store, and objects as payloads.
 * Read next: store.c. */
#include <exogym/object.h>

#include <pthread.h>
#include <string.h>

#include "base/environment.h"
#include "store/store.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exo_store *store; /* guarded by lock; never closed */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A child of fork makes a store of its own; its parent's serves the parent alone. */
static void
forget_store(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    store = NULL;
}

static void
watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_store);
}

exo_status
exo_store_default(exo_store **out, exo_err *err)
{
    exo_status st = EXO_OK;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (!store) {
        uint64_t capacity = exo_environment_store();
        const exo_store_opts opts = {.capacity = capacity, .keep = capacity / 8};
        st = exo_store_open(&store, capacity ? &opts : NULL, err);
    }
    *out = store;
    pthread_mutex_unlock(&lock);
    return st;
}

exo_status
exo_object_new(exo_object **out, uint64_t size, exo_err *err)
{
    exo_store *s = NULL;
    exo_status st = exo_store_default(&s, err);
    return st == EXO_OK ? exo_object_create(s, size, out, err) : st;
}

exo_status
exo_object_put(exo_object **out, const void *data, uint64_t size, exo_err *err)
{
    exo_status st = exo_object_new(out, size, err);
    if (st != EXO_OK)
        return st;
    if (size)
        memcpy(exo_object_data(*out), data, size);
    exo_object_seal(*out);
    return EXO_OK;
}

static void
release_object(void *owner)
{
    exo_object *object = owner;
    exo_object_drop(&object);
}

exo_payload
exo_object_payload(exo_object *object)
{
    return (exo_payload){.data = exo_object_data(object),
                         .size = exo_object_size(object),
                         .release = release_object,
                         .owner = exo_object_hold(object)};
}

exo_object *
exo_object_of_payload(const exo_payload *payload)
{
    return payload->release == release_object ? payload->owner : NULL;
}

exo_status
exo_payload_stable(exo_payload *out, const exo_payload *payload)
{
    const exo_object *object = exo_object_of_payload(payload);
    if (object && exo_object_may_change(object))
        return exo_payload_copy(out, payload->data, payload->size);
    *out = exo_payload_borrow(payload->data, payload->size);
    return EXO_OK;
}
