/* Making segments, mapping those of others, and the words that say whether a slot is in use. No state, no locks. */
#include "segment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; before, it is EINVAL */
#endif

#define HUGE_PAGE      ((size_t)2 << 20)
#define MAGIC          UINT64_C(0x31746e656d676573) /* "segment1": the digit is the layout's version */
#define ONE_GENERATION (UINT64_C(1) << 32)

struct exo_segment_header {
    uint64_t magic;
    uint64_t nonce;
    uint64_t slot_size;
    uint64_t num_slots;
    struct {
        _Atomic uint64_t word; /* {generation: 32, borrowers: 32}  */
        _Atomic uint64_t size; /* bytes of the object, if there is one */
    } slots[EXO_SEGMENT_MAX_SLOTS];
};
static_assert(sizeof(struct exo_segment_header) <= EXO_SEGMENT_PAGE, "the header fits in its page");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a word in shared memory has no lock beside it");

/* --- Processes ------------------------------------------------------------------------------------------------------------- */

/* Reads "/proc/<pid>/stat" of an open folder of /proc: the start time, 0 if the process has ended, be it that its parent has not
 * asked yet. */
static uint64_t
start_time(int folder)
{
    char text[1024];
    int fd = openat(folder, "stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *at = strrchr(text, ')'); /* the second field is the command, which may hold anything */
    if (!at || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static int
open_process(pid_t id)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)id);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

exo_status
exo_process_self(exo_process *out, exo_err *err)
{
    pid_t id = getpid();
    int folder = open_process(id);
    uint64_t start = folder >= 0 ? start_time(folder) : 0;
    if (folder >= 0)
        close(folder);
    if (start == 0)
        return exo_fail(err, EXO_IO,
                        "/proc/%d/stat: cannot be read; objects need a /proc of this process's pid namespace", (int)id);
    *out = (exo_process){.id = id, .start = start};
    return EXO_OK;
}

/* --- Mappings -------------------------------------------------------------------------------------------------------------- */

size_t
exo_segment_size_of(uint64_t slot_size, uint32_t num_slots)
{
    return EXO_SEGMENT_PAGE + (size_t)slot_size * num_slots;
}

char *
exo_segment_slot(const exo_segment *segment, uint32_t slot)
{
    return segment->base + EXO_SEGMENT_PAGE + segment->slot_size * slot;
}

/* Maps the file from its start; where it may lie on huge pages, at an address that lets them be mapped whole. */
static void *
map_file(int fd, size_t size, int protection)
{
    if (size < HUGE_PAGE)
        return mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    if (size > SIZE_MAX / 2)
        return errno = ENOMEM, MAP_FAILED;
    size_t room = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    char *reserved = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (HUGE_PAGE - (uintptr_t)reserved % HUGE_PAGE) % HUGE_PAGE;
    char *base = mmap(reserved + before, size, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int number = errno;
        munmap(reserved, room);
        return errno = number, MAP_FAILED;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = before + (size + page - 1) / page * page;
    if (before)
        munmap(reserved, before);
    if (room > used)
        munmap(reserved + used, room - used);
    return base;
}

void
exo_segment_release(exo_segment *segment)
{
    if (segment->foreign && segment->header)
        munmap(segment->header, EXO_SEGMENT_PAGE);
    if (segment->base)
        munmap(segment->base, segment->size);
    if (!segment->foreign && segment->size)
        close(segment->fd);
    *segment = (exo_segment){0};
}

/* --- Making ---------------------------------------------------------------------------------------------------------------- */

static int
create_file(void)
{
    int fd = memfd_create("exogym", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create("exogym", MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

/* Gets the pages: so that a write cannot be the moment when the kernel finds that it has none. In pieces, because a signal undoes
 * the piece that it interrupts. */
static int
reserve(int fd, size_t from, size_t to)
{
    while (from < to) {
        size_t piece = to - from < HUGE_PAGE ? to - from : HUGE_PAGE;
        if (fallocate(fd, 0, (off_t)from, (off_t)piece) == 0)
            from += piece;
        else if (errno != EINTR)
            return -1;
    }
    return 0;
}

/* Puts whole pieces on huge pages, whatever the machine's setting for shared memory: a reader's page faults become 512 times
 * fewer, and zeroing is as fast as for private memory. One small page of a piece has to be there to begin with. Where the kernel
 * does not want to, small pages follow. */
static void
use_huge_pages(const exo_segment *s)
{
    for (size_t at = 0; at + HUGE_PAGE <= s->size; at += HUGE_PAGE)
        if (reserve(s->fd, at, at + EXO_SEGMENT_PAGE) != 0 || madvise(s->base + at, HUGE_PAGE, MADV_COLLAPSE) != 0)
            return;
}

static exo_status
cannot_create(int number, size_t size, exo_err *err)
{
    switch (number) {
    case EMFILE:
        return exo_fail(
            err, EXO_FULL,
            "no descriptor is left in this process for a segment of %zu bytes (each takes one); drop objects, or raise "
            "the hard limit (ulimit -Hn)",
            size);
    case ENFILE:
        return exo_fail(err, EXO_FULL, "no descriptor is left on this machine for a segment of %zu bytes; drop objects",
                        size);
    case ENOMEM:
    case ENOSPC:
        return exo_fail(err, EXO_FULL, "the machine has no memory left for a segment of %zu bytes; drop objects", size);
    case EFBIG:
    case EINVAL:
    case EOVERFLOW:
        return exo_fail(err, EXO_INVAL, "a segment of %zu bytes is larger than any that the kernel makes", size);
    default:
        return exo_fail(err, EXO_IO, "a segment of %zu bytes cannot be made: %s", size, strerror(number));
    }
}

exo_status
exo_segment_create(exo_segment *out, const exo_process *self, uint64_t slot_size, uint32_t num_slots, exo_err *err)
{
    exo_status st = EXO_OK;
    size_t size = exo_segment_size_of(slot_size, num_slots);
    exo_segment s = {.owner = *self, .num_slots = num_slots, .slot_size = slot_size, .fd = create_file()};
    if (s.fd < 0)
        return cannot_create(errno, size, err);
    s.size = size; /* from here on the closer has something to close */

    void *base = MAP_FAILED;
    if (ftruncate(s.fd, (off_t)size) == 0)
        base = map_file(s.fd, size, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) {
        st = cannot_create(errno, size, err);
        goto done;
    }
    s.base = base;
    s.header = base;
    use_huge_pages(&s);
    if (reserve(s.fd, 0, size) != 0 || fcntl(s.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 ||
        getrandom(&s.nonce, sizeof s.nonce, 0) != (ssize_t)sizeof s.nonce) {
        st = cannot_create(errno, size, err);
        goto done;
    }
    s.header->nonce = s.nonce;
    s.header->slot_size = slot_size;
    s.header->num_slots = num_slots;
    s.header->magic = MAGIC;

    *out = s;
    s = (exo_segment){0}; /* moved to the caller */
done:
    exo_segment_release(&s);
    return st;
}

/* --- Mapping another's ----------------------------------------------------------------------------------------------------- */

static exo_status
owner_gone(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_PEER_LOST, "process %d, the owner of the object, is gone", (int)owner->id);
}

static exo_status
stale(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND, "process %d has dropped the object", (int)owner->id);
}

/* Opens the owner's descriptor `fd` for reading and writing, but only if it is a regular file in memory that this user owns: to open
 * a pipe or a device can have effects. */
static exo_status
open_file(int *out, const exo_process *owner, int fd, exo_err *err)
{
    exo_status st = EXO_OK;
    char path[32];
    struct stat info;
    struct statfs system;
    int number, peek = -1, folder = open_process(owner->id);
    if (folder < 0) {
        number = errno;
        if (number == ENOENT || number == ESRCH)
            return owner_gone(owner, err);
        goto failed;
    }
    /* The folder stays that of one process, whoever gets its number later. */
    if (start_time(folder) != owner->start) {
        st = owner_gone(owner, err);
        goto done;
    }
    snprintf(path, sizeof path, "fd/%d", fd);
    peek = openat(folder, path, O_PATH | O_CLOEXEC);
    if (peek < 0) {
        number = errno;
        if (start_time(folder) == 0) /* it died just now */
            st = owner_gone(owner, err);
        else if (number == ENOENT)
            st = stale(owner, err);
        else
            goto failed;
        goto done;
    }
    if (fstat(peek, &info) != 0 || fstatfs(peek, &system) != 0 || !S_ISREG(info.st_mode) ||
        system.f_type != TMPFS_MAGIC) {
        st = stale(owner, err); /* the number has another use by now */
        goto done;
    }
    if (info.st_uid != geteuid()) {
        st = exo_fail(err, EXO_UNSUPPORTED, "the object of process %d belongs to another user", (int)owner->id);
        goto done;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", peek);
    *out = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK); /* never waits for a lease */
    if (*out >= 0)
        goto done;
    number = errno;
failed:
    if (number == EMFILE || number == ENFILE)
        st = exo_fail(err, EXO_FULL, "no descriptor is left to import an object with");
    else
        st = exo_fail(err, EXO_UNSUPPORTED, "process %d does not let this one see its objects: %s", (int)owner->id,
                      strerror(number));
done:
    if (peek >= 0)
        close(peek);
    if (folder >= 0)
        close(folder);
    return st;
}

exo_status
exo_segment_map(exo_segment *out, const exo_process *owner, int owner_fd, uint64_t nonce, exo_err *err)
{
    int fd = -1;
    exo_segment s = {.owner = *owner, .fd = owner_fd, .foreign = true, .nonce = nonce};
    exo_status st = open_file(&fd, owner, owner_fd, err);
    if (st != EXO_OK)
        return st;

    /* A size that is sealed cannot change behind a reader's back. */
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & wanted) != wanted || fstat(fd, &info) != 0 || info.st_size < EXO_SEGMENT_PAGE) {
        st = stale(owner, err);
        goto done;
    }
    uint64_t size = (uint64_t)info.st_size;
    void *header = mmap(NULL, EXO_SEGMENT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED) {
        st = exo_fail(err, EXO_NOMEM, "no address space to import an object");
        goto done;
    }
    s.header = header;

    /* Each field is read once: it may change while it is looked at. */
    const volatile struct exo_segment_header *h = header;
    uint64_t magic = h->magic, name = h->nonce, slot_size = h->slot_size, num_slots = h->num_slots;
    if (magic != MAGIC || name != nonce) {
        st = stale(owner, err);
        goto done;
    }
    if (num_slots == 0 || num_slots > EXO_SEGMENT_MAX_SLOTS || slot_size == 0 || slot_size > size / num_slots ||
        slot_size * num_slots > size - EXO_SEGMENT_PAGE) {
        st = exo_fail(err, EXO_INVAL, "process %d sent a segment whose header does not fit its size", (int)owner->id);
        goto done;
    }
    s.slot_size = slot_size;
    s.num_slots = (uint32_t)num_slots;
    s.size = exo_segment_size_of(slot_size, s.num_slots);
    void *base = map_file(fd, s.size, PROT_READ);
    if (base == MAP_FAILED) {
        st = exo_fail(err, EXO_NOMEM, "no address space to import an object of %zu bytes", s.size);
        goto done;
    }
    s.base = base;

    *out = s;
    s = (exo_segment){0}; /* moved to the caller */
done:
    exo_segment_release(&s);
    close(fd); /* the mapping keeps the memory */
    return st;
}

/* --- Words ----------------------------------------------------------------------------------------------------------------- */

static uint32_t
generation_of(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static uint32_t
borrowers_of(uint64_t word)
{
    return (uint32_t)word;
}

bool
exo_slot_take(exo_segment *segment, uint32_t slot, uint64_t size, uint32_t *generation)
{
    _Atomic uint64_t *word = &segment->header->slots[slot].word;
    uint64_t free = atomic_load_explicit(word, memory_order_relaxed);
    if (borrowers_of(free) != 0 ||
        generation_of(free) >= UINT32_MAX - 2) /* this use and its end have numbers of their own */
        return false;
    /* Acquire: what is written next comes after the last read of whoever has given it back. */
    if (!atomic_compare_exchange_strong_explicit(word, &free, free + ONE_GENERATION, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    atomic_store_explicit(&segment->header->slots[slot].size, size, memory_order_relaxed); /* its handle comes after */
    *generation = generation_of(free) + 1;
    return true;
}

void
exo_slot_retire(exo_segment *segment, uint32_t slot)
{
    atomic_fetch_add_explicit(&segment->header->slots[slot].word, ONE_GENERATION, memory_order_acq_rel);
}

exo_status
exo_slot_borrow(exo_segment *segment, uint32_t slot, uint32_t generation, uint64_t size)
{
    _Atomic uint64_t *word = &segment->header->slots[slot].word;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    do {
        if (generation_of(seen) != generation)
            return EXO_NOT_FOUND;
        if (borrowers_of(seen) == UINT32_MAX)
            return EXO_FULL;
    } while (!atomic_compare_exchange_weak_explicit(word, &seen, seen + 1, memory_order_acquire, memory_order_relaxed));
    /* It is borrowed, so that an honest owner does not change it. */
    if (size <= segment->slot_size &&
        atomic_load_explicit(&segment->header->slots[slot].size, memory_order_relaxed) == size)
        return EXO_OK;
    exo_slot_give_back(segment, slot);
    return EXO_INVAL;
}

void
exo_slot_give_back(exo_segment *segment, uint32_t slot)
{
    atomic_fetch_sub_explicit(&segment->header->slots[slot].word, 1, memory_order_release);
}

uint32_t
exo_slot_borrowers(const exo_segment *segment, uint32_t slot)
{
    return borrowers_of(atomic_load_explicit(&segment->header->slots[slot].word, memory_order_relaxed));
}
