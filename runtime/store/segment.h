/* A segment: a memfd that has one large object or many small ones. This file also defines what a
 * reader believes of another process's segment.
 *
 *     offset 0       header page: the segment's shape, and each slot's generation and size
 *     offset 4096    slot 0, slot 1, ...
 *
 * The owner maps a segment and then seals it (F_SEAL_FUTURE_WRITE). From then on no other process
 * can write to it, by a mapping or by write(), and no process can change its size. Other processes
 * can change only which slots they borrow, and the kernel keeps that record: a reader has a read
 * lock (F_OFD_SETLK) on one byte of the file, in the slot's range, at the reader's process id. Only
 * its holder can release a lock, and the lock ends with its holder.
 *
 * Small objects (slots of EXO_SEGMENT_COPIED bytes and less) are not borrowed but copied: a reader
 * checks that the generation is that of its handle, copies, and checks again. The copy costs less
 * than the two system calls of a lock, no reader can withhold a slot, and the owner cannot change
 * the copy.
 *
 * For a larger object, a reader takes the lock and then checks that the generation is that of its
 * handle. The owner ends the generation when the object is dropped, and checks for locks before the
 * next object takes the slot. So memory is never written while a process reads it, no handle
 * outlives its object, and a reader that is killed leaves nothing behind. A hostile process can
 * lock a slot that it does not read: the slot is then not reused during the life of that process.
 *
 * State: none here. A struct belongs to the code that made it; words that two processes share are
 * atomic; no function takes a mutex. Read next: segment.c, store.c. */
#ifndef EXO_STORE_SEGMENT_H
#define EXO_STORE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <exogym/status.h>

enum {
    /* The header's size and the data's offset. The machine's pages may be larger. */
    EXO_SEGMENT_PAGE = 4096,
    EXO_SEGMENT_MAX_SLOTS = 128,
    /* Bytes. Readers copy objects in slots of this size and less. */
    EXO_SEGMENT_COPIED = 4096,
};

/* A process, distinct from a later one with the same id. */
typedef struct exo_process {
    pid_t id;
    uint64_t start; /* ticks since boot */
} exo_process;

typedef struct exo_segment {
    exo_process owner;
    int fd;       /* the number of the owner's descriptor */
    int file;     /* this process's descriptor; the owner's is the same as fd */
    bool foreign; /* another process owns it */
    bool open;    /* every process that maps it may write to its data */
    uint32_t num_slots;
    uint64_t slot_size; /* bytes */
    uint64_t nonce;     /* random; the segment's name */
    size_t size;        /* bytes of the file: header and slots */
    struct exo_segment_header *header;
    char *base; /* start of the mapping, with the header's page */
    void *room; /* reserved addresses that let `base` be aligned; their bytes are below */
    size_t room_size;
} exo_segment;

/* The calling process. Errors: IO (/proc does not say). */
exo_status exo_process_self(exo_process *out, exo_err *err);
/* Opens /proc/<id>; the descriptor stays that process's, even if the id is reused. The caller
 * closes it. Errors: PEER_LOST (the process has ended), FULL (no descriptor), UNSUPPORTED (access
 * is refused). */
exo_status exo_process_open(const exo_process *process, int *out, exo_err *err);

/* The bytes of a segment of this shape. The caller keeps the product in range. */
size_t exo_segment_size_of(uint64_t slot_size, uint32_t num_slots);

/* Makes a segment of this process. All its pages exist, and only this process can write to it.
 * Large segments get huge pages where the kernel permits. Blocks while the kernel zeroes pages.
 * Errors: FULL (no descriptor, no memory), INVAL (larger than the kernel allows), UNSUPPORTED
 * (Linux before 5.1), IO. */
exo_status exo_segment_create(exo_segment *out, const exo_process *self, uint64_t slot_size,
                              uint32_t num_slots, exo_err *err);

/* Maps a segment of another process for reading and keeps a descriptor of it, if its name is
 * `nonce`. `folder`: the owner's, from exo_process_open; it remains the caller's. Errors: as
 * exo_object_import. */
exo_status exo_segment_map(exo_segment *out, const exo_process *owner, int folder, int fd,
                           uint64_t nonce, exo_err *err);

/* Open segments, for regions (region.h): as exo_segment_create with one slot and exo_segment_map,
 * but every process that maps the segment may write to the slot. Its contents prove nothing. */
exo_status exo_segment_create_open(exo_segment *out, const exo_process *self, uint64_t slot_size,
                                   exo_err *err);
exo_status exo_segment_map_open(exo_segment *out, const exo_process *owner, int folder, int fd,
                                uint64_t nonce, exo_err *err);
/* For the owner of an open segment: replaces all of its memory by a copy in a new file, at the same
 * addresses. What others still write goes to the old file. Nobody else in this process touches the
 * data meanwhile. False: there is no memory, and nothing has changed. */
bool exo_segment_renew(exo_segment *segment);

/* Whether the owner has released the segment, so that it will have no further object. */
bool exo_segment_is_over(const exo_segment *segment);

/* Unmaps and closes a segment. An owner's release is visible to readers (exo_segment_is_over); a
 * reader's gives back all slots that it has borrowed. A zeroed struct is allowed. */
void exo_segment_release(exo_segment *segment);

char *exo_segment_slot(const exo_segment *segment, uint32_t slot);

/* Whether readers copy its objects and borrow nothing. */
bool exo_segment_is_copied(const exo_segment *segment);
/* For the owner: takes the slot for a new object of `size` bytes. False: a process borrows the
 * slot, or its generations are used up. */
bool exo_slot_take(exo_segment *segment, uint32_t slot, uint64_t size, uint32_t *generation);
/* For the owner: ends the object's generation, so that its handles are stale. Borrowers keep the
 * slot. */
void exo_slot_retire(exo_segment *segment, uint32_t slot);
/* What readers check of an object besides its generation, in the header: its size in its slot, and
 * above that its kind (below 128) and whether it stands for bytes elsewhere (store.h). */
enum {
    EXO_SLOT_KIND = 56,
    EXO_SLOT_ELSEWHERE = 63
};
static inline uint64_t
exo_slot_word(uint64_t size, uint8_t kind, bool elsewhere)
{
    return size | (uint64_t)kind << EXO_SLOT_KIND | (uint64_t)elsewhere << EXO_SLOT_ELSEWHERE;
}
/* For the owner, before others know the object: its word is not its size alone. */
void exo_slot_describe(exo_segment *segment, uint32_t slot, uint64_t word);
/* For a reader: checks that the slot has this object. Errors: NOT_FOUND (another generation), INVAL
 * (the object has another size or kind). */
exo_status exo_slot_check(const exo_segment *segment, uint32_t slot, uint32_t generation,
                          uint64_t word);
/* For a reader: checks, and copies the object into `out` (its size). Errors: as exo_slot_check. */
exo_status exo_slot_copy(const exo_segment *segment, uint32_t slot, uint32_t generation,
                         uint64_t word, void *out);
/* For a reader that has not borrowed the slot: borrows it, and checks. Errors: as exo_slot_check;
 * FULL (the kernel refuses the lock). To borrow twice is the same as once: the caller counts its
 * users. */
exo_status exo_slot_borrow(const exo_segment *segment, uint32_t slot, uint32_t generation,
                           uint64_t word);
void exo_slot_give_back(const exo_segment *segment, uint32_t slot);
/* The number of processes that borrow the slot, at most 257. Includes this one if it is a reader,
 * also where objects are copied. */
uint32_t exo_slot_borrowers(const exo_segment *segment, uint32_t slot);

#endif
