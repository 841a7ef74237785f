/* Phantom memory: one small anonymous file, mapped again and again. See phantom.h. */
#include "phantom.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SPAN = 2 << 20
};

static size_t
spans(size_t bytes)
{
    return bytes / SPAN + 1;
}

/* The file, made at first use; -1: none. */
static int
phantom_file(void)
{
    static atomic_int shared = -1;
    int file = atomic_load(&shared);
    if (file >= 0)
        return file;
    file = memfd_create("exogym-phantom", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, SPAN) != 0) {
        close(file);
        return -1;
    }
    int expected = -1;
    if (file >= 0 && !atomic_compare_exchange_strong(&shared, &expected, file)) {
        close(file);
        file = expected;
    }
    return file;
}

void *
exo_phantom_new(size_t bytes)
{
    int file = phantom_file();
    size_t count = spans(bytes);
    if (file < 0 || count > (size_t)PTRDIFF_MAX / SPAN)
        return NULL;
    char *memory = mmap(NULL, count * SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (mmap(memory + i * SPAN, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
            munmap(memory, count * SPAN);
            return NULL;
        }
    return memory;
}

void
exo_phantom_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, spans(bytes) * SPAN);
}
