/* Objects that go with calls between processes: payloads in memory that the processes of a host
 * share, and the process's own methods about its objects and actors. Nothing is kept here: the
 * lender of an object holds it (remote_calls.c, remote_serve.c). Objects by name: objects.c. */
#include <string.h>
#include <sys/prctl.h>

#include <exogym/memory.h>

#include "actor/delivery.h"
#include "base/grow_text.h"
#include "cluster/remote_impl.h"

/* --- Payloads in shared memory ---------------------------------------------------------------- */

/* Whether others can import objects of this process. They open an object through /proc/PID/fd,
 * which the kernel forbids to other users, and to all if the process is not dumpable. Payloads are
 * then sent as bytes. */
static bool
may_be_looked_into(void)
{
    return prctl(PR_GET_DUMPABLE) == 1;
}

exo_status
exo_remote_place_payload(exo_peer *peer, exo_envelope *e, const exo_payload *payload,
                         exo_object_handle *handle, exo_object **lent, exo_err *err)
{
    exo_object *object = exo_object_of_payload(payload);
    *lent = NULL;
    if (!exo_peer_may_share(peer) || (!object && payload->size < EXO_DELIVERY_LARGE) ||
        !may_be_looked_into())
        return EXO_OK;
    /* An imported object belongs to another process, and may be gone before the other side imports
     * it. So its bytes are copied into an object of this process. */
    if (object && !exo_object_is_imported(object))
        exo_object_hold(object);
    else if (exo_object_put(&object, payload->data, payload->size, NULL) != EXO_OK)
        return EXO_OK;
    exo_status st = exo_object_export(object, handle, err);
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    e->payload =
        (exo_wire_payload){.place = EXO_WIRE_OBJECT, .data = handle, .size = sizeof *handle};
    *lent = object;
    return EXO_OK;
}

exo_status
exo_remote_fetch_payload(const exo_envelope *e, exo_payload *out, exo_err *err)
{
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_object_handle handle;
    if (e->payload.size != sizeof handle)
        return exo_fail(err, EXO_INVAL, "an object's handle of %zu bytes", e->payload.size);
    memcpy(&handle, e->payload.data, sizeof handle);
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &handle, &object, err);
    if (st == EXO_OK)
        *out = exo_object_payload(object);
    exo_object_drop(&object);
    return st;
}

/* --- Methods of the process itself ------------------------------------------------------------ */

/* A piece of an object of this process, for another host. It is a part of the object's memory, not
 * a copy. */
static void
release_piece(void *owner)
{
    exo_object *object = owner;
    exo_object_drop(&object);
}

static exo_status
find_object(const exo_payload *args, exo_remote_fetch *fetch, exo_object **out, exo_err *err)
{
    exo_store *store = NULL;
    if (args->size != sizeof *fetch)
        return exo_fail(err, EXO_INVAL, "a piece of an object: the arguments cannot be read");
    memcpy(fetch, args->data, sizeof *fetch);
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &fetch->handle, out, err);
    if (st == EXO_OK && (exo_object_is_imported(*out) || fetch->first > exo_object_bytes(*out))) {
        exo_object_drop(out);
        return exo_fail(err, EXO_INVAL,
                        "a piece of an object that is not of this process, or beyond its end");
    }
    return st;
}

static exo_status
read_piece(const exo_payload *args, exo_payload *out, exo_err *err)
{
    exo_remote_fetch fetch;
    exo_object *object = NULL;
    exo_status st = find_object(args, &fetch, &object, err);
    if (st == EXO_OK && exo_object_is_elsewhere(object)) {
        exo_object_drop(&object);
        return exo_fail(err, EXO_INVAL, "a piece of an object that is not read here");
    }
    if (st != EXO_OK)
        return st;
    uint64_t left = exo_object_size(object) - fetch.first;
    *out = (exo_payload){.data = (char *)exo_object_data(object) + fetch.first,
                         .size = left < fetch.size ? left : fetch.size,
                         .release = release_piece,
                         .owner = object};
    return EXO_OK;
}

/* A piece of an object whose bytes are elsewhere. */
static exo_status
read_elsewhere(exo_call_context *call, void *self, const exo_payload *args, exo_payload *out,
               exo_err *err)
{
    exo_remote_fetch fetch;
    exo_object *object = NULL, *piece = NULL;
    (void)call, (void)self;
    exo_status st = find_object(args, &fetch, &object, err);
    if (st != EXO_OK)
        return st;
    uint64_t left = exo_object_bytes(object) - fetch.first;
    uint64_t size = left < fetch.size ? left : fetch.size;
    if (size > EXO_REMOTE_PIECE)
        st = exo_fail(err, EXO_INVAL, "a piece of an object of more than %d bytes",
                      EXO_REMOTE_PIECE);
    if (st == EXO_OK)
        st = exo_object_new(&piece, size, err);
    if (st == EXO_OK)
        st = exo_object_read_elsewhere(object, fetch.first, size, exo_object_data(piece), err);
    if (st == EXO_OK) {
        exo_object_seal(piece);
        *out = exo_object_payload(piece);
    }
    exo_object_drop(&piece);
    exo_object_drop(&object);
    return st;
}

/* The actor that reads bytes which are elsewhere: its thread waits for a device, and that of the net does
 * not. Each process has at most one, made at the first such call. */
