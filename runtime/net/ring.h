/* A queue of messages in memory that two processes of a host share: one writes, the other one
 * reads. It spares both a way through ZeroMQ's threads and the kernel.
 *
 * Rings come in pairs, one for each direction, in one file whose descriptor one of the two hands to
 * the other (door.h). Neither believes what the other one can write, at any moment: a ring that
 * makes no sense is broken, for good. The reader can go to sleep; a writer that finds it asleep is
 * told to wake it.
 *
 * Threads: each end belongs to one thread at a time. What is common to both ends is read and
 * written without a lock. */
#ifndef EXO_NET_RING_H
#define EXO_NET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_RING_BYTES = 1 << 18,
    EXO_RING_MESSAGE = EXO_RING_BYTES / 2, /* longest message                      */
    /* bytes of the file: of each, its counters and messages */
    EXO_RING_PAIR = 2 * (4096 + EXO_RING_BYTES)
};

typedef struct exo_ring exo_ring;

/* Makes a pair: this process reads `in` and writes `out`. The file is the caller's to hand over and
 * to close. Errors: NOMEM, IO (no shared memory). */
exo_status exo_ring_pair_new(exo_ring **in, exo_ring **out, int *file, exo_err *err);
/* Opens the pair that another process made; the file stays the caller's. Errors: INVAL (it is no
 * such file, or one whose size may change), NOMEM. */
exo_status exo_ring_pair_open(exo_ring **in, exo_ring **out, int file, exo_err *err);

/* --- The reader's end ------------------------------------------------------------------------- */

/* The length of the next message; 0: there is none, or the ring is broken. */
size_t exo_ring_next(exo_ring *ring);
/* The first `size` bytes of the next message, which has as many; it stays. */
void exo_ring_peek(const exo_ring *ring, void *out, size_t size);
/* All of the next message, which goes. */
void exo_ring_take(exo_ring *ring, void *out);
/* From now on a writer wakes it. Look whether a message has come before you sleep. */
void exo_ring_sleep(exo_ring *ring);

/* --- The writer's end ------------------------------------------------------------------------- */

/* false: there is no room for it, or the ring is broken. */
bool exo_ring_put(exo_ring *ring, const void *data, size_t size);
/* Whether the reader sleeps, and must be woken by whoever asks: it says so once. After
 * exo_ring_put. */
bool exo_ring_wakes(exo_ring *ring);

/* --- Both ------------------------------------------------------------------------------------- */

bool exo_ring_is_broken(const exo_ring *ring);
/* NULL is fine. */
void exo_ring_free(exo_ring **ring);
/* What both can write: the counters' page and EXO_RING_BYTES bytes. For tests. */
void *exo_ring_memory(exo_ring *ring);

#endif
