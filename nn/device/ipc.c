/* Arrays that several processes share: see exogym/ipc.h.
 *
 * The name of an array is that of an object (store/store.h) which says how its memory is opened. Who
 * opens the array imports the object and holds it, so the kernel knows which processes read, and
 * forgets those that are killed. The owner frees the memory when nobody does:
 *
 *     owner                                         reader
 *     marks the object as closed                    imports the object
 *     looks for borrowers; none: frees              looks for the mark; none: opens the memory
 *
 * Each does the first before the second, so at least one of them notices the other.
 *
 * State: the list of the memory that this process made or opened, under its lock. Read next:
 * runtime/store/store.h, nn/cuda/share.cu. */
#include <exogym/ipc.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/boot.h"
#include "nn/device/device_impl.h"
#include "store/store.h"

static const char magic[8] = "EXOSHRD";

/* The content of the object. */
struct record {
    char magic[8];
    char device[16]; /* the name of its class */
    uint64_t count;
    uint32_t dtype;
    _Atomic uint32_t closed; /* nobody may begin to read */
    exo_device_share share;  /* memory and ordinal are meaningless to others */
};

enum {
    /* Larger than what readers copy instead of borrowing (store/segment.h). */
    RECORD_BYTES = 8192
};

static_assert(sizeof(struct record) <= RECORD_BYTES, "a record fits into its object");
static_assert(sizeof(exo_ipc_handle) == sizeof(exo_object_handle), "one handle");

/* Memory that this process made or opened. */
struct memory {
    struct memory *next;
    unsigned references; /* 0: only other processes read it */
    bool foreign;
    const exo_device_class *device_class;
    const exo_device *opener; /* if foreign: only this device reads it */
    exo_object *object;
    exo_device_share share;
    exo_dtype dtype;
    size_t count;
};

