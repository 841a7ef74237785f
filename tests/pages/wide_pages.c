/* A machine with pages of 64 KiB, as some of ARM have: a library for LD_PRELOAD that gives a program such
 * pages, and refuses what their kernel refuses. Mappings of libraries stay as they are.
 *
 *   LD_PRELOAD=build/dev/tests/wide_pages.so build/dev/tests/test_unit_ring
 *
 * No state. */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    PAGE = 64 << 10
};

/* Whether the program has called, and no library: Criterion's maps pages of its own. */
static bool
is_program(const void *caller)
{
    Dl_info program, from;
    return dladdr((void *)getauxval(AT_ENTRY), &program) && dladdr(caller, &from) &&
           program.dli_fbase == from.dli_fbase;
}
#define OURS is_program(__builtin_return_address(0))

static size_t
whole(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static bool
is_page(const void *at)
{
    return (uintptr_t)at % PAGE == 0;
}

static void *
refused(void)
{
    errno = EINVAL;
    return MAP_FAILED;
}

static void *
map(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, from);
}

/* Addresses for whole pages, of which the first one begins at a multiple of its size. */
static char *
reserve(size_t bytes)
{
    char *room =
        map(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (PAGE - (uintptr_t)room % PAGE) % PAGE;
    if (before > 0)
        syscall(SYS_munmap, room, before);
    if (before < PAGE)
        syscall(SYS_munmap, room + before + bytes, PAGE - before);
    return room + before;
}

static void *
map_wide(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    const bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    if (from % PAGE != 0 || bytes == 0 || (fixed && !is_page(at)))
        return refused();
    if (flags & MAP_ANONYMOUS)
        bytes = whole(bytes);
    if (fixed)
        return map(at, bytes, protection, flags, fd, from);
    char *room = reserve(whole(bytes));
    if (room == MAP_FAILED)
        return room;
    void *got = map(room, bytes, protection, flags | MAP_FIXED, fd, from);
    if (got == MAP_FAILED) {
        int number = errno;
        syscall(SYS_munmap, room, whole(bytes));
        errno = number;
    }
    return got;
}

EXPORT void *
mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    return OURS ? map_wide(at, bytes, protection, flags, fd, from)
                : map(at, bytes, protection, flags, fd, from);
}

EXPORT int
munmap(void *at, size_t bytes)
{
    const bool ours = OURS;
    if (ours && (!is_page(at) || bytes == 0)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_munmap, at, ours ? whole(bytes) : bytes);
}

EXPORT int
mprotect(void *at, size_t bytes, int protection)
{
    const bool ours = OURS;
    if (ours && !is_page(at)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_mprotect, at, ours ? whole(bytes) : bytes, protection);
}

EXPORT int
madvise(void *at, size_t bytes, int advice)
{
    if (OURS && !is_page(at)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

EXPORT void *
mremap(void *at, size_t bytes, size_t size, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    const bool ours = OURS;
    if (ours && (!is_page(at) || !is_page(to)))
        return refused();
    return (void *)syscall(SYS_mremap, at, ours ? whole(bytes) : bytes, ours ? whole(size) : size,
                           flags, to);
}

EXPORT long
sysconf(int name)
{
    long (*real)(int) = (long (*)(int))(uintptr_t)dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE && OURS ? PAGE : real(name);
}
