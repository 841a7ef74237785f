/* Memory of a device that several threads and processes hold: see joint.h.
 *
 * The name of an array is that of an object (store/store.h) which says how its memory is opened. Who
 * opens the array imports the object and holds it, so the kernel knows which processes read, and
 * forgets those that are killed. The owner frees the memory when nobody does:
 *
 *     owner                                         reader
 *     marks the object as closed                    imports the object
 *     looks for borrowers; none: frees              looks for the mark; none: opens the memory
 *
 * Each does the first before the second, so at least one of them notices the other. There is a fence
 * between the two, as the kernel may look for borrowers without a lock of its own; the reader's is
 * in exo_slot_borrow.
 *
 * State: the list of the memory that this process made or opened, under its lock. Read next:
 * runtime/store/store.h, nn/cuda/share.cu. */
#include "nn/device/joint.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"
#include "store/segment.h"
#include "store/store.h"

static const char magic[8] = "EXOSHRD";

/* The content of the object, whose kind is that of the elements. */
struct record {
    char magic[8];
    char device[16]; /* the name of its class */
    uint64_t count;
    uint32_t dtype;
    _Atomic uint32_t closed; /* nobody may begin to read */
    uint64_t place;          /* exo_ipc_place */
    exo_device_share share;  /* memory and ordinal are meaningless to others */
};

static_assert(sizeof(struct record) <= EXO_OBJECT_RECORD, "a record fits into its object");
static_assert(sizeof(exo_ipc_handle) == sizeof(exo_object_handle), "one handle");

/* Work of a reader behind which the memory may be freed. */
struct use {
    struct use *next;
    void *mark;
};

