/* Handles of objects, and the objects of other processes. Read next: segment.h. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "store/store_impl.h"

enum {
    COPY_ALIGNMENT = 64 /* bytes; of a small object's copy in another process */
};

exo_status
exo_object_export(const exo_object *object, exo_object_handle *out, exo_err *err)
{
    if (!atomic_load_explicit(&object->sealed, memory_order_acquire))
        return exo_fail(err, EXO_INVAL, "an object has to be sealed before it is exported");
    *out = exo_store_handle_of(object);
    return EXO_OK;
}

/* Whether any object could have this handle. */
static bool
is_possible(const exo_object_handle *h)
{
    return h->owner > 0 && h->owner <= INT32_MAX && h->owner_start > 0 && h->fd <= INT32_MAX &&
           h->generation > 0 && h->slot < EXO_SEGMENT_MAX_SLOTS && h->elsewhere <= 1 &&
           h->kind < 128 && h->zero == 0 && h->size <= UINT64_C(1) << EXO_STORE_LARGEST_LOG;
}

/* The size of the object in its slot. */
static uint64_t
size_here(const exo_object_handle *h)
{
    return h->elsewhere ? EXO_OBJECT_RECORD : h->size;
}

static uint64_t
word_of(const exo_object_handle *h)
{
    return exo_slot_word(size_here(h), h->kind, h->elsewhere);
}

static exo_status
impossible(const exo_object_handle *h, exo_err *err)
{
    return exo_fail(err, EXO_INVAL,
                    "not the handle of an object: owner %" PRIu32 ", descriptor %" PRIu32
                    ", slot %u, %" PRIu64 " bytes",
                    h->owner, h->fd, h->slot, h->size);
}

