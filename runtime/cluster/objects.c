/* Objects by name: see object.h. An object of this host is imported; one of another host is
 * fetched, in pieces of which several are requested at a time. Keeps nothing; runs on the caller's
 * thread. */
#include <exogym/object.h>

#include <assert.h>
#include <string.h>

#include "actor/hooks.h"
#include "cluster/remote.h"
#include "net/process.h"

enum {
    PIECE = 4 << 20, /* bytes */
    WINDOW = 4       /* pieces requested at a time */
};

/* The contents of an exo_object_id. */
struct name {
    uint64_t node; /* 0: a runtime without a cluster */
    exo_object_handle handle;
};

static_assert(sizeof(struct name) == sizeof(exo_object_id), "a name is a node and a handle");

exo_status
exo_object_name(exo_runtime *runtime, const exo_object *object, exo_object_id *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    struct name name = {.node = remote ? remote->node(context) : 0};
    exo_status st = exo_object_export(object, &name.handle, err);
    if (st == EXO_OK)
        memcpy(out, &name, sizeof name);
    return st;
}

static exo_status
ask_for_piece(const exo_remote_ops *remote, void *context, const struct name *name, uint64_t first,
              exo_time deadline, exo_future **out, exo_err *err)
{
    const exo_remote_fetch fetch = {.handle = name->handle, .first = first, .size = PIECE};
    exo_payload args = {0};
    exo_status st = exo_payload_copy(&args, &fetch, sizeof fetch);
    return st == EXO_OK
               ? remote->call_node(context, name->node, EXO_REMOTE_FETCH, &args, deadline, out, err)
               : exo_fail(err, st, "no memory to fetch an object");
}

static exo_status
take_piece(exo_future *future, exo_object *object, uint64_t first, exo_time deadline, exo_err *err)
{
    const exo_payload *piece = NULL;
    uint64_t left = exo_object_size(object) - first, size = left < PIECE ? left : PIECE;
    exo_status st = exo_wait(future, deadline, &piece, err);
    if (st == EXO_OK && piece->size != size)
        st = exo_fail(err, EXO_FAILED, "a piece of an object has %zu bytes instead of %llu",
                      piece->size, (unsigned long long)size);
    if (st == EXO_OK)
        memcpy((char *)exo_object_data(object) + first, piece->data, size);
    return st;
}

static exo_status
fetch(const exo_remote_ops *remote, void *context, const struct name *name, exo_time deadline,
      exo_object **out, exo_err *err)
{
    exo_future *futures[WINDOW] = {0};
    exo_object *object = NULL;
    uint64_t size = name->handle.size;
    exo_status st = exo_object_new(&object, size, err);
    uint64_t asked = 0;
    for (uint64_t first = 0; st == EXO_OK && (first < size || first == 0); first += PIECE) {
        for (; st == EXO_OK && asked < first + (uint64_t)WINDOW * PIECE &&
               (asked < size || asked == 0);
             asked += PIECE)
            st = ask_for_piece(remote, context, name, asked, deadline,
                               &futures[asked / PIECE % WINDOW], err);
        exo_future **future = &futures[first / PIECE % WINDOW];
        if (st == EXO_OK)
            st = take_piece(*future, object, first, deadline, err);
        exo_future_drop(future);
    }
    for (int i = 0; i < WINDOW; i++)
        exo_future_drop(&futures[i]);
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    exo_object_seal(object);
    *out = object;
    return EXO_OK;
}

exo_status
exo_object_get(exo_runtime *runtime, const exo_object_id *id, exo_time deadline, exo_object **out,
               exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    struct name name;
    exo_store *store = NULL;
    exo_err reason = {0};
    memcpy(&name, id, sizeof name);
    exo_status st = exo_store_default(&store, err);
    if (st != EXO_OK)
        return st;
    bool here = !remote || name.node == remote->node(context) ||
                exo_process_start(name.handle.owner) == name.handle.owner_start;
    st = here ? exo_object_import(store, &name.handle, out, &reason) : EXO_PEER_LOST;
    if (st == EXO_OK || !remote || name.node == 0 || name.node == remote->node(context) ||
        st == EXO_NOT_FOUND)
        return st == EXO_OK
                   ? st
                   : exo_fail(err, st, "%s", reason.text[0] ? reason.text : "its process is gone");
    return fetch(remote, context, &name, deadline, out, err);
}
