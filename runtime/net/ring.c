/* Rings; ring.h has the contracts. Each end belongs to the thread that uses it.
 *
 * A ring is EDGE bytes with the counters, then the bytes; the two rings of a pair lie one after the
 * other. `written` and `read` count bytes since the beginning. A message is its length in 8 bytes,
 * then its bytes, rounded up to 8. Each end keeps its own counter in private memory and only
 * publishes it, so only the other end's counter can be wrong. Every word of the other end is read
 * once, into a variable, and checked there. A message is copied before its content is used. */
#include "net/ring.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <exogym/memory.h>

#include "base/memfd.h"

enum {
    EDGE = 4096, /* the machine's pages may be larger */
    SIZE = EXO_RING_PAIR / 2,
    LENGTH = 8 /* bytes of a message's length, before the message */
};

struct shared {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) _Atomic uint32_t asleep; /* whether the reader sleeps */
};
static_assert(sizeof(struct shared) <= EDGE, "the counters lie before the bytes");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a word in shared memory has no lock beside it");

struct exo_ring {
    struct shared *shared;
    uint8_t *bytes;
    size_t before; /* bytes of the mapping before the counters */
    uint64_t at;   /* this end's counter */
    size_t length; /* the reader's: of the next message; 0: unknown */
    bool broken;
};

static uint64_t
room_for(size_t size)
{
    return LENGTH + (size + 7) / 8 * 8;
}

static void
copy_in(exo_ring *ring, uint64_t at, const void *data, size_t size)
{
    size_t from = at % EXO_RING_BYTES,
           first = EXO_RING_BYTES - from < size ? EXO_RING_BYTES - from : size;
    memcpy(ring->bytes + from, data, first);
    memcpy(ring->bytes, (const uint8_t *)data + first, size - first);
}

static void
copy_out(const exo_ring *ring, uint64_t at, void *out, size_t size)
{
    size_t from = at % EXO_RING_BYTES,
           first = EXO_RING_BYTES - from < size ? EXO_RING_BYTES - from : size;
    memcpy(out, ring->bytes + from, first);
    memcpy((uint8_t *)out + first, ring->bytes, size - first);
}

/* --- Making and opening ----------------------------------------------------------------------- */

/* Maps one half of a pair's file. The mapping keeps the memory after the file is closed. It begins
 * at a page: with pages of 64 KiB the second ring does not. */
static exo_status
map_ring(exo_ring **out, int fd, size_t half, exo_err *err)
{
    exo_ring *ring = exo_calloc(1, sizeof *ring);
    size_t from = half * SIZE, before = from % (size_t)sysconf(_SC_PAGESIZE);
    char *at = ring ? mmap(NULL, before + SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                           (off_t)(from - before))
                    : MAP_FAILED;
    if (at == MAP_FAILED) {
        exo_free(ring);
        return exo_fail(err, EXO_NOMEM, "no memory for a ring");
    }
    ring->before = before;
    ring->shared = (struct shared *)(void *)(at + before);
    ring->bytes = (uint8_t *)at + before + EDGE;
    *out = ring;
    return EXO_OK;
}

static exo_status
map_pair(exo_ring **first, exo_ring **second, int fd, exo_err *err)
{
    exo_status st = map_ring(first, fd, 0, err);
    if (st == EXO_OK)
        st = map_ring(second, fd, 1, err);
    if (st != EXO_OK)
        exo_ring_free(first);
    return st;
}

exo_status
exo_ring_pair_new(exo_ring **in, exo_ring **out, int *file, exo_err *err)
{
    exo_status st;
    *in = *out = NULL;
    *file = exo_memfd_new("exogym-rings", EXO_RING_PAIR);
    /* The memory exists before it is used, and the file's size is sealed: neither process can make
     * the other fault. */
    if (*file >= 0 && exo_memfd_reserve(*file, 0, EXO_RING_PAIR) &&
        exo_memfd_seal(*file, EXO_MEMFD_FIXED))
        st = map_pair(in, out, *file, err);
    else
        st = exo_fail(err, EXO_IO, "no memory can be shared for rings: %s", strerror(errno));
    if (st != EXO_OK && *file >= 0) {
        close(*file);
        *file = -1;
    }
    return st;
}

exo_status
exo_ring_pair_open(exo_ring **in, exo_ring **out, int file, exo_err *err)
{
    uint64_t size = 0;
    *in = *out = NULL;
    if (!exo_memfd_is(file, EXO_MEMFD_FIXED, &size) || size != EXO_RING_PAIR)
        return exo_fail(err, EXO_INVAL, "what was handed over is no memory for rings");
    /* the maker reads the first ring, so this process reads the second */
    return map_pair(out, in, file, err);
}

void
exo_ring_free(exo_ring **handle)
{
    exo_ring *ring = *handle;
    if (!ring)
        return;
    *handle = NULL;
    munmap((char *)ring->shared - ring->before, ring->before + SIZE);
    exo_free(ring);
}

void *
exo_ring_memory(exo_ring *ring)
{
    return ring->shared;
}

bool
exo_ring_is_broken(const exo_ring *ring)
{
    return ring->broken;
}

/* --- Reading ---------------------------------------------------------------------------------- */

size_t
exo_ring_next(exo_ring *ring)
{
    uint64_t length;
    if (ring->length || ring->broken)
        return ring->broken ? 0 : ring->length;
    uint64_t there = atomic_load_explicit(&ring->shared->written, memory_order_acquire) - ring->at;
    if (there == 0)
        return 0;
    ring->broken = there < LENGTH || there > EXO_RING_BYTES;
    if (ring->broken)
        return 0;
    /* An atomic load: the compiler cannot read the checked word a second time. */
    length =
        atomic_load_explicit((_Atomic uint64_t *)(void *)(ring->bytes + ring->at % EXO_RING_BYTES),
                             memory_order_relaxed);
    ring->broken = length == 0 || length > EXO_RING_MESSAGE || room_for(length) > there;
    if (ring->broken)
        return 0;
    ring->length = length;
    return length;
}

void
exo_ring_peek(const exo_ring *ring, void *out, size_t size)
{
    assert(size <= ring->length);
    copy_out(ring, ring->at + LENGTH, out, size);
}

void
exo_ring_take(exo_ring *ring, void *out)
{
    exo_ring_peek(ring, out, ring->length);
    ring->at += room_for(ring->length);
    ring->length = 0;
    atomic_store_explicit(&ring->shared->read, ring->at, memory_order_release);
}

void
exo_ring_sleep(exo_ring *ring)
{
    /* Sequentially consistent, as are the store of `written` and the load of `asleep`: either the
     * writer sees that the reader sleeps, or the reader sees what was written. */
    atomic_store(&ring->shared->asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

/* --- Writing ---------------------------------------------------------------------------------- */

bool
exo_ring_put(exo_ring *ring, const void *data, size_t size)
{
    uint64_t length = size,
             used = ring->at - atomic_load_explicit(&ring->shared->read, memory_order_acquire);
    ring->broken = ring->broken || used > EXO_RING_BYTES;
    if (ring->broken || size == 0 || size > EXO_RING_MESSAGE ||
        EXO_RING_BYTES - used < room_for(size))
        return false;
    copy_in(ring, ring->at, &length, LENGTH);
    copy_in(ring, ring->at + LENGTH, data, size);
    ring->at += room_for(size);
    atomic_store(&ring->shared->written, ring->at);
    return true;
}

bool
exo_ring_wakes(exo_ring *ring)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&ring->shared->asleep) != 0 &&
           atomic_exchange(&ring->shared->asleep, 0) != 0;
}
