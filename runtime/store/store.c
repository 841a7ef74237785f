/* The store of one process: its segments, their free slots, and the mapped segments of other
 * processes.
 *
 * A segment of this process has one large object, or up to 128 small ones of one class. Segments
 * with a free slot are in `open`, by class. Those without any object are also in `kept`, least
 * recently used first. Segments of other processes are in the same table. Those that this process
 * does not use any more stay mapped, in `idle`, because the next handle is likely to point into
 * one: memory that is mapped and was read costs neither a system call nor a page fault. They are
 * unmapped when their owner has released them.
 *
 * store->lock guards all of it. Memory is requested from the kernel and given back without the
 * lock: a segment that is being made counts as reserved but is in no list, and a segment that is
 * freed is first moved from all lists to a list of victims. References are atomic. An object whose
 * count is 0 may still be in the table; look-ups skip it.
 *
 * Read next: import.c, segment.h. */
#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/forks.h"
#include "base/memory_limits.h"
#include "store/store_impl.h"

enum {
    /* Small objects: slots of 256 bytes, 512, ... 64 KiB, in segments of at most SMALL_SEGMENT
     * bytes. */
    SMALLEST = 256,
    LARGEST_SMALL = SMALLEST << (EXO_STORE_SMALL_CLASSES - 1),
    SMALL_SEGMENT = 256 << 10,

    TRIES = 16, /* segments, and slots of each, that a creation tries, in case others borrow them */
};

/* The process whose store is open; 0: none. An id other than this process's is that of a parent
 * that forked. */
static _Atomic pid_t open_in;

/* --- Rings and tables ------------------------------------------------------------------------- */

#define SEGMENT_OF(link, member)                                                                   \
    ((struct segment *)(void *)((char *)(link)-offsetof(struct segment, member)))

static void
link_init(struct link *l)
{
    l->next = l->previous = l;
}

static void
link_before(struct link *at, struct link *l)
{
    l->next = at;
    l->previous = at->previous;
    at->previous->next = l;
    at->previous = l;
}

static void
unlink_from_ring(struct link *l)
{
    l->previous->next = l->next;
    l->next->previous = l->previous;
    link_init(l);
}

static struct segment **
bucket_of(exo_store *store, uint64_t nonce)
{
    return &store->buckets[nonce % EXO_STORE_BUCKETS];
}

struct segment *
exo_store_find(exo_store *store, const exo_object_handle *h)
{
    for (struct segment *s = *bucket_of(store, h->nonce); s; s = s->bucket)
        if (s->memory.nonce == h->nonce && s->memory.owner.id == (pid_t)h->owner &&
            s->memory.owner.start == h->owner_start && s->memory.fd == (int)h->fd)
            return s;
    return NULL;
}

void
exo_store_insert(exo_store *store, struct segment *s)
{
    struct segment **head = bucket_of(store, s->memory.nonce);
    s->bucket = *head;
    *head = s;
}

struct segment *
exo_store_new_segment(uint32_t num_slots)
{
    struct segment *s = exo_calloc(1, sizeof *s + num_slots * sizeof s->objects[0]);
    if (s) {
        link_init(&s->open);
        link_init(&s->wait);
    }
    return s;
}

void
exo_store_free_segments(struct segment *victims)
{
    while (victims) {
        struct segment *s = victims;
        victims = s->bucket;
        exo_segment_release(&s->memory);
        exo_free(s);
    }
}

/* Moves a segment without objects from every list to the front of *victims. */
static void
expel(exo_store *store, struct segment *s, struct segment **victims)
{
    struct segment **at = bucket_of(store, s->memory.nonce);
    while (*at != s)
        at = &(*at)->bucket;
    *at = s->bucket;
    unlink_from_ring(&s->open);
    unlink_from_ring(&s->wait);
    if (s->memory.foreign) {
        store->imported_bytes -= s->memory.size;
        store->num_mapped--;
        store->idle_bytes -= s->waits ? s->memory.size : 0;
    } else {
        store->reserved -= s->memory.size;
        store->kept_bytes -= s->waits ? s->memory.size : 0;
    }
    s->bucket = *victims;
    *victims = s;
}

/* Expels kept segments, the least recently used first, until at most `bytes` are kept. */
static void
trim_kept(exo_store *store, uint64_t bytes, struct segment **victims)
{
    while (store->kept_bytes > bytes)
        expel(store, SEGMENT_OF(store->kept.next, wait), victims);
}