struct exo_ipc_array {
    exo_device *device;
    struct memory *memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *all; /* guarded */

/* --- Memory ----------------------------------------------------------------------------------- */

static struct record *
record_of(const struct memory *m)
{
    return exo_object_data(m->object);
}

static void
free_memory(struct memory *m)
{
    if (m->share.memory)
        m->device_class->share_free(&m->share, m->foreign);
    exo_object_drop(&m->object); /* behind it, as the object says that the memory is in use */
    exo_free(m);
}

/* Whether nobody uses the memory. */
static bool
is_idle_locked(const struct memory *m)
{
    return m->references == 0 && (m->foreign || exo_object_borrowers(m->object) == 0);
}

/* Frees what nobody uses any more. */
static void
sweep(void)
{
    struct memory *idle = NULL;
    pthread_mutex_lock(&lock);
    for (struct memory **at = &all; *at;) {
        struct memory *m = *at;
        if (!is_idle_locked(m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = idle;
        idle = m;
    }
    pthread_mutex_unlock(&lock);
    while (idle) {
        struct memory *m = idle;
        idle = m->next;
        free_memory(m);
    }
}

static void
add(struct memory *m)
{
    m->references = 1;
    pthread_mutex_lock(&lock);
    m->next = all;
    all = m;
    pthread_mutex_unlock(&lock);
}

size_t
exo_ipc_array_count(void)
{
    size_t count = 0;
    sweep();
    pthread_mutex_lock(&lock);
    for (const struct memory *m = all; m; m = m->next)
        count++;
    pthread_mutex_unlock(&lock);
    return count;
}

/* --- Making ----------------------------------------------------------------------------------- */

/* 64-bit FNV-1a. */
static uint64_t
add_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t
exo_ipc_place(const exo_device *device)
{
    char boot[EXO_BOOT_ID];
    if (!device->device_class->share_new)
        return 0;
    exo_boot_id(boot);
    uint64_t hash = add_text(UINT64_C(0xcbf29ce484222325) ^ getuid(), boot);
    hash = add_text(hash, device->device_class->name);
    return hash ? hash : 1;
}

static exo_status
unsupported(const exo_device *device, exo_err *err)
{
    return exo_fail(err, EXO_UNSUPPORTED,
                    "the device %s shares no memory with other processes; send the bytes",
                    exo_device_name(device));
}

static exo_status
make_memory(struct memory *m, exo_device *device, exo_err *err)
{
    const uint64_t bytes = m->count * exo_dtype_size(m->dtype);
    exo_status st = exo_object_new(&m->object, RECORD_BYTES, err);
    if (st == EXO_OK)
        st = device->device_class->share_new(device, bytes, &m->share, err);
    if (st != EXO_OK)
        return st;
    struct record *r = record_of(m);
    memset(r, 0, RECORD_BYTES);
    memcpy(r->magic, magic, sizeof magic);
    strncpy(r->device, exo_device_name(device), sizeof r->device - 1);
    r->count = m->count;
    r->dtype = (uint32_t)m->dtype;
    r->share = m->share;
    r->share.memory = NULL;
    exo_object_seal(m->object);
    return EXO_OK;
}

exo_status
exo_ipc_array_new(exo_ipc_array **out, exo_device *device, exo_dtype dtype, size_t count,
                  exo_err *err)
{
    size_t bytes = 0;
    *out = NULL;
    if (!device->device_class->share_new)
        return unsupported(device, err);
    if (__builtin_mul_overflow(count, exo_dtype_size(dtype), &bytes))
        return exo_fail(err, EXO_NOMEM, "no memory for %zu elements", count);
    sweep();
    exo_ipc_array *s = exo_calloc(1, sizeof *s);
    struct memory *m = exo_calloc(1, sizeof *m);
    exo_status st = EXO_NOMEM;
    if (s && m) {
        *s = (exo_ipc_array){.device = device, .memory = m};
        *m = (struct memory){.device_class = device->device_class, .dtype = dtype, .count = count};
        st = make_memory(m, device, err);
    } else {
        exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    }
    if (st != EXO_OK) {
        if (m)
            free_memory(m);
        exo_free(s);
        return st;
    }
    add(m);
    *out = s;
    return EXO_OK;
}

exo_array
exo_ipc_array_of(const exo_ipc_array *shared)
{
    return (exo_array){.device = shared->device,
                       .data = shared->memory->share.memory,
                       .count = shared->memory->count,
                       .dtype = shared->memory->dtype};
}

exo_status
exo_ipc_array_seal(exo_ipc_array *shared, exo_ipc_handle *out, exo_err *err)
{
    exo_object_handle handle;
    if (shared->memory->foreign)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "a shared array of another process is passed on by its maker");
    exo_status st = exo_device_synchronize(shared->device, err);
    if (st == EXO_OK)
        st = exo_object_export(shared->memory->object, &handle, err);
    if (st == EXO_OK)
        memcpy(out, &handle, sizeof handle);
    return st;
}

/* --- Opening ---------------------------------------------------------------------------------- */

/* The memory of an object that this process made or has opened on such a device, with one more
 * reference. */
static struct memory *
find(const exo_object *object, const exo_device *device)
{
    pthread_mutex_lock(&lock);
    struct memory *m = all;
    while (m && (m->object != object || m->references == 0 || (m->foreign && m->opener != device)))
        m = m->next;
    if (m && m->device_class == device->device_class)
        m->references++;
    else
        m = NULL;
    pthread_mutex_unlock(&lock);
    return m;
}

/* Checks what an object says, which its owner may be changing, and copies it. */
static exo_status
read_record(struct memory *m, const exo_device *device, exo_err *err)
{
    uint64_t bytes = 0;
    struct record r;
    if (exo_object_size(m->object) != RECORD_BYTES)
        return exo_fail(err, EXO_INVAL, "the object that is named is no shared array");
    memcpy(&r, exo_object_data(m->object), sizeof r);
    if (memcmp(r.magic, magic, sizeof magic) != 0 || r.dtype > EXO_I64 ||
        __builtin_mul_overflow(r.count, exo_dtype_size((exo_dtype)r.dtype), &bytes) ||
        bytes > r.share.bytes)
        return exo_fail(err, EXO_INVAL, "the object that is named is no shared array");
    r.device[sizeof r.device - 1] = 0;
    if (strcmp(r.device, exo_device_name(device)) != 0)
        return exo_fail(err, EXO_UNSUPPORTED, "the shared array is on the device %s, not on %s",
                        r.device, exo_device_name(device));
    if (atomic_load(&record_of(m)->closed))
        return exo_fail(err, EXO_NOT_FOUND, "the shared array was dropped by its maker");
    m->share = r.share;
    m->share.memory = NULL;
    m->dtype = (exo_dtype)r.dtype;
    m->count = r.count;
    return EXO_OK;
}

/* Opens the memory that an object names; the reference to the object moves to it. */
static exo_status
open_memory(struct memory **out, exo_device *device, exo_object **object, exo_err *err)
{
    struct memory *m = exo_calloc(1, sizeof *m);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    *m = (struct memory){
        .foreign = true, .device_class = device->device_class, .opener = device, .object = *object};
    *object = NULL;
    exo_status st = read_record(m, device, err);
    if (st == EXO_OK)
        st = device->device_class->share_open(device, &m->share, err);
    if (st != EXO_OK) {
        free_memory(m);
        return st;
    }
    add(m);
    *out = m;
    return EXO_OK;
}

static exo_status
find_or_open(struct memory **out, exo_device *device, const exo_ipc_handle *handle, exo_err *err)
{
    exo_store *store = NULL;
    exo_object *object = NULL;
    exo_object_handle name;
    memcpy(&name, handle, sizeof name);
    exo_status st = exo_store_default(&store, err);
    if (st == EXO_OK)
        st = exo_object_import(store, &name, &object, err);
    if (st != EXO_OK)
        return st;
    *out = find(object, device);
    if (!*out && !exo_object_is_imported(object))
        st = exo_fail(err, EXO_NOT_FOUND,
                      "this process holds no shared array of this name on a device %s",
                      exo_device_name(device));
    else if (!*out)
        st = open_memory(out, device, &object, err);
    exo_object_drop(&object);
    /* the object may still be mapped from before its maker ended */
    if (st == EXO_UNSUPPORTED && kill((pid_t)name.owner, 0) != 0 && errno == ESRCH)
        return exo_fail(err, EXO_PEER_LOST, "process %u, which made the shared array, has ended",
                        name.owner);
    return st;
}

exo_status
exo_ipc_array_open(exo_ipc_array **out, exo_device *device, const exo_ipc_handle *handle,
                   exo_err *err)
{
    *out = NULL;
    if (!device->device_class->share_new)
        return unsupported(device, err);
    exo_ipc_array *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for a shared array");
    s->device = device;
    exo_status st = find_or_open(&s->memory, device, handle, err);
    if (st == EXO_OK)
        *out = s;
    else
        exo_free(s);
    return st;
}

void
exo_ipc_array_drop(exo_ipc_array **shared)
{
    exo_ipc_array *s = *shared;
    *shared = NULL;
    if (!s)
        return;
    struct memory *m = s->memory;
    pthread_mutex_lock(&lock);
    if (--m->references == 0 && !m->foreign)
        atomic_store(&record_of(m)->closed, 1);
    pthread_mutex_unlock(&lock);
    exo_free(s);
    sweep();
}
