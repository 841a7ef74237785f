/* Phantom memory: one anonymous file, mapped as often as needed. The file is sparse, and
 * rehearsals touch little of it. State: the file, which the process keeps open. Read next:
 * phantom.h. */
#include "nn/phantom.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file's size. A process can have some ten thousand mappings. */
#define SPAN ((size_t)64 << 20)

static size_t
spans(size_t bytes)
{
    return bytes / SPAN + 1;
}

/* The file, made at the first use. -1: it cannot be made. */
static int
phantom_file(void)
{
    static atomic_int shared = -1;
    int file = atomic_load(&shared);
    if (file >= 0)
        return file;
    file = memfd_create("exogym-phantom", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)SPAN) != 0) {
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

static size_t
span_length(size_t bytes, size_t index)
{
    size_t left = bytes - index * SPAN;
    return left < SPAN ? left : SPAN;
}

void *
exo_phantom_new(size_t bytes)
{
    int file = phantom_file();
    if (file < 0 || bytes > (size_t)PTRDIFF_MAX - SPAN)
        return NULL;
    size_t length = bytes ? bytes : 1;
    char *memory =
        mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    for (size_t i = 0; i < spans(length - 1); i++)
        if (mmap(memory + i * SPAN, span_length(length, i), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0) == MAP_FAILED) {
            munmap(memory, length);
            return NULL;
        }
    return memory;
}

void
exo_phantom_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes ? bytes : 1);
}