void
exo_store_trim_idle(exo_store *store, uint64_t bytes, struct segment **victims)
{
    while (store->idle_bytes > bytes)
        expel(store, SEGMENT_OF(store->idle.next, wait), victims);
}

void
exo_store_expel_idle(exo_store *store, const exo_process *owner, struct segment **victims)
{
    struct link *next = NULL;
    for (struct link *l = store->idle.next; l != &store->idle; l = next) {
        struct segment *s = SEGMENT_OF(l, wait);
        next = l->next;
        bool theirs =
            owner && s->memory.owner.id == owner->id && s->memory.owner.start == owner->start;
        if (theirs || exo_segment_is_over(&s->memory))
            expel(store, s, victims);
    }
}

void
exo_store_let_wait(exo_store *store, struct segment *s, struct segment **victims)
{
    s->waits = true;
    if (s->memory.foreign) {
        link_before(&store->idle, &s->wait);
        store->idle_bytes += s->memory.size;
        exo_store_expel_idle(store, NULL, victims);
        exo_store_trim_idle(store, store->closed ? 0 : store->keep, victims);
    } else {
        link_before(&store->kept, &s->wait);
        store->kept_bytes += s->memory.size;
        trim_kept(store, store->closed ? 0 : store->keep, victims);
    }
}