static const exo_lane_class reader_lanes[] = {{.name = "read", .blocking = true}};
static const exo_method reader_methods[] = {{.name = "read", .run = read_elsewhere}};
static const exo_actor_class reader_class = {.name = "exogym.object_reader",
                                             .state_size = 1,
                                             .lanes = reader_lanes,
                                             .num_lanes = 1,
                                             .methods = reader_methods,
                                             .num_methods = 1};

static exo_status
find_reader(exo_remote *r, exo_ref *out, exo_err *err)
{
    const exo_spawn_opts opts = {
        .name = "object_reader", .namespace_name = EXO_SYSTEM_SPACE, .get_if_exists = true};
    if (exo_runtime_find_name(r->runtime, EXO_SYSTEM_SPACE, opts.name, out, NULL) == EXO_OK)
        return EXO_OK;
    return exo_spawn(r->runtime, &reader_class, &opts, out, err);
}

static bool
is_slow(const char *method, const exo_payload *args)
{
    exo_remote_fetch fetch;
    if (strcmp(method, EXO_REMOTE_FETCH) != 0 || args->size != sizeof fetch)
        return false;
    memcpy(&fetch, args->data, sizeof fetch);
    return fetch.handle.elsewhere != 0;
}

static exo_status
run_slow(exo_remote *r, const exo_payload *args, exo_future *future, exo_err *err)
{
    exo_ref reader;
    exo_payload copy = {0};
    exo_status st = find_reader(r, &reader, err);
    if (st == EXO_OK)
        st = exo_payload_copy(&copy, args->data, args->size);
    return st == EXO_OK ? exo_runtime_deliver(r->runtime, reader, "read", &copy, NULL, future, err)
                        : st;
}

/* The objects of this process. */
struct gathering {
    exo_remote_object *objects;
    size_t count, cap;
};

static void
gather_object(void *context, const exo_object_info *info)
{
    struct gathering *g = context;
    if (g->count == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        exo_remote_object *larger = exo_realloc(g->objects, cap, sizeof *larger);
        if (!larger)
            return;
        g->objects = larger;
        g->cap = cap;
    }
    g->objects[g->count++] = (exo_remote_object){.size = info->handle.size,
                                                 .nonce = info->handle.nonce,
                                                 .slot = info->handle.slot,
                                                 .references = info->references,
                                                 .borrowers = info->borrowers,
                                                 .sealed = info->sealed,
                                                 .imported = info->imported,
                                                 .elsewhere = info->handle.elsewhere,
                                                 .place = info->place};
}

static exo_status
list_objects(exo_payload *out, exo_err *err)
{
    struct gathering g = {0};
    exo_store *store = NULL;
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK && exo_store_each(store, gather_object, &g) != EXO_OK)
        st = exo_fail(err, EXO_NOMEM, "no memory to list objects");
    if (st == EXO_OK)
        *out = (exo_payload){
            .data = g.objects, .size = g.count * sizeof *g.objects, .release = exo_free};
    else
        exo_free(g.objects);
    return st;
}

static exo_status
list_deaths(exo_remote *r, const exo_payload *args, exo_payload *out, exo_err *err)
{
    exo_text text = {0};
    if (args->size > ASKED_AT_ONCE * sizeof(uint64_t))
        return exo_fail(err, EXO_INVAL, "deaths: %d actors at most can be asked for at once",
                        ASKED_AT_ONCE);
    for (size_t at = 0; at + sizeof(uint64_t) <= args->size; at += sizeof(uint64_t)) {
        exo_ref actor;
        char cause[CAUSE] = "";
        memcpy(&actor.id, (const uint8_t *)args->data + at, sizeof actor.id);
        if (exo_runtime_lives(r->runtime, actor))
            continue;
        if (!(actor.id & EXO_REMOTE)) /* otherwise it is no actor of this process */
            exo_cause(r->runtime, actor, cause, sizeof cause);
        exo_text_add_bytes(&text, (const char *)&actor.id, sizeof actor.id);
        exo_text_add_bytes(&text, cause, strlen(cause) + 1);
    }
    if (text.failed) {
        exo_free(text.data);
        return exo_fail(err, EXO_NOMEM, "no memory to list actors");
    }
    *out = (exo_payload){.data = text.data, .size = text.size, .release = exo_free};
    return EXO_OK;
}

static exo_status
run_own(exo_remote *r, const char *method, const exo_payload *args, exo_payload *value,
        exo_err *err)
{
    if (strcmp(method, EXO_REMOTE_FETCH) == 0)
        return read_piece(args, value, err);
    if (strcmp(method, EXO_REMOTE_OBJECTS) == 0)
        return list_objects(value, err);
    if (strcmp(method, EXO_REMOTE_DEATHS) == 0)
        return list_deaths(r, args, value, err);
    return exo_fail(err, EXO_NOT_FOUND, "there is no method '%s'", method);
}

exo_status
exo_remote_answer_own(exo_remote *r, const char *method, const exo_payload *args,
                      exo_future *future, exo_err *err)
{
    exo_payload value = {0};
    if (is_slow(method, args))
        return run_slow(r, args, future, err);
    exo_status st = run_own(r, method, args, &value, err);
    if (st == EXO_OK)
        exo_future_complete(future, EXO_OK, NULL, &value);
    return st;
}
