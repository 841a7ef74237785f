/* Rings: see ring.h.
 *
 * A page with the counters, then the bytes. `written` and `read` count bytes since the beginning; each message is its length in 8 bytes
 * and its bytes, rounded up to 8. Each end keeps its own counter to itself and only publishes it, so that only the other's can be
 * wrong. */
#include "ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/memory.h>

#define MAGIC UINT64_C(0x31676e6972676d79) /* "ymgring1": the digit is the layout's version */

enum {
    PAGE = 4096,
    SIZE = PAGE + EXO_RING_BYTES,
    LENGTH = 8 /* of a message, before it */
};

struct shared {
    uint64_t magic, token;
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
    _Alignas(64) _Atomic uint32_t asleep; /* the reader */
};
static_assert(sizeof(struct shared) <= PAGE, "the counters have a page");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a word in shared memory has no lock beside it");

struct exo_ring {
    struct shared *shared;
    uint8_t *bytes;
    uint64_t at;   /* this end's counter                   */
    size_t length; /* reader: of the next message; 0: unknown */
    int fd;        /* reader's                             */
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
    size_t from = at % EXO_RING_BYTES, first = EXO_RING_BYTES - from < size ? EXO_RING_BYTES - from : size;
    memcpy(ring->bytes + from, data, first);
    memcpy(ring->bytes, (const uint8_t *)data + first, size - first);
}

static void
copy_out(const exo_ring *ring, uint64_t at, void *out, size_t size)
{
    size_t from = at % EXO_RING_BYTES, first = EXO_RING_BYTES - from < size ? EXO_RING_BYTES - from : size;
    memcpy(out, ring->bytes + from, first);
    memcpy((uint8_t *)out + first, ring->bytes, size - first);
}

static bool
map(exo_ring *ring, int fd)
{
    void *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return false;
    ring->shared = at;
    ring->bytes = (uint8_t *)at + PAGE;
    return true;
}

/* --- Making and opening ------------------------------------------------------------------------------------------------------------ */

exo_status
exo_ring_new(exo_ring **out, exo_err *err)
{
    exo_ring *ring = exo_calloc(1, sizeof *ring);
    if (!ring)
        return exo_fail(err, EXO_NOMEM, "no memory for a ring");
    ring->fd = memfd_create("exogym-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* Its memory is there before it is used, and its size stays: nobody can make the other one fault. */
    bool made = ring->fd >= 0 && fallocate(ring->fd, 0, 0, SIZE) == 0 &&
                fcntl(ring->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 && map(ring, ring->fd);
    if (!made || getrandom(&ring->shared->token, sizeof ring->shared->token, 0) < 0) {
        exo_status st = exo_fail(err, EXO_IO, "no memory can be shared for a ring: %s", strerror(errno));
        exo_ring_free(&ring);
        return st;
    }
    ring->shared->magic = MAGIC;
    *out = ring;
    return EXO_OK;
}

/* Whether what lies there is a ring; it is not opened before: opening something else may do more than open it. */
static bool
looks_right(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == SIZE;
}

exo_status
exo_ring_open(exo_ring **out, uint32_t pid, int fd, uint64_t token, exo_err *err)
{
    char path[64];
    exo_ring *ring = exo_calloc(1, sizeof *ring);
    if (!ring)
        return exo_fail(err, EXO_NOMEM, "no memory for a ring");
    ring->fd = -1;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, fd);
    int own = looks_right(path) ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    exo_status st = own >= 0 ? EXO_OK : exo_fail(err, EXO_PEER_LOST, "%s is no ring that this process can open", path);
    struct stat info;
    if (st == EXO_OK && ((fcntl(own, F_GET_SEALS) & F_SEAL_SHRINK) == 0 || fstat(own, &info) != 0 ||
                         info.st_size != SIZE || !map(ring, own)))
        st = exo_fail(err, EXO_INVAL, "%s is no ring", path);
    if (st == EXO_OK && (ring->shared->magic != MAGIC || ring->shared->token != token))
        st = exo_fail(err, EXO_INVAL, "%s is another ring", path);
    if (own >= 0)
        close(own);
    if (st == EXO_OK)
        ring->at = atomic_load(&ring->shared->written);
    if (st != EXO_OK)
        exo_ring_free(&ring);
    *out = ring;
    return st;
}

void
exo_ring_free(exo_ring **handle)
{
    exo_ring *ring = *handle;
    if (!ring)
        return;
    *handle = NULL;
    if (ring->shared)
        munmap(ring->shared, SIZE);
    if (ring->fd >= 0)
        close(ring->fd);
    exo_free(ring);
}

int
exo_ring_fd(const exo_ring *ring)
{
    return ring->fd;
}

uint64_t
exo_ring_token(const exo_ring *ring)
{
    return ring->shared->token;
}

bool
exo_ring_is_broken(const exo_ring *ring)
{
    return ring->broken;
}

/* --- Reading ------------------------------------------------------------------------------------------------------------------------- */

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
    copy_out(ring, ring->at, &length, LENGTH);
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
    /* Sequentially consistent, as the store of `written` and the load of `asleep` are: the writer sees that we sleep, or we see what it
     * wrote. */
    atomic_store(&ring->shared->asleep, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

/* --- Writing ------------------------------------------------------------------------------------------------------------------------- */

bool
exo_ring_put(exo_ring *ring, const void *data, size_t size)
{
    uint64_t length = size, used = ring->at - atomic_load_explicit(&ring->shared->read, memory_order_acquire);
    ring->broken = ring->broken || used > EXO_RING_BYTES;
    if (ring->broken || size == 0 || size > EXO_RING_MESSAGE || EXO_RING_BYTES - used < room_for(size))
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
    return atomic_load(&ring->shared->asleep) != 0 && atomic_exchange(&ring->shared->asleep, 0) != 0;
}