void
exo_store_gain_object(exo_store *store, struct segment *s, exo_object *object)
{
    if (s->waits) {
        s->waits = false;
        unlink_from_ring(&s->wait);
        if (s->memory.foreign)
            store->idle_bytes -= s->memory.size;
        else
            store->kept_bytes -= s->memory.size;
    }
    s->num_live++;
    s->objects[object->slot] = object;
    object->store = store;
    object->segment = s;
    store->holders++;
    if (s->memory.foreign)
        store->num_imports++;
    else
        store->num_objects++;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static void
free_store(exo_store *store)
{
    pthread_mutex_destroy(&store->lock);
    exo_free(store);
}

/* Whether this is a forked child, and the store its parent's: they share the segments and the locks
 * on slots, so the child leaves both alone. */
static bool
is_inherited(const exo_store *store)
{
    return store->forks != exo_forks();
}

exo_status
exo_store_open(exo_store **out, const exo_store_opts *opts, exo_err *err)
{
    pid_t self = getpid(), other = atomic_load(&open_in);
    do {
        if (other == self)
            return exo_fail(err, EXO_EXISTS, "this process has a store that is open");
    } while (!atomic_compare_exchange_weak(&open_in, &other, self));

    exo_status st = EXO_OK;
    exo_store *store = exo_calloc(1, sizeof *store);
    if (!store) {
        st = exo_fail(err, EXO_NOMEM, "no memory for a store");
        goto done;
    }
    st = exo_process_self(&store->self, err);
    if (st != EXO_OK)
        goto done;
    store->capacity = opts ? opts->capacity : 0;
    if (store->capacity == 0)
        store->capacity = exo_memory_limit() / 2;
    if (store->capacity == 0) {
        st = exo_fail(
            err, EXO_IO,
            "this machine does not say how much memory it has; the store needs a capacity");
        goto done;
    }
    store->keep = opts ? opts->keep : store->capacity / 8;
    if (store->keep > store->capacity / 2)
        store->keep = store->capacity / 2;
    exo_raise_descriptor_limit();
    /* -1 (no limit) becomes a number that is never reached */
    store->most_mapped = (uint64_t)sysconf(_SC_OPEN_MAX) / 2;
    store->holders = 1;
    store->forks = exo_forks();
    link_init(&store->kept);
    link_init(&store->idle);
    for (unsigned i = 0; i < EXO_STORE_CLASSES; i++)
        link_init(&store->open[i]);
    pthread_mutex_init(&store->lock, NULL);

    *out = store;
    return EXO_OK;
done:
    exo_free(store);
    atomic_store(&open_in, 0);
    return st;
}

void
exo_store_close(exo_store **store)
{
    exo_store *s = *store;
    if (!s)
        return;
    *store = NULL;
    if (is_inherited(s))
        return;
    pid_t self = s->self.id;
    atomic_compare_exchange_strong(&open_in, &self, 0);

    struct segment *victims = NULL;
    pthread_mutex_lock(&s->lock);
    s->closed = true;
    trim_kept(s, 0, &victims);
    exo_store_trim_idle(s, 0, &victims);
    for (unsigned i = 0; i < EXO_STORE_FOLDERS; i++) {
        if (s->folders[i].owner.id != 0)
            close(s->folders[i].fd);
        s->folders[i].owner.id = 0;
    }
    bool last = --s->holders == 0;
    pthread_mutex_unlock(&s->lock);
    exo_store_free_segments(victims);
    if (last)
        free_store(s);
}

/* --- Creating --------------------------------------------------------------------------------- */

struct shape {
    unsigned class;
    uint64_t slot_size;
    uint32_t num_slots;
};

/* The class of objects of `size` bytes. False: too large for any class. */
static bool
shape_of(uint64_t size, struct shape *out)
{
    if (size <= LARGEST_SMALL) {
        unsigned class = 0;
        while ((uint64_t)SMALLEST << class < size)
            class ++;
        uint32_t slots = (uint32_t)SMALL_SEGMENT / ((uint32_t)SMALLEST << class);
        *out = (struct shape){.class = class, .slot_size = (uint64_t)SMALLEST << class};
        out->num_slots = slots < EXO_SEGMENT_MAX_SLOTS ? slots : EXO_SEGMENT_MAX_SLOTS;
        return true;
    }
    if (size > UINT64_C(1) << EXO_STORE_LARGEST_LOG)
        return false;
    unsigned log = 63 - (unsigned)__builtin_clzll(size - 1); /* 2^log < size <= 2^(log + 1) */
    uint64_t step = (UINT64_C(1) << log) / 8, steps = (size + step - 1) / step;
    *out = (struct shape){
        .class = EXO_STORE_SMALL_CLASSES + (log - 16) * 8 + (unsigned)(steps - 9),
        .slot_size = steps * step,
        .num_slots = 1,
    };
    return true;
}

/* Takes a free slot of `s` that no process borrows. False: there is none among those tried. */
static bool
take_slot_of(exo_store *store, struct segment *s, exo_object *object)
{
    uint32_t tries = s->num_free < TRIES ? s->num_free : TRIES;
    for (uint32_t i = 0; i < tries; i++) {
        uint32_t slot = s->free[s->first_free];
        s->first_free = (s->first_free + 1) % s->memory.num_slots;
        if (exo_slot_take(&s->memory, slot, object->size, &object->generation)) {
            if (--s->num_free == 0)
                unlink_from_ring(&s->open);
            object->slot = slot;
            exo_store_gain_object(store, s, object);
            return true;
        }
        s->free[(s->first_free + s->num_free - 1) % s->memory.num_slots] = (uint16_t)slot;
    }
    return false;
}

static void
free_slot(exo_store *store, struct segment *s, uint32_t slot)
{
    s->free[(s->first_free + s->num_free) % s->memory.num_slots] = (uint16_t)slot;
    /* at the front: its pages are in the caches */
    if (s->num_free++ == 0)
        link_before(store->open[s->class].next, &s->open);
}

static bool
reuse(exo_store *store, unsigned class, exo_object *object)
{
    struct link *head = &store->open[class], *next = NULL;
    unsigned tries = 0;
    for (struct link *l = head->next; l != head && tries < TRIES; l = next, tries++) {
        next = l->next;
        if (take_slot_of(store, SEGMENT_OF(l, open), object))
            return true;
    }
    return false;
}

/* Counts `size` bytes as reserved, and expels kept segments where needed. */
static exo_status
make_room(exo_store *store, uint64_t size, uint64_t wanted, struct segment **victims, exo_err *err)
{
    uint64_t used = store->reserved - store->kept_bytes;
    if (size > store->capacity || used > store->capacity - size)
        return exo_fail(err, EXO_FULL,
                        "the object store is full: capacity %" PRIu64 " bytes, used %" PRIu64
                        ", wanted %" PRIu64 " (%" PRIu64
                        " with their segment); drop objects, or give the store a larger capacity "
                        "by EXOGYM_STORE",
                        store->capacity, used, wanted, size);
    uint64_t room = store->capacity - size - used;
    if (store->kept_bytes > room)
        trim_kept(store, room, victims);
    store->reserved += size;
    return EXO_OK;
}

/* Makes a segment; called without the lock. If descriptors or memory are short, it first frees all
 * kept segments and tries again. */
static exo_status
make_segment(exo_store *store, const struct shape *shape, struct segment **out, exo_err *err)
{
    struct segment *s = exo_store_new_segment(shape->num_slots), *victims = NULL;
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for an object");
    s->class = shape->class;
    exo_status st =
        exo_segment_create(&s->memory, &store->self, shape->slot_size, shape->num_slots, err);
    if (st == EXO_FULL) {
        pthread_mutex_lock(&store->lock);
        trim_kept(store, 0, &victims);
        pthread_mutex_unlock(&store->lock);
        if (victims) {
            exo_store_free_segments(victims);
            st = exo_segment_create(&s->memory, &store->self, shape->slot_size, shape->num_slots,
                                    err);
        }
    }
    if (st != EXO_OK) {
        exo_free(s);
        return st;
    }
    for (uint32_t i = 0; i < shape->num_slots; i++)
        s->free[i] = (uint16_t)i;
    s->num_free = shape->num_slots;
    *out = s;
    return EXO_OK;
}

exo_status
exo_object_create(exo_store *store, uint64_t size, exo_object **out, exo_err *err)
{
    struct shape shape;
    struct segment *s = NULL, *victims = NULL;
    if (!shape_of(size, &shape))
        return exo_fail(err, EXO_INVAL,
                        "an object of %" PRIu64 " bytes is larger than any that a store holds",
                        size);
    uint64_t segment_size = exo_segment_size_of(shape.slot_size, shape.num_slots);
    exo_object *object = exo_calloc(1, sizeof *object);
    if (!object)
        return exo_fail(err, EXO_NOMEM, "no memory for an object");
    object->size = size;
    atomic_init(&object->references, 1);

    exo_status st = EXO_OK;
    pthread_mutex_lock(&store->lock);
    if (store->closed) {
        st = exo_fail(err, EXO_CLOSED, "the object store is closed");
    } else if (reuse(store, shape.class, object)) {
        store->num_reuses++;
    } else {
        st = make_room(store, segment_size, size, &victims, err);
        if (st == EXO_OK) {
            pthread_mutex_unlock(&store->lock);
            exo_store_free_segments(victims);
            victims = NULL;
            st = make_segment(store, &shape, &s, err);
            pthread_mutex_lock(&store->lock);
            if (st == EXO_OK) {
                exo_store_insert(store, s);
                link_before(store->open[s->class].next, &s->open);
                /* no process borrows a slot of a segment that none knows */
                take_slot_of(store, s, object);
            } else {
                store->reserved -= segment_size;
            }
        }
    }
    pthread_mutex_unlock(&store->lock);
    exo_store_free_segments(victims);
    if (st != EXO_OK) {
        exo_free(object);
        return st;
    }
    *out = object;
    return EXO_OK;
}

/* --- Objects ---------------------------------------------------------------------------------- */

void *
exo_object_data(const exo_object *object)
{
    if (object->copy)
        return object->copy;
    return exo_segment_slot(&object->segment->memory, object->slot);
}

uint64_t
exo_object_size(const exo_object *object)
{
    return object->size;
}

bool
exo_object_is_imported(const exo_object *object)
{
    return object->segment->memory.foreign;
}

bool
exo_object_may_change(const exo_object *object)
{
    return object->segment->memory.foreign && !object->copy;
}

void
exo_object_seal(exo_object *object)
{
    atomic_store_explicit(&object->sealed, true, memory_order_release);
}

static void
describe_locked(exo_object *object)
{
    exo_slot_describe(&object->segment->memory, object->slot,
                      exo_slot_word(object->size, object->kind, object->elsewhere));
}

void
exo_object_set_kind(exo_object *object, uint8_t kind)
{
    pthread_mutex_lock(&object->store->lock);
    object->kind = kind;
    describe_locked(object);
    pthread_mutex_unlock(&object->store->lock);
}

uint8_t
exo_object_kind(const exo_object *object)
{
    return object->kind;
}

void
exo_object_set_elsewhere(exo_object *object, uint64_t bytes, uint32_t place,
                         exo_object_reader *read)
{
    assert(object->size == EXO_OBJECT_RECORD && !object->elsewhere);
    pthread_mutex_lock(&object->store->lock);
    object->elsewhere = true;
    object->bytes_elsewhere = bytes;
    object->place = place;
    object->read = read;
    object->store->bytes_elsewhere += bytes;
    describe_locked(object);
    pthread_mutex_unlock(&object->store->lock);
}

bool
exo_object_is_elsewhere(const exo_object *object)
{
    return object->elsewhere;
}

uint64_t
exo_object_bytes(const exo_object *object)
{
    return object->elsewhere ? object->bytes_elsewhere : object->size;
}

exo_status
exo_object_read_elsewhere(const exo_object *object, uint64_t first, uint64_t size, void *to,
                          exo_err *err)
{
    if (!object->read || first > object->bytes_elsewhere || size > object->bytes_elsewhere - first)
        return exo_fail(err, EXO_INVAL,
                        "bytes of an object that is not of this process, or beyond its end");
    return object->read(object, first, size, to, err);
}

exo_object *
exo_object_hold(exo_object *object)
{
    atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    return object;
}

void
exo_object_drop(exo_object **object)
{
    exo_object *o = *object;
    if (!o)
        return;
    *object = NULL;
    if (atomic_fetch_sub_explicit(&o->references, 1, memory_order_acq_rel) != 1)
        return;

    exo_store *store = o->store;
    struct segment *s = o->segment, *victims = NULL;
    if (is_inherited(store)) {
        exo_free(o);
        return;
    }
    pthread_mutex_lock(&store->lock);
    /* another import may have replaced an object that is being dropped */
    bool last_of_slot = s->objects[o->slot] == o;
    if (last_of_slot)
        s->objects[o->slot] = NULL;
    if (s->memory.foreign) {
        if (last_of_slot && !o->copy)
            exo_slot_give_back(&s->memory, o->slot);
        store->num_imports--;
    } else {
        exo_slot_retire(&s->memory, o->slot);
        free_slot(store, s, o->slot);
        store->num_objects--;
        store->bytes_elsewhere -= o->bytes_elsewhere;
    }
    if (--s->num_live == 0)
        exo_store_let_wait(store, s, &victims);
    bool last = --store->holders == 0;
    pthread_mutex_unlock(&store->lock);

    exo_store_free_segments(victims);
    exo_free(o);
    if (last)
        free_store(store);
}

/* --- Figures ---------------------------------------------------------------------------------- */

exo_store_stats
exo_store_get_stats(exo_store *store)
{
    pthread_mutex_lock(&store->lock);
    exo_store_stats stats = {
        .objects = store->num_objects,
        .bytes_used = store->reserved - store->kept_bytes,
        .bytes_kept = store->kept_bytes,
        .capacity = store->capacity,
        .imports = store->num_imports,
        .bytes_imported = store->imported_bytes,
        .reuses = store->num_reuses,
        .bytes_elsewhere = store->bytes_elsewhere,
    };
    pthread_mutex_unlock(&store->lock);
    return stats;
}

exo_object_handle
exo_store_handle_of(const exo_object *object)
{
    const exo_segment *memory = &object->segment->memory;
    return (exo_object_handle){
        .nonce = memory->nonce,
        .owner_start = memory->owner.start,
        .size = exo_object_bytes(object),
        .owner = (uint32_t)memory->owner.id,
        .fd = (uint32_t)memory->fd,
        .generation = object->generation,
        .slot = (uint8_t)object->slot,
        .kind = object->kind,
        .elsewhere = object->elsewhere,
    };
}

uint32_t
exo_object_borrowers(const exo_object *object)
{
    return exo_slot_borrowers(&object->segment->memory, object->slot);
}

/* Copies the data of at most `room` objects. Gives the number of all objects. */
static size_t
look(exo_store *store, exo_object_info *infos, size_t room)
{
    size_t count = 0;
    for (unsigned b = 0; b < EXO_STORE_BUCKETS; b++) {
        for (struct segment *s = store->buckets[b]; s; s = s->bucket) {
            for (uint32_t i = 0; i < s->memory.num_slots; i++) {
                const exo_object *o = s->objects[i];
                uint32_t references =
                    o ? atomic_load_explicit(&o->references, memory_order_relaxed) : 0;
                if (references == 0)
                    continue;
                if (count < room)
                    infos[count] = (exo_object_info){
                        .handle = exo_store_handle_of(o),
                        .references = references,
                        .borrowers = exo_slot_borrowers(&s->memory, i),
                        .place = o->place,
                        .sealed = atomic_load_explicit(&o->sealed, memory_order_relaxed),
                        .imported = s->memory.foreign,
                    };
                count++;
            }
        }
    }
    return count;
}

exo_status
exo_store_each(exo_store *store, void (*visit)(void *context, const exo_object_info *info),
               void *context)
{
    exo_object_info *infos = NULL;
    size_t room = 0, count = 0;
    for (;;) {
        pthread_mutex_lock(&store->lock);
        count = look(store, infos, room);
        pthread_mutex_unlock(&store->lock);
        if (count <= room)
            break;
        exo_free(infos);
        room = count + 16; /* more objects may exist when the memory is there */
        infos = exo_calloc(room, sizeof *infos);
        if (!infos)
            return EXO_NOMEM;
    }
    for (size_t i = 0; i < count; i++)
        visit(context, &infos[i]);
    exo_free(infos);
    return EXO_OK;
}
