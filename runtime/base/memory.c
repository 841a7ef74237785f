/* All allocation passes through this file, and all requests for pages. Any thread; the counter is
 * atomic. */
#include "base/memory_fault.h"
#include "base/pages.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t allocations;
static _Atomic uint64_t fail_at;
static void (*_Atomic instead)(void);

static int
allocation_fails(void)
{
    uint64_t n = ++allocations;
    uint64_t target = fail_at;
    if (target == 0 || n != target)
        return 0;
    fail_at = 0;
    void (*hook)(void) = instead;
    if (!hook)
        return 1;
    instead = NULL;
    hook();
    return 0;
}

void
exo_memory_fail_at(uint64_t n)
{
    instead = NULL;
    fail_at = n == 0 ? 0 : allocations + n;
}

void
exo_memory_call_at(uint64_t n, void (*hook)(void))
{
    instead = hook;
    fail_at = n == 0 ? 0 : allocations + n;
}

uint64_t
exo_memory_allocations(void)
{
    return allocations;
}

void *
exo_calloc(size_t count, size_t size)
{
    if (allocation_fails())
        return NULL;
    return calloc(count ? count : 1, size ? size : 1);
}

void *
exo_realloc(void *memory, size_t count, size_t size)
{
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes) || allocation_fails())
        return NULL;
    return realloc(memory, bytes ? bytes : 1);
}

#define HUGE_PAGE ((size_t)2 << 20)
/* From this size on the C library maps every block anew, and its pages are zero (M_MMAP_THRESHOLD). */
#define LARGE ((size_t)64 << 20)

static _Thread_local bool leaves_large;

void
exo_memory_leave_large(bool on)
{
    leaves_large = on;
}

static size_t
alignment_of(size_t bytes)
{
    return bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
}

size_t
exo_aligned_size(size_t bytes)
{
    size_t alignment = alignment_of(bytes);
    if (bytes > SIZE_MAX - alignment)
        return SIZE_MAX;
    return bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
}

void *
exo_alloc_aligned(size_t bytes)
{
    size_t alignment = alignment_of(bytes), rounded = exo_aligned_size(bytes);
    if (rounded == SIZE_MAX || allocation_fails())
        return NULL;
    void *memory = aligned_alloc(alignment, rounded);
    if (!memory)
        return NULL;
    if (leaves_large && rounded >= LARGE)
        return memory;
    if (alignment == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* a hint: its failure costs only speed */
    memset(memory, 0, rounded);
    return memory;
}

char *
exo_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = exo_calloc(size, 1);
    if (copy) {
        memcpy(copy, text, size);
        /* another thread may have changed the text since strlen */
        copy[size - 1] = 0;
    }
    return copy;
}

void
exo_free(void *memory)
{
    free(memory);
}

/* --- Pages ------------------------------------------------------------------------------------ */

void *
exo_pages_reserve(size_t bytes)
{
    if (bytes > PTRDIFF_MAX || allocation_fails())
        return NULL;
    size_t length = bytes ? bytes : 1;
    void *pages = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    if (length >= HUGE_PAGE)
        madvise(pages, length, MADV_HUGEPAGE); /* a hint, as above */
    return pages;
}

bool
exo_pages_open(void *pages, size_t bytes)
{
    return !allocation_fails() && mprotect(pages, bytes ? bytes : 1, PROT_READ | PROT_WRITE) == 0;
}

void
exo_pages_close(void *pages, size_t bytes)
{
    size_t length = bytes ? bytes : 1;
    madvise(pages, length, MADV_DONTNEED);
    mprotect(pages, length, PROT_NONE);
}

void
exo_pages_free(void *pages, size_t bytes)
{
    if (pages)
        munmap(pages, bytes ? bytes : 1);
}

/* One at a time: where another allocator serves the process (a sanitizer's, jemalloc), the first call
 * of malloc_trim sets up glibc's own, and a second one beside it reads what is not there yet. */
void
exo_pages_trim(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    malloc_trim(0);
    pthread_mutex_unlock(&lock);
}
