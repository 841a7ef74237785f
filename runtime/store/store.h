/* The store: buffers in shared memory. A buffer is written once and sealed. Then every process of
 * this host and user that has its handle reads it in place.
 *
 *     owner                                                reader, another process
 *     exo_object_create(store, size, &object, &err)
 *     memcpy(exo_object_data(object), x, size)
 *     exo_object_seal(object)
 *     exo_object_export(object, &handle)   --40 bytes-->   exo_object_import(store, &handle, ...)
 *     exo_object_drop(&object)                             exo_object_data(object)
 *                                                          exo_object_drop(&object)
 *
 * Readers copy objects of 4 KiB and less, see segment.h.
 *
 * All memory is memfd: it has no name, leaves nothing in /dev/shm, and is freed when the last
 * process that maps it releases it or is killed. docs/objects.md has the mechanism. Threads: any
 * thread may call any function; none waits for another process. Read next: store.c (the owner of
 * each part), import.c, segment.h (one segment, and the checks of another process's). */
#ifndef EXO_STORE_STORE_H
#define EXO_STORE_STORE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <exogym/object.h>

typedef struct exo_store exo_store;

/* This process's store, which the public functions use. The first call opens it with the defaults,
 * or with EXOGYM_STORE bytes of capacity. Errors: as exo_store_open. */
exo_status exo_store_default(exo_store **out, exo_err *err);

typedef struct exo_store_opts {
    /* Bytes that the objects of this process may take, including kept memory. 0: half of the
     * machine's memory or of the control group's limit, whichever is less. */
    uint64_t capacity;
    /* Bytes of dropped objects that are kept for reuse: this many of this process's memory, and
     * this many of other processes' memory, which stays mapped. 0: none. At most half of the
     * capacity. */
    uint64_t keep;
} exo_store_opts;

/* The location of an object, for another process of this host: plain numbers in a fixed layout,
 * sent as they are. A receiver need not trust a handle. */
typedef struct exo_object_handle {
    uint64_t nonce; /* the segment's random name */
    /* Start time of the owner in ticks since boot; distinguishes a reused process id. */
    uint64_t owner_start;
    uint64_t size;       /* bytes */
    uint32_t owner;      /* process id */
    uint32_t fd;         /* the owner's descriptor of the segment */
    uint32_t generation; /* which use of the slot */
    uint8_t slot;        /* which object of the segment */
    uint8_t kind;        /* exo_object_set_kind */
    uint8_t elsewhere;   /* 1: exo_object_set_elsewhere; then `size` is that of the bytes there */
    uint8_t zero;
} exo_object_handle;
static_assert(sizeof(exo_object_handle) == 40, "the handle crosses process boundaries");

/* The contents of an exo_object_id. */
typedef struct exo_object_name_words {
    uint64_t node; /* the process that made the object; 0: a runtime without a cluster */
    exo_object_handle handle;
} exo_object_name_words;
static_assert(sizeof(exo_object_name_words) == sizeof(exo_object_id), "a name is these words");

/* Opens this process's store. opts may be NULL: the default capacity, and an eighth of it as
 * `keep`. Raises the soft limit of open descriptors (RLIMIT_NOFILE) to the hard one, because each
 * live segment takes a descriptor. A forked child must not use its parent's store or objects; it
 * opens its own. Does not block. Errors: EXISTS (this process has an open store), NOMEM, IO (no
 * /proc, or the machine's memory is unknown). */
exo_status exo_store_open(exo_store **out, const exo_store_opts *opts, exo_err *err);
/* Accepts NULL. Objects that are still held stay readable until they are dropped. No new object can
 * be created or imported. */
void exo_store_close(exo_store **store);

/* Makes room for `size` bytes (0 is allowed), aligned to 256 bytes, and from 64 KiB on to a page.
 * All pages exist when it returns, so a write never fails. Their contents are undefined. *out has
 * one reference, the caller's. Before the seal, only the caller's threads know the object. Sizes
 * are rounded up: to a power of two up to 64 KiB, by at most an eighth above. Blocks while the
 * kernel zeroes new pages, but not if kept memory fits. Errors: FULL (the capacity, the machine's
 * memory or the descriptors are used up; the text has the figures), NOMEM, INVAL (larger than any
 * machine's memory), CLOSED. */
exo_status exo_object_create(exo_store *store, uint64_t size, exo_object **out, exo_err *err);

/* Whether another process can change the object's bytes. The owner of an imported object can; an
 * imported small object is a copy. */
bool exo_object_may_change(const exo_object *object);

