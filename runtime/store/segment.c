/* Segments: made, mapped from other processes, and the words that say whether a slot is in use.
 * segment.h has the contracts and the protocol. No state, no locks of its own. Read next:
 * store.c. */
#include "store/segment.h"

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

#include "base/memfd.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define HUGE_PAGE  ((size_t)2 << 20)
#define MAGIC      UINT64_C(0x32746e656d676573) /* "segment2": the digit is the layout's version */
#define MAGIC_OPEN UINT64_C(0x316e6f6967657278) /* "xregion1" */
#define SEALS      (EXO_MEMFD_FIXED | EXO_MEMFD_READ_ONLY)

struct exo_segment_header {
    uint64_t magic;
    uint64_t nonce;
    uint64_t slot_size;
    uint64_t num_slots;
    /* 1: the owner has released it; readers that only keep it mapped release it, too */
    _Atomic uint64_t over;
    struct {
        _Atomic uint64_t generation;
        _Atomic uint64_t word; /* exo_slot_word of the object, if there is one */
    } slots[EXO_SEGMENT_MAX_SLOTS];
};
static_assert(sizeof(struct exo_segment_header) <= EXO_SEGMENT_PAGE, "the header fits in its page");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a word in shared memory has no lock beside it");

/* --- Processes -------------------------------------------------------------------------------- */

/* Reads the start time from "stat" in a process's open folder of /proc. 0: with errno ESRCH, the
 * process has ended, even if its parent has not yet waited for it; else it cannot be read now. */
