/* The store's inside, for store.c and import.c. Read next: store.c. */
#ifndef EXO_STORE_STORE_IMPL_H
#define EXO_STORE_STORE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/host.h"
#include "store/segment.h"
#include "store/store.h"

enum {
    EXO_STORE_SMALL_CLASSES = 9,
    /* Large objects: 8 classes from each power of two to the next, up to 64 TiB. */
    EXO_STORE_LARGEST_LOG = 46,
    EXO_STORE_CLASSES = EXO_STORE_SMALL_CLASSES + (EXO_STORE_LARGEST_LOG - 16) * 8,

    EXO_STORE_BUCKETS = 1024,
    EXO_STORE_FOLDERS = 16, /* owners whose folder in /proc stays open */
};

/* A ring of links. The head is a link that is in no segment. A link that points to itself is in no
 * ring. */
struct link {
    struct link *next, *previous;
};

struct segment {
    exo_segment memory;
    unsigned class;
    uint32_t num_live;      /* objects, including those that are being dropped */
    bool waits;             /* in kept or idle */
    struct segment *bucket; /* the next with the same hash, or the next victim */
    struct link open, wait;
    /* A queue, so that a borrowed slot is tried last. Own segments only. */
    uint16_t free[EXO_SEGMENT_MAX_SLOTS];
    uint32_t first_free, num_free;
    exo_object *objects[]; /* (num_slots) */
};

struct exo_object {
    exo_store *store;
    struct segment *segment; /* lives at least as long as the object */
    uint32_t slot, generation;
    uint64_t size;
    _Atomic uint32_t references;
    _Atomic bool sealed;
    /* Guarded by the store's lock until the seal. */
    uint8_t kind;
    bool elsewhere;
    uint32_t place;
    uint64_t bytes_elsewhere;
    exo_object_reader *read; /* NULL in other processes */
    /* The copy of another process's small object, in `room`. NULL: the object lies in the
     * segment. */
    void *copy;
    char room[]; /* unaligned space for such a copy */
};

struct exo_store {
    exo_process self;
    unsigned forks; /* exo_forks() of the process that opened it */
    uint64_t capacity, keep;
    /* segments of other processes: each takes a descriptor, and other code needs some, too */
    uint64_t most_mapped;

    pthread_mutex_t lock; /* guards all below */
    bool closed;
    /* Objects of either kind, and one for the open store. The last one to go frees the store. */
    uint64_t holders;
    /* Bytes of this process's segments, including those that are being made. */
    uint64_t reserved;
    uint64_t kept_bytes, num_objects, num_imports, imported_bytes, idle_bytes, num_reuses,
        num_mapped, bytes_elsewhere;
    struct folder {
        exo_process owner;
        int fd; /* of /proc/<id>; none where owner.id is 0 */
    } folders[EXO_STORE_FOLDERS];
    unsigned next_folder;
    struct link kept, idle;
    struct link open[EXO_STORE_CLASSES];
    struct segment *buckets[EXO_STORE_BUCKETS];
};

/* The segment of a handle, or NULL. Caller of this and of what follows: the holder of the lock. */
struct segment *exo_store_find(exo_store *store, const exo_object_handle *h);
void exo_store_insert(exo_store *store, struct segment *s);
/* Makes `object` one of the segment's, at its slot. */
void exo_store_gain_object(exo_store *store, struct segment *s, exo_object *object);
/* Called when the last object of a segment has gone. */
void exo_store_let_wait(exo_store *store, struct segment *s, struct segment **victims);
/* Expels idle segments, the least recently used first, until at most `bytes` are idle. */
void exo_store_trim_idle(exo_store *store, uint64_t bytes, struct segment **victims);
/* Expels idle segments that their owner has released, and all of `owner`'s if it is not NULL. */
void exo_store_expel_idle(exo_store *store, const exo_process *owner, struct segment **victims);

struct segment *exo_store_new_segment(uint32_t num_slots);
/* Frees a chain of segments that are in no list. Called without the lock: unmapping much memory
 * takes long. */
void exo_store_free_segments(struct segment *victims);
exo_object_handle exo_store_handle_of(const exo_object *object);

#endif
