/* Memory that processes share by a descriptor: made, and looked at before it is believed. No state;
 * any thread.
 *
 * A memfd has no name; it goes with its last descriptor and mapping. Its size is sealed before
 * anybody else hears of it: a mapping of a file that another process can cut is a SIGBUS that
 * waits. */
#ifndef EXO_BASE_MEMFD_H
#define EXO_BASE_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* F_SEAL_SHRINK and F_SEAL_GROW: what every shared file must have. */
#define EXO_MEMFD_FIXED (0x0002 | 0x0004)
/* F_SEAL_FUTURE_WRITE (Linux 5.1): only mappings that were there before can be written through. */
#define EXO_MEMFD_READ_ONLY 0x0010

/* A new file of `size` bytes, which nobody can execute and that is closed by exec. No pages yet.
 * -1, with errno. */
int exo_memfd_new(const char *name, size_t size);
/* Allocates its pages from..to: a write never finds that there are none. False, with errno. */
bool exo_memfd_reserve(int fd, size_t from, size_t to);
/* Are all its pages there? To read one that is not allocates it: a few bytes could make a reader
 * take any amount of memory. */
bool exo_memfd_is_there(int fd, uint64_t size);
/* Adds the seals, and that no others are added. False, with errno. */
bool exo_memfd_seal(int fd, int seals);
/* The device that every memfd of small pages lies on, and nothing else; 0, with errno, if it cannot
 * be told. */
dev_t exo_memfd_device(void);
/* Is a descriptor that came from elsewhere a file of small pages in memory that has these seals?
 * Then *size never changes. A file of huge pages, or on a disk, can fault when it is read. */
bool exo_memfd_is(int fd, int seals, uint64_t *size);

#endif
