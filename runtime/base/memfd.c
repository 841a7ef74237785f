/* Memory behind descriptors: see memfd.h. The device's number is cached. */
#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
/* Linux 6.3; earlier kernels return EINVAL */
#define MFD_NOEXEC_SEAL 0x0008U
#endif

_Static_assert(EXO_MEMFD_FIXED == (F_SEAL_SHRINK | F_SEAL_GROW), "the kernel's numbers");

enum {
    PIECE = 2 << 20 /* bytes; a signal undoes only the interrupted piece */
};

static int
make(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    return fd < 0 && errno == EINVAL ? memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING) : fd;
}

int
exo_memfd_new(const char *name, size_t size)
{
    int fd = make(name);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        int number = errno;
        close(fd);
        errno = number;
        fd = -1;
    }
    return fd;
}

bool
exo_memfd_reserve(int fd, size_t from, size_t to)
{
    while (from < to) {
        size_t piece = to - from < PIECE ? to - from : PIECE;
        if (fallocate(fd, 0, (off_t)from, (off_t)piece) == 0)
            from += piece;
        else if (errno != EINTR)
            return false;
    }
    return true;
}

bool
exo_memfd_is_there(int fd, uint64_t size)
{
    struct stat info;
    return fstat(fd, &info) == 0 && (uint64_t)info.st_blocks >= size / 512;
}

bool
exo_memfd_seal(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals | F_SEAL_SEAL) == 0;
}

dev_t
exo_memfd_device(void)
{
    static _Atomic dev_t known;
    struct stat info;
    dev_t device = atomic_load_explicit(&known, memory_order_relaxed);
    if (device)
        return device;
    int fd = make("exogym");
    if (fd < 0)
        return 0;
    device = fstat(fd, &info) == 0 ? info.st_dev : 0;
    close(fd);
    atomic_store_explicit(&known, device, memory_order_relaxed);
    return device;
}

bool
exo_memfd_is(int fd, int seals, uint64_t *size)
{
    struct stat info;
    dev_t device = exo_memfd_device();
    int has = fcntl(fd, F_GET_SEALS);
    if (!device || has < 0 || (has & seals) != seals)
        return false;
    if (fstat(fd, &info) != 0 || info.st_dev != device || !S_ISREG(info.st_mode) ||
        info.st_size < 0)
        return false;
    *size = (uint64_t)info.st_size;
    return true;
}