static uint64_t
start_time(int folder)
{
    char text[1024];
    int fd = openat(folder, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    int number = length >= 0 || errno == ENOENT ? ESRCH : errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    if (length <= 0)
        return 0;
    text[length] = '\0';
    char *at = strrchr(text, ')'); /* the second field is the command, which may contain anything */
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

static exo_status
no_descriptor(const char *use, exo_err *err)
{
    return exo_fail(
        err, EXO_FULL,
        "no descriptor is left %s: process %d may have %ld; raise the limit (ulimit -n)", use,
        (int)getpid(), sysconf(_SC_OPEN_MAX));
}

exo_status
exo_process_self(exo_process *out, exo_err *err)
{
    pid_t id = getpid();
    int folder = open_folder(id);
    uint64_t start = folder >= 0 ? start_time(folder) : 0;
    int number = errno;
    if (folder >= 0)
        close(folder);
    if (start == 0 && (number == EMFILE || number == ENFILE))
        return no_descriptor("for the object store", err);
    if (start == 0)
        return exo_fail(
            err, EXO_IO,
            "/proc/%d/stat: cannot be read; objects need a /proc of this process's pid namespace",
            (int)id);
    *out = (exo_process){.id = id, .start = start};
    return EXO_OK;
}

static exo_status
owner_gone(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_PEER_LOST, "process %d, the owner of the object, is gone",
                    (int)owner->id);
}

static exo_status
cannot_look(const exo_process *owner, int number, exo_err *err)
{
    if (number == EMFILE || number == ENFILE)
        return no_descriptor("to import an object with", err);
    return exo_fail(err, EXO_UNSUPPORTED, "process %d does not let this one see its objects: %s",
                    (int)owner->id, strerror(number));
}

/* Checks that the folder is that of the owner, which lives. */
static exo_status
check_lives(const exo_process *owner, int folder, exo_err *err)
{
    uint64_t start = start_time(folder);
    if (start && start == owner->start)
        return EXO_OK;
    return start || errno == ESRCH ? owner_gone(owner, err) : cannot_look(owner, errno, err);
}

exo_status
exo_process_open(const exo_process *process, int *out, exo_err *err)
{
    int folder = open_folder(process->id);
    if (folder < 0)
        return errno == ENOENT || errno == ESRCH ? owner_gone(process, err)
                                                 : cannot_look(process, errno, err);
    exo_status st = check_lives(process, folder, err);
    if (st == EXO_OK)
        *out = folder;
    else
        close(folder);
    return st;
}

/* --- Mappings --------------------------------------------------------------------------------- */

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

/* Maps s->size bytes of the file from its start. A segment that may have huge pages gets an address
 * aligned to them. False, with errno. */
static bool
map_file(exo_segment *s, int fd, int protection)
{
    char *at = NULL;
    if (s->size >= HUGE_PAGE && s->size < SIZE_MAX / 2) {
        s->room_size = s->size + HUGE_PAGE;
        char *room =
            mmap(NULL, s->room_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    if (segment->room)
        munmap(segment->room, segment->room_size);
    else if (segment->base)
        munmap(segment->base, segment->size);
    if (segment->size)
        close(segment->file); /* together with the mapping, this gives back all borrowed slots */
    *segment = (exo_segment){0};
}

/* --- Making ----------------------------------------------------------------------------------- */

/* Puts whole huge pages under the segment, whatever the machine's setting for shared memory. A
 * reader then has 512 times fewer page faults, and zeroing is as fast as for private memory.
 * MADV_COLLAPSE needs one small page of each piece to exist. Where the kernel refuses, small pages
 * remain. */
static void
use_huge_pages(const exo_segment *s)
{
    for (size_t at = 0; at + HUGE_PAGE <= s->size; at += HUGE_PAGE)
        if (!exo_memfd_reserve(s->file, at, at + EXO_SEGMENT_PAGE) ||
            madvise(s->base + at, HUGE_PAGE, MADV_COLLAPSE) != 0)
            return;
}

static exo_status
cannot_create(int number, size_t size, exo_err *err)
{
    switch (number) {
    case EMFILE:
        return exo_fail(
            err, EXO_FULL,
            "no descriptor is left for a segment of %zu bytes: each takes one, and "
            "this process may have %ld; drop objects, or raise the hard limit (ulimit -Hn)",
            size, sysconf(_SC_OPEN_MAX));
    case ENFILE:
        return exo_fail(
            err, EXO_FULL,
            "no descriptor is left on this machine for a segment of %zu bytes; drop objects", size);
    case ENOMEM:
    case ENOSPC:
        return exo_fail(err, EXO_FULL,
                        "the machine has no memory left for a segment of %zu bytes; drop objects",
                        size);
    case EFBIG:
    case EINVAL:
    case EOVERFLOW:
        return exo_fail(err, EXO_INVAL,
                        "a segment of %zu bytes is larger than any that the kernel makes", size);
    default:
        return exo_fail(err, EXO_IO, "a segment of %zu bytes cannot be made: %s", size,
                        strerror(number));
    }
}

static exo_status
create(exo_segment *out, const exo_process *self, uint64_t slot_size, uint32_t num_slots, bool open,
       exo_err *err)
{
    exo_status st = EXO_OK;
    size_t size = exo_segment_size_of(slot_size, num_slots);
    exo_segment s = {.owner = *self, .num_slots = num_slots, .slot_size = slot_size, .open = open};
    s.fd = s.file = exo_memfd_new("exogym", size);
    if (s.fd < 0)
        return cannot_create(errno, size, err);
    s.size = size; /* from here on exo_segment_release has something to close */

    if (!map_file(&s, s.file, PROT_READ | PROT_WRITE)) {
        st = cannot_create(errno, size, err);
        goto done;
    }
    /* At once: no other writable mapping may exist. */
    if (!exo_memfd_seal(s.file, open ? EXO_MEMFD_FIXED : SEALS)) {
        st = exo_fail(err, errno == EINVAL ? EXO_UNSUPPORTED : EXO_IO,
                      "shared memory cannot be made read-only for other processes: %s; objects "
                      "need Linux 5.1 or later",
                      strerror(errno));
        goto done;
    }
    s.header = (struct exo_segment_header *)(void *)s.base;
    use_huge_pages(&s);
    if (!exo_memfd_reserve(s.file, 0, size) ||
        getrandom(&s.nonce, sizeof s.nonce, 0) != (ssize_t)sizeof s.nonce) {
        st = cannot_create(errno, size, err);
        goto done;
    }
    s.header->nonce = s.nonce;
    s.header->slot_size = slot_size;
    s.header->num_slots = num_slots;
    s.header->magic = open ? MAGIC_OPEN : MAGIC;

    *out = s;
    s = (exo_segment){0}; /* moved to the caller */
done:
    exo_segment_release(&s);
    return st;
}

exo_status
exo_segment_create(exo_segment *out, const exo_process *self, uint64_t slot_size,
                   uint32_t num_slots, exo_err *err)
{
    return create(out, self, slot_size, num_slots, false, err);
}

exo_status
exo_segment_create_open(exo_segment *out, const exo_process *self, uint64_t slot_size, exo_err *err)
{
    return create(out, self, slot_size, 1, true, err);
}

bool
exo_segment_renew(exo_segment *s)
{
    exo_segment fresh;
    if (create(&fresh, &s->owner, s->slot_size, 1, true, NULL) != EXO_OK)
        return false;
    memcpy(exo_segment_slot(&fresh, 0), exo_segment_slot(s, 0), (size_t)s->slot_size);
    struct exo_segment_header *old = s->header;
    atomic_store_explicit(&old->over, 1, memory_order_relaxed);
    if (mmap(s->base, s->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fresh.file, 0) ==
        MAP_FAILED) {
        exo_segment_release(&fresh);
        return false;
    }
    close(s->file);
    s->fd = s->file = fresh.file;
    s->nonce = fresh.nonce;
    munmap(fresh.room ? fresh.room : fresh.base, fresh.room ? fresh.room_size : fresh.size);
    return true;
}

/* --- Mapping another process's segment -------------------------------------------------------- */

static exo_status
stale(const exo_process *owner, exo_err *err)
{
    return exo_fail(err, EXO_NOT_FOUND, "process %d has dropped the object", (int)owner->id);
}

/* Opens the owner's descriptor `fd`, but only if it is a regular file in memory that
 * belongs to this user. To open a pipe or device can have effects, and a file on another file
 * system can run out of space under a reader. */
static exo_status
open_file(int *out, const exo_process *owner, int folder, int fd, int access, exo_err *err)
{
    exo_status st = EXO_OK;
    char path[32];
    struct stat info;
    dev_t device = exo_memfd_device();
    if (!device)
        return cannot_look(owner, errno, err);
    snprintf(path, sizeof path, "fd/%d", fd);
    int peek = openat(folder, path, O_PATH | O_CLOEXEC);
    if (peek < 0) {
        int number = errno;
        st = check_lives(owner, folder, err);
        if (st != EXO_OK)
            return st;
        return number == ENOENT ? stale(owner, err) : cannot_look(owner, number, err);
    }
    if (fstat(peek, &info) != 0 || info.st_dev != device || !S_ISREG(info.st_mode)) {
        st = stale(owner, err); /* the number has another use by now */
    } else if (info.st_uid != geteuid()) {
        st = exo_fail(err, EXO_UNSUPPORTED, "the object of process %d belongs to another user",
                      (int)owner->id);
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d", peek);
        /* O_NONBLOCK: never waits for a lease */
        *out = open(path, access | O_CLOEXEC | O_NONBLOCK);
        if (*out < 0)
            st = cannot_look(owner, errno, err);
    }
    close(peek);
    return st;
}

static exo_status
map_segment(exo_segment *out, const exo_process *owner, int folder, int owner_fd, uint64_t nonce,
            bool open, exo_err *err)
{
    uint64_t size = 0;
    exo_segment s = {
        .owner = *owner, .fd = owner_fd, .foreign = true, .open = open, .nonce = nonce};
    exo_status st = open_file(&s.file, owner, folder, owner_fd, open ? O_RDWR : O_RDONLY, err);
    if (st != EXO_OK)
        return st;
    s.size = EXO_SEGMENT_PAGE; /* from here on exo_segment_release has something to close */

    /* The size is fixed, and unless it is open only the owner can change the contents. */
    if (!exo_memfd_is(s.file, open ? EXO_MEMFD_FIXED : SEALS, &size) || size < EXO_SEGMENT_PAGE) {
        st = stale(owner, err);
        goto done;
    }
    s.size = (size_t)size;
    if (!map_file(&s, s.file, open ? PROT_READ | PROT_WRITE : PROT_READ)) {
        st = exo_fail(err, EXO_NOMEM, "no address space to import an object of %zu bytes", s.size);
        goto done;
    }
    s.header = (struct exo_segment_header *)(void *)s.base;

    /* Each field is read once: the owner may change it at any time. */
    const volatile struct exo_segment_header *h = s.header;
    uint64_t magic = h->magic, name = h->nonce, slot_size = h->slot_size, num_slots = h->num_slots;
    if (magic != (open ? MAGIC_OPEN : MAGIC) || name != nonce) {
        st = stale(owner, err);
        goto done;
    }
    if (num_slots == 0 || num_slots > EXO_SEGMENT_MAX_SLOTS || slot_size == 0 ||
        slot_size > size / num_slots || slot_size * num_slots > size - EXO_SEGMENT_PAGE) {
        st =
            exo_fail(err, EXO_INVAL, "process %d sent a segment whose header does not fit its size",
                     (int)owner->id);
        goto done;
    }
    if (!exo_memfd_is_there(s.file, size)) {
        st = exo_fail(err, EXO_INVAL,
                      "process %d sent a segment that claims more memory than it has",
                      (int)owner->id);
        goto done;
    }
    s.slot_size = slot_size;
    s.num_slots = (uint32_t)num_slots;

    *out = s;
    s = (exo_segment){0}; /* moved to the caller */
done:
    exo_segment_release(&s);
    return st;
}

exo_status
exo_segment_map(exo_segment *out, const exo_process *owner, int folder, int fd, uint64_t nonce,
                exo_err *err)
{
    return map_segment(out, owner, folder, fd, nonce, false, err);
}

exo_status
exo_segment_map_open(exo_segment *out, const exo_process *owner, int folder, int fd, uint64_t nonce,
                     exo_err *err)
{
    return map_segment(out, owner, folder, fd, nonce, true, err);
}

/* --- Slots ------------------------------------------------------------------------------------ */

/* The bytes whose locks record the borrowers of a slot, one byte for each process. They lie beyond
 * the end of most files, which locks permit. */
enum {
    LOCKS_LOG = 32,    /* 2^32 bytes for each slot: more than there are process ids */
    MOST_COUNTED = 256 /* borrowers; counting stops there */
};

static off_t
first_lock(uint32_t slot)
{
    return (off_t)slot << LOCKS_LOG;
}

/* Sets or removes this process's lock on a slot, without waiting. Gives 0 or errno. */
static int
set_lock(const exo_segment *segment, uint32_t slot, short type)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = first_lock(slot) + getpid(), .l_len = 1};
    return fcntl(segment->file, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

/* Whether another process has locked a byte in [from, to); then *lock is one such lock. Also true
 * if the kernel gives no answer. */
static bool
is_locked(const exo_segment *segment, off_t from, off_t to, struct flock *lock)
{
    *lock = (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = to - from};
    return fcntl(segment->file, F_OFD_GETLK, lock) != 0 || lock->l_type != F_UNLCK;
}

static uint32_t
count_locks(const exo_segment *segment, off_t from, off_t to, uint32_t most)
{
    struct flock lock;
    if (most == 0 || from >= to || !is_locked(segment, from, to, &lock))
        return 0;
    uint32_t count = 1 + count_locks(segment, from, lock.l_start, most - 1);
    /* the kernel gives any of the locks, not the first one */
    if (lock.l_len > 0 && lock.l_start + lock.l_len > from)
        count += count_locks(segment, lock.l_start + lock.l_len, to, most - count);
    return count;
}

bool
exo_segment_is_copied(const exo_segment *segment)
{
    return segment->slot_size <= EXO_SEGMENT_COPIED;
}

bool
exo_slot_take(exo_segment *segment, uint32_t slot, uint64_t size, uint32_t *generation)
{
    struct flock lock;
    uint64_t free =
        atomic_load_explicit(&segment->header->slots[slot].generation, memory_order_relaxed);
    if (free >= UINT32_MAX - 2) /* this use and its end need numbers of their own */
        return false;
    /* A reader whose lock is not seen here sees the end of the last generation (exo_slot_borrow).
     * So does a reader that copies a byte of the next object (exo_slot_copy). */
    atomic_thread_fence(memory_order_seq_cst);
    if (!exo_segment_is_copied(segment) &&
        is_locked(segment, first_lock(slot), first_lock(slot + 1), &lock))
        return false;
    atomic_store_explicit(&segment->header->slots[slot].word, size, memory_order_relaxed);
    atomic_store_explicit(&segment->header->slots[slot].generation, free + 1, memory_order_release);
    *generation = (uint32_t)free + 1;
    return true;
}

void
exo_slot_retire(exo_segment *segment, uint32_t slot)
{
    atomic_fetch_add_explicit(&segment->header->slots[slot].generation, 1, memory_order_release);
}

void
exo_slot_describe(exo_segment *segment, uint32_t slot, uint64_t word)
{
    atomic_store_explicit(&segment->header->slots[slot].word, word, memory_order_relaxed);
}

static uint64_t
size_of(uint64_t word)
{
    return word & ((UINT64_C(1) << EXO_SLOT_KIND) - 1);
}

static uint64_t
generation_of(const exo_segment *segment, uint32_t slot)
{
    return atomic_load_explicit(&segment->header->slots[slot].generation, memory_order_acquire);
}

exo_status
exo_slot_check(const exo_segment *segment, uint32_t slot, uint32_t generation, uint64_t word)
{
    if (generation_of(segment, slot) != generation)
        return EXO_NOT_FOUND;
    uint64_t true_word =
        atomic_load_explicit(&segment->header->slots[slot].word, memory_order_relaxed);
    if (size_of(word) <= segment->slot_size && word == true_word)
        return EXO_OK;
    /* the word may be that of a later object: the fence of exo_slot_take and this one let a reader
     * that saw it see the end of this generation */
    atomic_thread_fence(memory_order_acquire);
    return generation_of(segment, slot) == generation ? EXO_INVAL : EXO_NOT_FOUND;
}

exo_status
exo_slot_copy(const exo_segment *segment, uint32_t slot, uint32_t generation, uint64_t word,
              void *out)
{
    exo_status st = exo_slot_check(segment, slot, generation, word);
    if (st != EXO_OK)
        return st;
    memcpy(out, exo_segment_slot(segment, slot), size_of(word));
    /* a reader that saw a byte of a later object also sees the end of this generation */
    atomic_thread_fence(memory_order_acquire);
    return exo_slot_check(segment, slot, generation, word);
}

exo_status
exo_slot_borrow(const exo_segment *segment, uint32_t slot, uint32_t generation, uint64_t word)
{
    exo_status st = exo_slot_check(segment, slot, generation, word);
    if (st != EXO_OK)
        return st;
    if (set_lock(segment, slot, F_RDLCK) != 0)
        return EXO_FULL;
    /* Checks again: either the generation is still this one, and then the owner finds the lock when
     * it wants the slot, or the generation has ended. The fences guarantee one of the two, because
     * the kernel may look for locks without taking a lock of its own. */
    atomic_thread_fence(memory_order_seq_cst);
    st = exo_slot_check(segment, slot, generation, word);
    if (st != EXO_OK)
        exo_slot_give_back(segment, slot);
    return st;
}

void
exo_slot_give_back(const exo_segment *segment, uint32_t slot)
{
    set_lock(segment, slot, F_UNLCK);
}

uint32_t
exo_slot_borrowers(const exo_segment *segment, uint32_t slot)
{
    uint32_t others = count_locks(segment, first_lock(slot), first_lock(slot + 1), MOST_COUNTED);
    /* the kernel does not report a process's own locks */
    return others + (segment->foreign ? 1 : 0);
}
