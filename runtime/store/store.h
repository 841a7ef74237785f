/* The store: buffers in shared memory that are written once, sealed, and then read in place by
 * every process of this host and user that is sent their handle.
 *
 *     owner                                                reader, another process
 *     exo_object_create(store, size, &object, &err)
 *     memcpy(exo_object_data(object), x, size)
 *     exo_object_seal(object)
 *     exo_object_export(object, &handle)   --40 bytes-->   exo_object_import(store, &handle, ...)
 *     exo_object_drop(&object)                             exo_object_data(object)
 *                                                          exo_object_drop(&object)
 *
 * Objects of 4 KiB and less are copied by their readers, see segment.h.
 *
 * Memory is memfd only: it has no name, nothing is ever left in /dev/shm, and it goes when the last
 * process that maps it lets it go or is killed. docs/objects.md has the mechanism. Everything here
 * may be called from any thread; nothing waits for another process. Read next: store.c (who owns
 * what), segment.h (a piece of memory and what is believed of a foreign one). */
#ifndef EXO_STORE_STORE_H
#define EXO_STORE_STORE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <exogym/object.h>

typedef struct exo_store exo_store;

/* This process's store, which public functions use: opened with the defaults (or EXOGYM_STORE bytes
 * of capacity) when it is first needed. Errors: as exo_store_open. */
exo_status exo_store_default(exo_store **out, exo_err *err);

typedef struct exo_store_opts {
    /* Bytes that the objects of this process may take, kept memory too. 0: half of the machine's
     * memory, or of the control group's limit, whichever is less. */
    uint64_t capacity;
    /* Bytes of dropped objects' memory that wait for their next use: so many of this process's, and
     * so many of other processes' that stay mapped. 0: none. More than half of the capacity counts
     * as half. */
    uint64_t keep;
} exo_store_opts;

/* Where an object is, for another process of this host. Plain numbers of fixed layout, to be sent
 * as they are. Whoever gets one need not trust it. */
typedef struct exo_object_handle {
    uint64_t nonce; /* of the segment                              */
    /* start time of the owner, in the kernel's ticks since boot: tells a reused pid */
    uint64_t owner_start;
    uint64_t size;       /* bytes                                       */
    uint32_t owner;      /* process id                                  */
    uint32_t fd;         /* number of the segment's descriptor in there */
    uint32_t generation; /* which use of the slot                       */
    uint32_t slot;       /* which object of the segment                 */
} exo_object_handle;
static_assert(sizeof(exo_object_handle) == 40, "the handle crosses process boundaries");

/* Opens this process's store; a second one is EXISTS until the first is closed. opts may be NULL:
 * the default capacity, an eighth of which is kept. Raises the soft limit of open descriptors
 * (RLIMIT_NOFILE) to the hard one, because each live segment takes one. A forked child does not use
 * the store or the objects of its parent: it opens its own. Errors: EXISTS, NOMEM, IO (no /proc).
 * Blocks: no. */
exo_status exo_store_open(exo_store **out, const exo_store_opts *opts, exo_err *err);
/* Accepts NULL. Objects that are still held stay readable until they are dropped; nothing new is
 * created or imported. */
void exo_store_close(exo_store **store);

/* Room for `size` bytes (0 is fine), aligned to 256 bytes, from 64 KiB on to a page. The pages are
 * there when it returns: a write never fails. What they hold is not defined. *out has one
 * reference, the caller's; until it is sealed, only the caller's threads know it. Memory is taken
 * in classes: up to 64 KiB the next power of two, above it at most an eighth more than `size`.
 * Errors: FULL (the capacity, the machine's memory or the descriptors are used up; the text has the
 * figures), NOMEM, INVAL (no machine has that much), CLOSED. Blocks: while the kernel zeroes new
 * pages; not when kept memory fits. */
exo_status exo_object_create(exo_store *store, uint64_t size, exo_object **out, exo_err *err);

/* Can another process change its bytes? Of an object that was imported, its owner can; a small one
 * is a copy. */
bool exo_object_may_change(const exo_object *object);

/* Fills in the handle. It is good until the owner drops the object or dies; keep a reference until
 * the other side has said that it imported. An imported object exports as its owner would. Errors:
 * INVAL (not sealed). */
exo_status exo_object_export(const exo_object *object, exo_object_handle *out, exo_err *err);

/* Maps an object of another process of this user, without a copy; one of EXO_SEGMENT_COPIED bytes
 * and less becomes a copy in this process's memory, aligned to 64 bytes, which costs less.
 * Importing it again gives the same object, and in its owner the owner's. Does not count toward the
 * capacity. Keeps a descriptor for each segment that is mapped, and one for each owner, of at most
 * 16. `handle` may hold anything. When it is dropped it may stay mapped for the next import, see
 * `keep`. Errors: NOT_FOUND (dropped, or never was), PEER_LOST (the owner is gone; the text has its
 * pid), INVAL (no such object can be), UNSUPPORTED (another user's, or a process that may not be
 * looked into), FULL (descriptors, locks), NOMEM, CLOSED. */
exo_status exo_object_import(exo_store *store, const exo_object_handle *handle, exo_object **out,
                             exo_err *err);

/* Figures of one moment. Bytes are those of whole segments. */
typedef struct exo_store_stats {
    uint64_t objects;        /* of this process that are held                            */
    uint64_t bytes_used;     /* segments that hold one of them                           */
    uint64_t bytes_kept;     /* segments that wait for their next use                    */
    uint64_t capacity;       /* used and kept together never exceed it                   */
    uint64_t imports;        /* objects of other processes that are held                 */
    uint64_t bytes_imported; /* segments of other processes that are mapped              */
    uint64_t reuses;         /* objects created so far that took memory which was there  */
} exo_store_stats;

exo_store_stats exo_store_get_stats(exo_store *store);

typedef struct exo_object_info {
    exo_object_handle handle; /* as exo_object_export gives it, sealed or not */
    uint32_t references;      /* in this process */
    uint32_t borrowers; /* processes that import it, up to 256; of a small one nobody is counted */
    bool sealed, imported;
} exo_object_info;

/* Calls `visit` for each object that was held at one moment, in no order; without a lock, so that
 * it may use the store. Errors: NOMEM. */
exo_status exo_store_each(exo_store *store,
                          void (*visit)(void *context, const exo_object_info *info), void *context);

#endif
