/* A segment: a memfd that holds one large object or many small ones, and what is believed of a
 * foreign one.
 *
 *     offset 0       header page: what the segment is, and a generation and a size a slot
 *     offset 4096    slot 0, slot 1, ...
 *
 * Its owner maps it and then seals it (F_SEAL_FUTURE_WRITE): nobody else can ever write there,
 * neither by a mapping nor by write(), and nobody can change its size. All that others can change
 * is who borrows which slot, and the kernel keeps that: a reader has a read lock (F_OFD_SETLK) on a
 * byte of the file, in a range of the slot's, at its process id. A lock is its holder's alone, and
 * goes with it.
 *
 * Small objects (slots of EXO_SEGMENT_COPIED bytes and less) are not borrowed but copied: a reader
 * looks whether the generation is that of its handle, copies, and looks again. The copy costs less
 * than the two system calls of a lock, nobody can withhold a slot, and the owner cannot change what
 * was copied.
 *
 * Of a larger one, a reader locks and then looks whether the generation is that of its handle; the
 * owner first ends the generation, when the object is dropped, and before the next object looks
 * whether there is a lock. So memory is never written again while somebody reads it, no handle
 * outlives its object, and a reader that is killed leaves nothing behind. A process that means harm
 * can lock what it does not read: the slot is then not used again while it lives.
 *
 * The functions hold no state and take no mutex; a struct belongs to whoever made it, what two
 * processes see is atomic.
 * */
#ifndef EXO_STORE_SEGMENT_H
#define EXO_STORE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <exogym/status.h>

enum {
    /* the header's size and the data's offset; the machine's pages may be larger */
    EXO_SEGMENT_PAGE = 4096,
    EXO_SEGMENT_MAX_SLOTS = 128,
    /* bytes: objects in slots of so many and less are copied by their readers */
    EXO_SEGMENT_COPIED = 4096,
};

/* A process that cannot be mistaken for a later one with the same id. */
typedef struct exo_process {
    pid_t id;
    uint64_t start; /* ticks since boot */
} exo_process;

typedef struct exo_segment {
    exo_process owner;
    int fd;       /* the owner's number for it                         */
    int file;     /* this process's descriptor: the owner's is fd      */
    bool foreign; /* another process owns it                           */
    uint32_t num_slots;
    uint64_t slot_size; /* bytes                                             */
    uint64_t nonce;     /* a random name                                     */
    size_t size;        /* bytes of the file: header and slots               */
    struct exo_segment_header *header;
    char *base; /* where the file is mapped; the header's page too */
    void *room; /* the addresses that were reserved to have base aligned, in bytes below */
    size_t room_size;
} exo_segment;

/* The process that calls. IO if /proc does not say. */
exo_status exo_process_self(exo_process *out, exo_err *err);
/* Opens /proc/<id>, which stays that of this one process, whoever gets its id later. PEER_LOST if
 * it is gone; FULL, UNSUPPORTED. */
exo_status exo_process_open(const exo_process *process, int *out, exo_err *err);

/* The bytes that a segment of this shape takes. The product is the caller's to keep in range. */
size_t exo_segment_size_of(uint64_t slot_size, uint32_t num_slots);

/* Makes a segment of this process whose pages are all there, and that only it can write. Large ones
 * are put on huge pages where the kernel lets them. Errors: FULL (no descriptor, no memory), NOMEM
 * (address space), UNSUPPORTED (Linux before 5.1), IO. */
exo_status exo_segment_create(exo_segment *out, const exo_process *self, uint64_t slot_size,
                              uint32_t num_slots, exo_err *err);

/* Maps the segment of another process to be read, and keeps a descriptor of it, if `nonce` is its
 * name; `folder` is what exo_process_open gave for the owner and stays the caller's. Errors as
 * exo_object_import. */
exo_status exo_segment_map(exo_segment *out, const exo_process *owner, int folder, int fd,
                           uint64_t nonce, exo_err *err);

/* Has the owner let go of the segment, so that no further object will lie there? */
bool exo_segment_is_over(const exo_segment *segment);

/* Unmaps and closes, and tells readers if it is the owner's; a reader gives back what it has
 * borrowed. A struct of zeros is fine. */
void exo_segment_release(exo_segment *segment);

char *exo_segment_slot(const exo_segment *segment, uint32_t slot);

/* Do readers of its objects copy them, and borrow nothing? */
bool exo_segment_is_copied(const exo_segment *segment);
/* For the owner: takes the slot for a new object of `size` bytes. False if it is borrowed or its
 * generations are used up. */
bool exo_slot_take(exo_segment *segment, uint32_t slot, uint64_t size, uint32_t *generation);
/* For the owner: ends the object's generation, so that its handles are stale. Borrowers stay. */
void exo_slot_retire(exo_segment *segment, uint32_t slot);
/* For a reader. OK if the slot has this object; NOT_FOUND if it is at another generation, INVAL if
 * the object has another size. */
exo_status exo_slot_check(const exo_segment *segment, uint32_t slot, uint32_t generation,
                          uint64_t size);
/* For a reader: the same, and copies the object into `out` (size). */
exo_status exo_slot_copy(const exo_segment *segment, uint32_t slot, uint32_t generation,
                         uint64_t size, void *out);
/* For a reader that has not borrowed the slot: the same, and borrows it. FULL if the kernel refuses
 * the lock. Twice is once: it is the caller that knows how many use it. */
exo_status exo_slot_borrow(const exo_segment *segment, uint32_t slot, uint32_t generation,
                           uint64_t size);
void exo_slot_give_back(const exo_segment *segment, uint32_t slot);
/* How many processes borrow it, 257 at most. */
uint32_t exo_slot_borrowers(const exo_segment *segment, uint32_t slot);

#endif