/* Holds an object of the table. False: its last reference has gone. */
static bool
hold_if_alive(exo_object *object)
{
    uint32_t seen = atomic_load_explicit(&object->references, memory_order_relaxed);
    while (seen != 0)
        if (atomic_compare_exchange_weak_explicit(&object->references, &seen, seen + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

/* Finds the object of `s` with this handle, if this process holds it. Errors: NOT_FOUND, INVAL. */
static exo_status
share(struct segment *s, const exo_object_handle *h, exo_object **out)
{
    if (h->slot >= s->memory.num_slots)
        return EXO_INVAL;
    exo_object *object = s->objects[h->slot];
    if (!object || object->generation != h->generation)
        return EXO_NOT_FOUND;
    if (exo_object_bytes(object) != h->size || object->kind != h->kind ||
        object->elsewhere != (h->elsewhere == 1))
        return EXO_INVAL;
    if (!atomic_load_explicit(&object->sealed, memory_order_acquire) || !hold_if_alive(object))
        return EXO_NOT_FOUND;
    *out = object;
    return EXO_OK;
}

/* Makes *fresh the object of a handle. An older object of the slot that is still held as a copy
 * leaves the table. */
static void
become(exo_store *store, struct segment *s, const exo_object_handle *h, exo_object **fresh,
       exo_object **out)
{
    exo_object *object = *fresh;
    object->slot = h->slot;
    object->generation = h->generation;
    object->size = size_here(h);
    object->kind = h->kind;
    object->elsewhere = h->elsewhere == 1;
    object->bytes_elsewhere = object->elsewhere ? h->size : 0;
    exo_store_gain_object(store, s, object);
    *fresh = NULL;
    *out = object;
}

static exo_status
copy_from(exo_store *store, struct segment *s, const exo_object_handle *h, exo_object **fresh,
          exo_object **out)
{
    uintptr_t room = (uintptr_t)(*fresh)->room;
    void *copy = (*fresh)->room + (COPY_ALIGNMENT - room % COPY_ALIGNMENT) % COPY_ALIGNMENT;
    if (size_here(h) > EXO_SEGMENT_COPIED) /* there is no room for it, and no such object */
        return EXO_INVAL;
    exo_status st = exo_slot_copy(&s->memory, h->slot, h->generation, word_of(h), copy);
    if (st != EXO_OK)
        return st;
    (*fresh)->copy = copy;
    become(store, s, h, fresh, out);
    return EXO_OK;
}

/* Gets the object from a segment that is in the table. A new import uses *fresh. */
static exo_status
import_from(exo_store *store, struct segment *s, const exo_object_handle *h, exo_object **fresh,
            exo_object **out)
{
    exo_status st = share(s, h, out);
    if (st != EXO_NOT_FOUND || !s->memory.foreign)
        return st;
    if (exo_segment_is_copied(&s->memory))
        return copy_from(store, s, h, fresh, out);
    /* A process has one lock on a slot. An object that is being dropped leaves its lock to the new
     * one, see exo_object_drop. */
    if (s->objects[h->slot])
        st = exo_slot_check(&s->memory, h->slot, h->generation, word_of(h));
    else
        st = exo_slot_borrow(&s->memory, h->slot, h->generation, word_of(h));
    if (st != EXO_OK)
        return st;
    become(store, s, h, fresh, out);
    return EXO_OK;
}

/* Takes an owner's open folder, if there is one. It is the caller's until give_folder_back. */
static bool
take_folder(exo_store *store, const exo_process *owner, int *out)
{
    bool found = false;
    pthread_mutex_lock(&store->lock);
    for (unsigned i = 0; i < EXO_STORE_FOLDERS && !found; i++) {
        struct folder *f = &store->folders[i];
        found = f->owner.id == owner->id && f->owner.start == owner->start;
        if (found) {
            *out = f->fd;
            f->owner.id = 0;
        }
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

static void
give_folder_back(exo_store *store, const exo_process *owner, int fd)
{
    struct folder folder = {.owner = *owner, .fd = fd};
    pthread_mutex_lock(&store->lock);
    if (!store->closed) {
        struct folder *place = NULL;
        for (unsigned i = 0; i < EXO_STORE_FOLDERS && !place; i++)
            if (store->folders[i].owner.id == 0)
                place = &store->folders[i];
        if (!place)
            place = &store->folders[store->next_folder++ % EXO_STORE_FOLDERS];
        struct folder other = *place;
        *place = folder;
        folder = other;
    }
    pthread_mutex_unlock(&store->lock);
    if (folder.owner.id != 0)
        close(folder.fd);
}

/* Unmaps all idle segments, which closes their descriptors. False: there were none. */
static bool
free_idle(exo_store *store)
{
    struct segment *victims = NULL;
    pthread_mutex_lock(&store->lock);
    exo_store_trim_idle(store, 0, &victims);
    pthread_mutex_unlock(&store->lock);
    bool any = victims != NULL;
    exo_store_free_segments(victims);
    return any;
}

/* Fails with FULL if as many segments of other processes are mapped as most_mapped allows, and none
 * is idle. */
static exo_status
need_descriptor(exo_store *store, exo_err *err)
{
    pthread_mutex_lock(&store->lock);
    bool room = store->num_mapped < store->most_mapped;
    pthread_mutex_unlock(&store->lock);
    if (room || free_idle(store))
        return EXO_OK;
    return exo_fail(
        err, EXO_FULL,
        "%" PRIu64 " segments of other processes are mapped, half as many as this process may have "
        "descriptors; drop imported objects, or raise the hard limit (ulimit -Hn)",
        store->most_mapped);
}

/* Maps a segment of another process; called without the lock. */
static exo_status
map_segment(exo_store *store, const exo_process *owner, const exo_object_handle *h,
            struct segment **out, exo_err *err)
{
    exo_segment memory;
    int folder = -1;
    exo_status st = need_descriptor(store, err);
    if (st == EXO_OK && !take_folder(store, owner, &folder))
        st = exo_process_open(owner, &folder, err);
    if (st != EXO_OK)
        return st;
    st = exo_segment_map(&memory, owner, folder, (int)h->fd, h->nonce, err);
    if (st == EXO_FULL && free_idle(store))
        st = exo_segment_map(&memory, owner, folder, (int)h->fd, h->nonce, err);
    if (st == EXO_PEER_LOST)
        close(folder);
    else
        give_folder_back(store, owner, folder);
    if (st != EXO_OK)
        return st;

    struct segment *s = exo_store_new_segment(memory.num_slots);
    if (!s) {
        exo_segment_release(&memory);
        return exo_fail(err, EXO_NOMEM, "no memory to import an object");
    }
    s->memory = memory;
    *out = s;
    return EXO_OK;
}

exo_status
exo_object_import(exo_store *store, const exo_object_handle *handle, exo_object **out, exo_err *err)
{
    const exo_object_handle h = *handle; /* a copy: *handle may lie in memory that others write */
    if (!is_possible(&h))
        return impossible(&h, err);
    exo_status st = EXO_OK;
    const exo_process owner = {.id = (pid_t)h.owner, .start = h.owner_start};
    bool own = owner.id == store->self.id && owner.start == store->self.start;
    struct segment *mapped = NULL, *victims = NULL;
    exo_object *fresh = exo_calloc(1, sizeof *fresh + (size_here(&h) <= EXO_SEGMENT_COPIED
                                                           ? (size_t)h.size + COPY_ALIGNMENT
                                                           : 0));
    if (!fresh)
        return exo_fail(err, EXO_NOMEM, "no memory to import an object");
    atomic_init(&fresh->references, 1);
    atomic_init(&fresh->sealed, true);

    pthread_mutex_lock(&store->lock);
    struct segment *s = exo_store_find(store, &h);
    if (!s && !own && !store->closed) {
        pthread_mutex_unlock(&store->lock);
        st = map_segment(store, &owner, &h, &mapped, err);
        pthread_mutex_lock(&store->lock);
        exo_store_expel_idle(store, st == EXO_PEER_LOST ? &owner : NULL, &victims);
        if (st != EXO_OK) {
            pthread_mutex_unlock(&store->lock);
            goto done;
        }
        s = exo_store_find(store, &h); /* another thread may have mapped it meanwhile */
        if (!s && !store->closed) {
            s = mapped;
            mapped = NULL;
            exo_store_insert(store, s);
            store->imported_bytes += s->memory.size;
            store->num_mapped++;
        }
    }
    if (store->closed)
        st = exo_fail(err, EXO_CLOSED, "the object store is closed");
    else
        st = s ? import_from(store, s, &h, &fresh, out) : EXO_NOT_FOUND;
    if (s && s->memory.foreign && s->num_live == 0 && !s->waits)
        exo_store_let_wait(store, s, &victims); /* mapped, but no object was imported */
    pthread_mutex_unlock(&store->lock);

    if (st == EXO_NOT_FOUND)
        exo_fail(err, st, "process %" PRIu32 " has dropped the object", h.owner);
    else if (st == EXO_INVAL)
        impossible(&h, err);
    else if (st == EXO_FULL)
        exo_fail(err, st,
                 "the object of process %" PRIu32
                 " cannot be borrowed: another process holds its lock, or the kernel has no "
                 "room for one more",
                 h.owner);
done:
    exo_store_free_segments(victims);
    exo_store_free_segments(mapped);
    exo_free(fresh);
    return st;
}