struct exo_joint {
    exo_joint *next;
    unsigned references; /* 0: only other processes, or devices, read it */
    bool foreign;
    const exo_device_class *device_class;
    const exo_device *opener; /* if foreign: only this device reads it */
    exo_object *object;       /* its name; NULL while it is made */
    exo_device_share share;
    exo_dtype dtype;
    size_t count;
    void *ready; /* a mark behind which the array is complete; NULL: it is. Guarded */
    struct use *uses;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static exo_joint *all; /* guarded, with the references, uses and `ready` of each */

/* Copies for other processes, one at a time. The reader stays open while there is any memory. */
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;
static exo_joint_reader copies; /* guarded by copies_lock; never taken together with `lock` */

/* --- Life ------------------------------------------------------------------------------------- */

static struct record *
record_of(const exo_joint *s)
{
    return exo_object_data(s->object);
}

static void
add(exo_joint *s, unsigned references)
{
    s->references = references;
    pthread_mutex_lock(&lock);
    s->next = all;
    all = s;
    pthread_mutex_unlock(&lock);
}

/* Nobody uses it. What cannot be freed yet stays in the list, for a later sweep. */
static void
free_shared(exo_joint *s)
{
    for (struct use *u = s->uses, *next; u; u = next) {
        next = u->next;
        s->device_class->share_unmark(u->mark);
        exo_free(u);
    }
    if (s->ready)
        s->device_class->share_unmark(s->ready);
    s->uses = NULL;
    s->ready = NULL;
    if (s->share.memory && !s->device_class->share_free(&s->share, s->foreign)) {
        add(s, 0);
        return;
    }
    exo_object_drop(&s->object); /* behind it, as the object says that the memory is in use */
    exo_free(s);
}

/* Forgets the uses that are over: an array that is sent again and again has new ones all the time. */
static void
forget_uses_locked(exo_joint *s)
{
    for (struct use **at = &s->uses; *at;) {
        struct use *u = *at;
        if (!s->device_class->share_reached(u->mark)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        s->device_class->share_unmark(u->mark);
        exo_free(u);
    }
}

/* Whether nobody uses the memory. */
static bool
is_idle_locked(exo_joint *s)
{
    forget_uses_locked(s);
    return s->references == 0 && !s->uses &&
           (s->foreign || !s->object || exo_object_borrowers(s->object) == 0);
}

void
exo_joint_sweep(void)
{
    exo_joint *idle = NULL;
    pthread_mutex_lock(&lock);
    for (exo_joint **at = &all; *at;) {
        exo_joint *s = *at;
        if (!is_idle_locked(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->next = idle;
        idle = s;
    }
    bool none = !all && idle;
    pthread_mutex_unlock(&lock);
    while (idle) {
        exo_joint *s = idle;
        idle = s->next;
        free_shared(s);
    }
    if (!none)
        return;
    pthread_mutex_lock(&copies_lock);
    exo_joint_reader_release(&copies);
    pthread_mutex_unlock(&copies_lock);
}

exo_joint *
exo_joint_hold(exo_joint *shared)
{
    pthread_mutex_lock(&lock);
    shared->references++;
    pthread_mutex_unlock(&lock);
    return shared;
}

/* Whether it was the last reference of this process. */
static bool
drop(exo_joint *s)
{
    pthread_mutex_lock(&lock);
    const bool last = --s->references == 0;
    if (last && !s->foreign && s->object) {
        atomic_store(&record_of(s)->closed, 1);
        atomic_thread_fence(memory_order_seq_cst);
    }
    pthread_mutex_unlock(&lock);
    return last;
}

void
exo_joint_drop(exo_joint **shared)
{
    exo_joint *s = *shared;
    *shared = NULL;
    if (s)
        (void)drop(s);
}

size_t
exo_joint_count(void)
{
    size_t count = 0;
    exo_joint_sweep();
    pthread_mutex_lock(&lock);
    for (const exo_joint *s = all; s; s = s->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}

/* --- Making ----------------------------------------------------------------------------------- */

/* The mark may be set by one thread and read by another that learned the name from outside of the
 * process. */
static void *
ready_of(const exo_joint *shared)
{
    pthread_mutex_lock(&lock);
    void *ready = shared->ready;
    pthread_mutex_unlock(&lock);
    return ready;
}

/* The memory of an object of this process, held; NULL: it has been dropped. */
static exo_joint *
hold_own(const exo_object *object)
{
    pthread_mutex_lock(&lock);
    exo_joint *s = all;
    while (s && (s->object != object || s->foreign || s->references == 0))
        s = s->next;
    if (s)
        s->references++;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Reads a part of an array for a process that cannot open it. */
static exo_status
read_part(const exo_object *object, uint64_t first, uint64_t size, void *to, exo_err *err)
{
    exo_joint *s = hold_own(object);
    if (!s)
        return exo_fail(err, EXO_NOT_FOUND, "the array was dropped by its maker");
    exo_device_share part = s->share;
    part.memory = (char *)part.memory + first;
    void *ready = ready_of(s);
    exo_status st = EXO_OK;
    if (size > 0) {
        pthread_mutex_lock(&copies_lock);
        if (copies.device_class != s->device_class)
            exo_joint_reader_release(&copies);
        copies.device_class = s->device_class;
        st = s->device_class->share_read(&copies.inside, &part, ready, to, size, err);
        pthread_mutex_unlock(&copies_lock);
    }
    if (drop(s)) /* its maker has dropped it meanwhile */
        exo_joint_sweep();
    return st;
}

/* Says in an object how other processes open the memory. */
static exo_status
write_record(exo_joint *s, const exo_device *device, exo_err *err)
{
    exo_status st = exo_object_new(&s->object, EXO_OBJECT_RECORD, err);
    if (st != EXO_OK)
        return st;
    struct record *r = record_of(s);
    memset(r, 0, EXO_OBJECT_RECORD);
    memcpy(r->magic, magic, sizeof magic);
    strncpy(r->device, exo_device_name(device), sizeof r->device - 1);
    r->count = s->count;
    r->dtype = (uint32_t)s->dtype;
    r->place = exo_ipc_place(device);
    r->share = s->share;
    r->share.memory = NULL;
    exo_object_set_kind(s->object, EXO_JOINT_KIND(s->dtype));
    exo_object_set_elsewhere(s->object, exo_joint_bytes(s), (uint32_t)s->share.ordinal, read_part);
    exo_object_seal(s->object);
    return EXO_OK;
}

exo_status
exo_joint_new(exo_joint **out, exo_device *device, exo_dtype dtype, size_t count, exo_err *err)
{
    const exo_device_class *c = device->device_class;
    size_t bytes = 0;
    *out = NULL;
    if (!c->share_new)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the device %s has no memory that other threads and processes hold",
                        exo_device_name(device));
    if (__builtin_mul_overflow(count, exo_dtype_size(dtype), &bytes))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu elements", count);
    exo_joint_sweep();
    exo_joint *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    *s = (exo_joint){.device_class = c, .dtype = dtype, .count = count};
    exo_status st = c->share_new(device, bytes, &s->share, err);
    if (st == EXO_OK)
        st = write_record(s, device, err);
    if (st != EXO_OK) {
        free_shared(s);
        return st;
    }
    add(s, 1);
    *out = s;
    return EXO_OK;
}

exo_array
exo_joint_array(const exo_joint *shared, exo_device *device)
{
    return (exo_array){.device = device,
                       .data = shared->share.memory,
                       .count = shared->count,
                       .dtype = shared->dtype};
}

bool
exo_joint_is_on(const exo_joint *shared, const exo_device *device)
{
    return device->device_class == shared->device_class &&
           device->device_class->share_is_on(device, &shared->share);
}

bool
exo_joint_suits(const exo_joint *shared, const exo_device *device)
{
    return device->device_class == shared->device_class;
}

bool
exo_joint_is_foreign(const exo_joint *shared)
{
    return shared->foreign;
}

size_t
exo_joint_bytes(const exo_joint *shared)
{
    return shared->count * exo_dtype_size(shared->dtype);
}

uint64_t
exo_joint_unit(const exo_joint *shared)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof shared->share.unit; i++)
        hash = (hash ^ shared->share.unit[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* --- The order of work ------------------------------------------------------------------------ */

exo_status
exo_joint_mark(exo_joint *shared, exo_device *device, exo_err *err)
{
    void *mark = ready_of(shared);
    exo_status st = shared->device_class->share_mark(device, &mark, err);
    pthread_mutex_lock(&lock);
    shared->ready = mark;
    pthread_mutex_unlock(&lock);
    if (device->failed.code == EXO_OK)
        return st;
    /* what was asked for has failed, so the array may have any contents */
    if (err)
        *err = device->failed;
    return device->failed.code;
}

exo_status
exo_joint_follow(const exo_joint *shared, exo_device *device, exo_err *err)
{
    void *ready = ready_of(shared);
    return ready ? shared->device_class->share_follow(device, ready, err) : EXO_OK;
}

exo_status
exo_joint_wait(const exo_joint *shared, exo_err *err)
{
    void *ready = ready_of(shared);
    return ready ? shared->device_class->share_wait(ready, err) : EXO_OK;
}

void
exo_joint_use(exo_joint *shared, exo_device *device)
{
    struct use *use = exo_calloc(1, sizeof *use);
    if (use && exo_joint_suits(shared, device) &&
        shared->device_class->share_mark(device, &use->mark, NULL) == EXO_OK) {
        pthread_mutex_lock(&lock);
        use->next = shared->uses;
        shared->uses = use;
        pthread_mutex_unlock(&lock);
        return;
    }
    if (use && use->mark)
        shared->device_class->share_unmark(use->mark);
    exo_free(use);
    exo_device_synchronize(device, NULL); /* the device remembers a failure */
}

exo_status
exo_joint_read(exo_joint_reader *reader, const exo_joint *shared, void *to, exo_err *err)
{
    if (shared->count == 0)
        return EXO_OK;
    if (reader->device_class != shared->device_class)
        exo_joint_reader_release(reader);
    reader->device_class = shared->device_class;
    return shared->device_class->share_read(&reader->inside, &shared->share, ready_of(shared), to,
                                            exo_joint_bytes(shared), err);
}

void
exo_joint_reader_release(exo_joint_reader *reader)
{
    if (reader->inside)
        reader->device_class->share_reader_free(reader->inside);
    *reader = (exo_joint_reader){0};
}

/* --- Names ------------------------------------------------------------------------------------ */

bool
exo_joint_name(const exo_joint *shared, exo_ipc_handle *out)
{
    exo_object_handle handle;
    if (shared->foreign || !shared->share.named ||
        exo_object_export(shared->object, &handle, NULL) != EXO_OK)
        return false;
    memcpy(out, &handle, sizeof handle);
    return true;
}

const exo_object *
exo_joint_object(const exo_joint *shared)
{
    return shared->object;
}

/* The memory of an object that this process made or has opened on such a device, with one more
 * reference. */
static exo_joint *
find(const exo_object *object, const exo_device *device)
{
    pthread_mutex_lock(&lock);
    exo_joint *s = all;
    while (s && (s->object != object || s->references == 0 || (s->foreign && s->opener != device)))
        s = s->next;
    if (s && s->device_class == device->device_class)
        s->references++;
    else
        s = NULL;
    pthread_mutex_unlock(&lock);
    return s;
}

/* Checks what an object says, which its owner may be changing, and copies it. */
static exo_status
read_record(const exo_object *object, struct record *r, exo_err *err)
{
    uint64_t bytes = 0;
    if (!exo_object_is_elsewhere(object))
        return exo_fail(err, EXO_INVAL, "the object that is named is no shared array");
    memcpy(r, exo_object_data(object), sizeof *r);
    if (memcmp(r->magic, magic, sizeof magic) != 0 || r->dtype > EXO_I64 ||
        __builtin_mul_overflow(r->count, exo_dtype_size((exo_dtype)r->dtype), &bytes) ||
        bytes > r->share.bytes || bytes != exo_object_bytes(object) ||
        exo_object_kind(object) != EXO_JOINT_KIND(r->dtype))
        return exo_fail(err, EXO_INVAL, "the object that is named is no shared array");
    r->device[sizeof r->device - 1] = 0;
    return EXO_OK;
}

exo_status
exo_joint_import(exo_object **out, const exo_ipc_handle *handle, exo_err *err)
{
    exo_store *store = NULL;
    exo_object_handle name;
    struct record r;
    memcpy(&name, handle, sizeof name);
    *out = NULL;
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &name, out, err);
    if (st != EXO_OK)
        return st;
    st = read_record(*out, &r, err);
    if (st == EXO_OK && exo_object_is_imported(*out) &&
        atomic_load(&((struct record *)exo_object_data(*out))->closed))
        st = exo_fail(err, EXO_NOT_FOUND, "the shared array was dropped by its maker");
    if (st != EXO_OK)
        exo_object_drop(out);
    return st;
}

static exo_status
describe(exo_joint *s, const exo_device *device, exo_err *err)
{
    struct record r;
    exo_status st = read_record(s->object, &r, err);
    if (st != EXO_OK)
        return st;
    if (strcmp(r.device, exo_device_name(device)) != 0)
        return exo_fail(err, EXO_UNSUPPORTED, "the shared array is on the device %s, not on %s",
                        r.device, exo_device_name(device));
    if (r.place != exo_ipc_place(device) || !r.share.named)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "the shared array is on a device whose memory this process cannot open");
    s->share = r.share;
    s->share.memory = NULL;
    s->dtype = (exo_dtype)r.dtype;
    s->count = r.count;
    return EXO_OK;
}

/* Opens the memory that an object names; the reference to the object moves to it. */
static exo_status
open_shared(exo_joint **out, exo_device *device, exo_object **object, exo_err *err)
{
    exo_joint *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    *s = (exo_joint){
        .foreign = true, .device_class = device->device_class, .opener = device, .object = *object};
    *object = NULL;
    exo_status st = describe(s, device, err);
    if (st == EXO_OK)
        st = device->device_class->share_open(device, &s->share, err);
    if (st != EXO_OK) {
        free_shared(s);
        return st;
    }
    add(s, 1);
    *out = s;
    return EXO_OK;
}

/* Whether the process that made an object has ended. Its number may be another one's by now. */
static bool
has_ended(const exo_object_handle *handle)
{
    const exo_process maker = {.id = (pid_t)handle->owner, .start = handle->owner_start};
    int folder = -1;
    exo_status st = exo_process_open(&maker, &folder, NULL);
    if (st == EXO_OK)
        close(folder);
    return st == EXO_PEER_LOST;
}

exo_status
exo_joint_open(exo_joint **out, exo_device *device, exo_object **name, exo_err *err)
{
    exo_object_handle handle;
    exo_object *object = *name;
    *name = NULL;
    *out = NULL;
    exo_status st = exo_object_export(object, &handle, err);
    if (st != EXO_OK) {
        exo_object_drop(&object);
        return st;
    }
    if (!device->device_class->share_new)
        st = exo_fail(err, EXO_UNSUPPORTED,
                      "the device %s shares no memory with other processes; send the bytes",
                      exo_device_name(device));
    else if (!(*out = find(object, device)) && !exo_object_is_imported(object))
        st = exo_fail(err, EXO_NOT_FOUND,
                      "this process holds no shared array of this name on a device %s",
                      exo_device_name(device));
    else if (!*out)
        st = open_shared(out, device, &object, err);
    exo_object_drop(&object);
    /* the object may still be mapped from before its maker ended */
    if (st == EXO_UNSUPPORTED && has_ended(&handle))
        return exo_fail(err, EXO_PEER_LOST, "process %u, which made the shared array, has ended",
                        handle.owner);
    return st;
}