/* The number of other processes that import the object now, at most 257, as exo_object_info has it.
 * While the owner holds the object, a process that imports it later is not counted: whoever relies on
 * the count marks the object before, and readers look for the mark after their import. */
uint32_t exo_object_borrowers(const exo_object *object);

/* Fills in the handle. A handle is valid until the owner drops the object or ends, so keep a
 * reference until the receiver has confirmed its import. An imported object gives the same handle
 * as its owner's. Errors: INVAL (not sealed). */
exo_status exo_object_export(const exo_object *object, exo_object_handle *out, exo_err *err);

/* --- Objects that are arrays, and bytes that are elsewhere ------------------------------------ */

/* What an object's bytes are, for the layer above that made it: a number from 1 to 127; 0 is an object of
 * bytes. It goes with the object's names. Before the seal, by its maker. */
void exo_object_set_kind(exo_object *object, uint8_t kind);
uint8_t exo_object_kind(const exo_object *object);

enum {
    /* The size of an object whose bytes are elsewhere: readers borrow it, and do not copy it. */
    EXO_OBJECT_RECORD = 2 * 4096
};

/* Copies the bytes [first, first + size), which are among the object's, to `to`. Any thread; may wait for
 * a device. NOT_FOUND: the bytes are being dropped. */
typedef exo_status exo_object_reader(const exo_object *object, uint64_t first, uint64_t size,
                                     void *to, exo_err *err);
/* Says that the object stands for `bytes` bytes elsewhere, such as on a device; place: its number, for
 * people. Its own EXO_OBJECT_RECORD bytes say where, for processes of the host that reach them. The object's process
 * reads them for all others (exo_object_get), by `read`. Before the seal, by its maker. */
void exo_object_set_elsewhere(exo_object *object, uint64_t bytes, uint32_t place,
                              exo_object_reader *read);
bool exo_object_is_elsewhere(const exo_object *object);
/* The number of bytes, wherever they are. */
uint64_t exo_object_bytes(const exo_object *object);
/* Reads bytes that are elsewhere, as exo_object_reader. INVAL: the object is not one of this process
 * whose bytes are elsewhere, or has no such bytes. */
exo_status exo_object_read_elsewhere(const exo_object *object, uint64_t first, uint64_t size,
                                     void *to, exo_err *err);

/* Maps an object of another process of this user, without a copy. An object of EXO_SEGMENT_COPIED
 * bytes and less becomes a copy in this process's memory, aligned to 64 bytes, because a copy costs
 * less. Importing an object that is still held gives the same object; importing one's own gives the
 * original. Imports do not count toward the capacity. Keeps a descriptor for each mapped segment,
 * and one for each owner, at most 16. `handle` may have any content. After the drop the segment may
 * stay mapped for the next import, see `keep`. Errors: NOT_FOUND (dropped, or never existed),
 * PEER_LOST (the owner has ended; the text has its pid), INVAL (no such object is possible),
 * UNSUPPORTED (another user's, or access to the process is refused), FULL (descriptors, locks),
 * NOMEM, CLOSED. */
exo_status exo_object_import(exo_store *store, const exo_object_handle *handle, exo_object **out,
                             exo_err *err);

/* Figures of one moment. Bytes are those of whole segments. */
typedef struct exo_store_stats {
    uint64_t objects;         /* of this process that are held */
    uint64_t bytes_used;      /* segments with such an object */
    uint64_t bytes_kept;      /* segments that are kept for reuse */
    uint64_t capacity;        /* used and kept bytes together never exceed it */
    uint64_t imports;         /* objects of other processes that are held */
    uint64_t bytes_imported;  /* mapped segments of other processes */
    uint64_t reuses;          /* objects created so far in memory that existed already */
    uint64_t bytes_elsewhere; /* of this process's objects that stand for bytes elsewhere */
} exo_store_stats;

exo_store_stats exo_store_get_stats(exo_store *store);

typedef struct exo_object_info {
    exo_object_handle handle; /* as exo_object_export gives it, sealed or not */
    uint32_t references;      /* in this process */
    /* Processes that import it, at most 257. Other processes' imports of a small object are copies
     * and do not count. */
    uint32_t borrowers;
    uint32_t place; /* of bytes that this process has elsewhere: exo_object_set_elsewhere */
    bool sealed, imported;
} exo_object_info;

/* Calls `visit` for each object that was held at one moment, in no order. Holds no lock during the
 * calls, so `visit` may use the store. Errors: NOMEM. */
exo_status exo_store_each(exo_store *store,
                          void (*visit)(void *context, const exo_object_info *info), void *context);

#endif
