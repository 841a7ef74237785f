/* A segment: a memfd that holds one large object or many small ones, and what is believed of a foreign one.
 *
 *     offset 0       header page: what the segment is, and a 64-bit word and a size a slot
 *     offset 4096    slot 0, slot 1, ...
 *
 * A slot's word is {generation: 32, borrowers: 32}. A reader adds itself to the borrowers only if the generation is that of its
 * handle, in one compare-and-swap; the owner takes a slot for a new object by (generation, 0) -> (generation + 1, 0). So memory is
 * never written again while somebody reads it, and no handle outlives its object. A reader that is killed leaves its count behind:
 * that slot is not used again.
 *
 * The owner has one mapping, readable and writable. A reader has two: the header page, to count itself, and the whole segment
 * read-only. Both sides of the header are the same user's, who could trace the other process as well; still the owner takes nothing
 * from it but whether a slot is free, and a reader nothing that fstat does not bear out.
 *
 * The functions hold no state and take no lock; a struct belongs to whoever made it, the words are atomic.
 */
#ifndef EXO_STORE_SEGMENT_H
#define EXO_STORE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <exogym/status.h>

enum {
    EXO_SEGMENT_PAGE = 4096, /* the header's size and the data's offset; the machine's pages may be larger */
    EXO_SEGMENT_MAX_SLOTS = 128,
};

/* A process that cannot be mistaken for a later one with the same id. */
typedef struct exo_process {
    pid_t id;
    uint64_t start; /* ticks since boot */
} exo_process;

typedef struct exo_segment {
    exo_process owner;
    int fd;       /* the owner's number for it; open in the owner only */
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
/* Opens /proc/<id>, which stays that of this one process, whoever gets its id later. PEER_LOST if it is gone; FULL, UNSUPPORTED. */
exo_status exo_process_open(const exo_process *process, int *out, exo_err *err);

/* The bytes that a segment of this shape takes. The product is the caller's to keep in range. */
size_t exo_segment_size_of(uint64_t slot_size, uint32_t num_slots);

/* Makes a segment of this process whose pages are all there and whose size is sealed. Large ones are put on huge pages where the
 * kernel lets them. Errors: FULL (no descriptor, no memory), NOMEM (address space), IO. */
exo_status exo_segment_create(exo_segment *out, const exo_process *self, uint64_t slot_size, uint32_t num_slots,
                              exo_err *err);

/* Maps the segment of another process, if `nonce` is its name; `folder` is what exo_process_open gave for the owner and stays the
 * caller's. Errors as exo_object_import. */
exo_status exo_segment_map(exo_segment *out, const exo_process *owner, int folder, int fd, uint64_t nonce,
                           exo_err *err);

/* Has the owner let go of the segment, so that no further object will lie there? */
bool exo_segment_is_over(const exo_segment *segment);

/* Unmaps and closes, and tells readers if it is the owner's; a struct of zeros is fine. */
void exo_segment_release(exo_segment *segment);

char *exo_segment_slot(const exo_segment *segment, uint32_t slot);

/* For the owner: takes the slot for a new object of `size` bytes. False if it is borrowed or its generations are used up. */
bool exo_slot_take(exo_segment *segment, uint32_t slot, uint64_t size, uint32_t *generation);
/* For the owner: ends the object's generation, so that its handles are stale. Borrowers stay. */
void exo_slot_retire(exo_segment *segment, uint32_t slot);
/* For a reader. NOT_FOUND if the slot is at another generation, INVAL if the object has another size, FULL if nobody can be
 * added. */
exo_status exo_slot_borrow(exo_segment *segment, uint32_t slot, uint32_t generation, uint64_t size);
void exo_slot_give_back(exo_segment *segment, uint32_t slot);
uint32_t exo_slot_borrowers(const exo_segment *segment, uint32_t slot);

#endif
