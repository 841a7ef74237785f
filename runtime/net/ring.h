/* A queue of messages in memory that two processes of a host share: one writes, the other reads.
 * Such a message passes neither ZeroMQ's threads nor the kernel.
 *
 * Rings come in pairs, one for each direction, in one file. One process hands its descriptor to the
 * other (door.h). Neither process trusts memory that the other can write at any time: a ring whose
 * counters are impossible is broken, for good. The reader can go to sleep; a writer that finds it
 * asleep must wake it.
 *
 * Threads: one thread at a time uses each end. The two ends synchronize by atomic words, without a
 * lock. Read next: ring.c. */
#ifndef EXO_NET_RING_H
#define EXO_NET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_RING_BYTES = 1 << 18,
    EXO_RING_MESSAGE = EXO_RING_BYTES / 2, /* longest message */
    /* bytes of the file: counters and messages of both rings */
    EXO_RING_PAIR = 2 * (4096 + EXO_RING_BYTES)
};

typedef struct exo_ring exo_ring;

/* Makes a pair: this process reads `in` and writes `out`. The caller hands over the file and closes
 * it. Errors: NOMEM, IO (no shared memory). */
exo_status exo_ring_pair_new(exo_ring **in, exo_ring **out, int *file, exo_err *err);
/* Opens the pair that another process made. The file remains the caller's. Errors: INVAL (not such
 * a file, or its size may change), NOMEM. */
exo_status exo_ring_pair_open(exo_ring **in, exo_ring **out, int file, exo_err *err);

/* --- The reader's end ------------------------------------------------------------------------- */

/* The length of the next message; 0: there is none, or the ring is broken. */
size_t exo_ring_next(exo_ring *ring);
/* Copies the first `size` bytes of the next message, which is at least as long; it stays in the
 * ring. */
void exo_ring_peek(const exo_ring *ring, void *out, size_t size);
/* Copies the whole next message and takes it from the ring. */
void exo_ring_take(exo_ring *ring, void *out);
/* From now on a writer wakes the reader. Check once more for a message before you sleep. */
void exo_ring_sleep(exo_ring *ring);

/* --- The writer's end ------------------------------------------------------------------------- */

/* False: there is no room, or the ring is broken. */
bool exo_ring_put(exo_ring *ring, const void *data, size_t size);
/* Whether the reader sleeps; then the caller must wake it. True once for each sleep. Call it after
 * exo_ring_put. */
bool exo_ring_wakes(exo_ring *ring);

/* --- Both ends -------------------------------------------------------------------------------- */

bool exo_ring_is_broken(const exo_ring *ring);
/* NULL is allowed. */
void exo_ring_free(exo_ring **ring);
/* The memory that both processes can write: 4096 bytes for the counters and EXO_RING_BYTES bytes. For
 * tests. */
void *exo_ring_memory(exo_ring *ring);

#endif
