/* Making segments, mapping those of others, and the words that say whether a slot is in use. No state, no locks. */
#include "segment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
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
    _Atomic uint64_t over; /* 1: its owner has let it go; readers that only keep it mapped do the same */
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
open_folder(pid_t id)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)id);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

exo_status
exo_process_self(exo_process *out, exo_err *err)
{
    pid_t id = getpid();
    int folder = open_folder(id);
    uint64_t start = folder >= 0 ? start_time(folder) : 0;
    if (folder >= 0)
        close(folder);
    if (start == 0)
        return exo_fail(err, EXO_IO,
                        "/proc/%d/stat: cannot be read; objects need a /proc of this process's pid namespace", (int)id);
    *out = (exo_process){.id = id, .start = start};
    return EXO_OK;
}

static exo_status
owner_gone(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_PEER_LOST, "process %d, the owner of the object, is gone", (int)owner->id);
}

static exo_status
cannot_look(const exo_process *owner, int number, exo_err *err)
{
    if (number == EMFILE || number == ENFILE)
        return exo_fail(err, EXO_FULL, "no descriptor is left to import an object with");
    return exo_fail(err, EXO_UNSUPPORTED, "process %d does not let this one see its objects: %s", (int)owner->id,
                    strerror(number));
}

exo_status
exo_process_open(const exo_process *process, int *out, exo_err *err)
{
    int folder = open_folder(process->id);
    if (folder < 0)
        return errno == ENOENT || errno == ESRCH ? owner_gone(process, err) : cannot_look(process, errno, err);
    if (start_time(folder) != process->start) {
        close(folder);
        return owner_gone(process, err);
    }
    *out = folder;
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

/* Maps s->size bytes of the file from its start; where they may lie on huge pages, at an address that lets them be mapped whole.
 * On failure errno says why. */
static bool
map_file(exo_segment *s, int fd, int protection)
{
    char *at = NULL;
    if (s->size >= HUGE_PAGE && s->size < SIZE_MAX / 2) {
        s->room_size = s->size + HUGE_PAGE;
        char *room = mmap(NULL, s->room_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED)
            return false;
        s->room = room;
        at = room + (HUGE_PAGE - (uintptr_t)room % HUGE_PAGE) % HUGE_PAGE;
    }
    void *base = mmap(at, s->size, protection, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    if (base == MAP_FAILED)
        return false;
    s->base = base;
    return true;
}

bool
exo_segment_is_over(const exo_segment *segment)
{
    return atomic_load_explicit(&segment->header->over, memory_order_relaxed) != 0;
}

void
exo_segment_release(exo_segment *segment)
{
    if (!segment->foreign && segment->header)
        atomic_store_explicit(&segment->header->over, 1, memory_order_relaxed);
    if (segment->foreign && segment->header)
        munmap(segment->header, EXO_SEGMENT_PAGE);
    if (segment->room)
        munmap(segment->room, segment->room_size);
    else if (segment->base)
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
            "no descriptor is left for a segment of %zu bytes: each takes one, and this process may have %ld; drop "
            "objects, or raise the hard limit (ulimit -Hn)",
            size, sysconf(_SC_OPEN_MAX));
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

    if (ftruncate(s.fd, (off_t)size) != 0 || !map_file(&s, s.fd, PROT_READ | PROT_WRITE)) {
        st = cannot_create(errno, size, err);
        goto done;
    }
    s.header = (struct exo_segment_header *)(void *)s.base;
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
stale(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND, "process %d has dropped the object", (int)owner->id);
}

/* The device that every memfd of small pages lies on, and nothing else; 0 if it cannot be told. A file of any other file system may
 * be one that runs full under a reader, or whose opening waits for somebody. */
static dev_t
memory_device(void)
{
    static _Atomic dev_t known;
    struct stat info;
    dev_t device = atomic_load_explicit(&known, memory_order_relaxed);
    if (device)
        return device;
    int fd = create_file();
    if (fd < 0)
        return 0;
    device = fstat(fd, &info) == 0 ? info.st_dev : 0;
    close(fd);
    atomic_store_explicit(&known, device, memory_order_relaxed);
    return device;
}

/* Opens the owner's descriptor `fd` for reading and writing, but only if it is a regular file in memory that this user owns: to open
 * a pipe or a device can have effects. */
static exo_status
open_file(int *out, const exo_process *owner, int folder, int fd, exo_err *err)
{
    exo_status st = EXO_OK;
    char path[32];
    struct stat info;
    dev_t device = memory_device();
    if (!device)
        return cannot_look(owner, errno, err);
    snprintf(path, sizeof path, "fd/%d", fd);
    int peek = openat(folder, path, O_PATH | O_CLOEXEC);
    if (peek < 0) {
        int number = errno;
        if (start_time(folder) != owner->start)
            return owner_gone(owner, err);
        return number == ENOENT ? stale(owner, err) : cannot_look(owner, number, err);
    }
    if (fstat(peek, &info) != 0 || info.st_dev != device || !S_ISREG(info.st_mode)) {
        st = stale(owner, err); /* the number has another use by now */
    } else if (info.st_uid != geteuid()) {
        st = exo_fail(err, EXO_UNSUPPORTED, "the object of process %d belongs to another user", (int)owner->id);
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", peek);
        *out = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK); /* never waits for a lease */
        if (*out < 0)
            st = cannot_look(owner, errno, err);
    }
    close(peek);
    return st;
}

exo_status
exo_segment_map(exo_segment *out, const exo_process *owner, int folder, int owner_fd, uint64_t nonce, exo_err *err)
{
    int fd = -1;
    exo_segment s = {.owner = *owner, .fd = owner_fd, .foreign = true, .nonce = nonce};
    exo_status st = open_file(&fd, owner, folder, owner_fd, err);
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
    if (!map_file(&s, fd, PROT_READ)) {
        st = exo_fail(err, EXO_NOMEM, "no address space to import an object of %zu bytes", s.size);
        goto done;
    }

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
