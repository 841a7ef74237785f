/* Objects by name: see object.h. An object of this host is imported; one of another host, or whose
 * bytes are elsewhere, is fetched, in pieces of which several are requested at a time. Keeps nothing;
 * runs on the caller's thread. */
#include <exogym/object.h>

#include <inttypes.h>
#include <string.h>

#include "actor/hooks.h"
#include "cluster/remote.h"
#include "net/process.h"

enum {
    PIECE = EXO_REMOTE_PIECE,
    WINDOW = 4 /* pieces requested at a time */
};

exo_status
exo_object_name(exo_runtime *runtime, const exo_object *object, exo_object_id *out, exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    exo_object_name_words name = {.node = remote ? remote->node(context) : 0};
    exo_status st = exo_object_export(object, &name.handle, err);
    if (st == EXO_OK)
        memcpy(out, &name, sizeof name);
    return st;
}

static exo_status
ask_for_piece(const exo_remote_ops *remote, void *context, const exo_object_name_words *name,
              uint64_t first, exo_time deadline, exo_future **out, exo_err *err)
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
    if (st == EXO_OK && size > 0)
        memcpy((char *)exo_object_data(object) + first, piece->data, size);
    return st;
}

static exo_status
fetch(const exo_remote_ops *remote, void *context, const exo_object_name_words *name,
      exo_time deadline, exo_object **out, exo_err *err)
{
    exo_future *futures[WINDOW] = {0};
    exo_object *object = NULL;
    uint64_t size = name->handle.size;
    exo_status st = EXO_OK;
    uint64_t asked = 0;
    for (uint64_t first = 0; st == EXO_OK && (first < size || first == 0); first += PIECE) {
        for (; st == EXO_OK && asked < first + (uint64_t)WINDOW * PIECE &&
               (asked < size || asked == 0);
             asked += PIECE)
            st = ask_for_piece(remote, context, name, asked, deadline,
                               &futures[asked / PIECE % WINDOW], err);
        exo_future **future = &futures[first / PIECE % WINDOW];
        if (st == EXO_OK && first == 0) /* memory is for what is there */
            st = exo_wait(*future, deadline, NULL, err);
        if (st == EXO_OK && first == 0)
            st = exo_object_new(&object, size, err);
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
    exo_object_set_kind(object, name->handle.kind);
    exo_object_seal(object);
    *out = object;
    return EXO_OK;
}

/* Puts bytes that this process has elsewhere into an object. */
static exo_status
bring(const exo_object *from, exo_object **out, exo_err *err)
{
    exo_object *object = NULL;
    const uint64_t size = exo_object_bytes(from);
    exo_status st = exo_object_new(&object, size, err);
    if (st == EXO_OK)
        st = exo_object_read_elsewhere(from, 0, size, exo_object_data(object), err);
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    exo_object_set_kind(object, exo_object_kind(from));
    exo_object_seal(object);
    *out = object;
    return EXO_OK;
}

/* Gets the bytes of an object of this host that are elsewhere; *record is moved. */
static exo_status
get_elsewhere(const exo_remote_ops *remote, void *context, const exo_object_name_words *name,
              exo_object **record, exo_time deadline, exo_object **out, exo_err *err)
{
    exo_status st;
    if (!exo_object_is_imported(*record))
        st = bring(*record, out, err);
    else if (remote && name->node != 0)
        st = fetch(remote, context, name, deadline, out, err);
    else
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "the bytes of the object are on a device of process %" PRIu32
                      ", which cannot be asked for them without a cluster",
                      name->handle.owner);
    exo_object_drop(record);
    return st;
}

exo_status
exo_object_get(exo_runtime *runtime, const exo_object_id *id, exo_time deadline, exo_object **out,
               exo_err *err)
{
    void *context;
    const exo_remote_ops *remote = exo_runtime_remote(runtime, &context);
    exo_object_name_words name;
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_err reason = {0};
    *out = NULL;
    memcpy(&name, id, sizeof name);
    exo_status st = exo_runtime_check_own(runtime, err);
    if (st == EXO_OK)
        st = exo_store_default(&store, err);
    if (st != EXO_OK)
        return st;
    bool here = !remote || name.node == remote->node(context) ||
                exo_process_start(name.handle.owner) == name.handle.owner_start;
    st = here ? exo_object_import(store, &name.handle, &object, &reason) : EXO_PEER_LOST;
    if (st == EXO_OK && exo_object_is_elsewhere(object))
        return get_elsewhere(remote, context, &name, &object, deadline, out, err);
    *out = object;
    if (st == EXO_OK || !remote || name.node == 0 || name.node == remote->node(context) ||
        st == EXO_NOT_FOUND)
        return st == EXO_OK
                   ? st
                   : exo_fail(err, st, "%s", reason.text[0] ? reason.text : "its process is gone");
    return fetch(remote, context, &name, deadline, out, err);
}
