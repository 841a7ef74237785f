/* Memory that processes share by a descriptor. This file makes it, and checks such memory of other
 * processes before it is used. No state; any thread.
 *
 * A memfd has no name and disappears with its last descriptor and mapping. Its size is sealed
 * before other processes get it: mapping a file that another process can shrink risks SIGBUS. */
#ifndef EXO_BASE_MEMFD_H
#define EXO_BASE_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* F_SEAL_SHRINK and F_SEAL_GROW: required of every shared file. */
#define EXO_MEMFD_FIXED (0x0002 | 0x0004)
/* F_SEAL_FUTURE_WRITE (Linux 5.1): only earlier mappings stay writable. */
#define EXO_MEMFD_READ_ONLY 0x0010

/* Makes a file of `size` bytes, without pages yet, that cannot be executed and that exec closes.
 * -1, with errno. */
int exo_memfd_new(const char *name, size_t size);
/* Allocates the pages of the bytes from..to, so that a write never lacks memory. False, with
 * errno. */
bool exo_memfd_reserve(int fd, size_t from, size_t to);
/* Whether all pages of the file are allocated. Reading a missing page allocates it: with a tiny
 * file of a large size, a peer could make the reader take any amount of memory. */
bool exo_memfd_is_there(int fd, uint64_t size);
/* Adds the seals, and F_SEAL_SEAL against further ones. False, with errno. */
bool exo_memfd_seal(int fd, int seals);
/* The device of all memfds with small pages, and of nothing else; 0, with errno: it cannot be
 * determined. */
dev_t exo_memfd_device(void);
/* Whether a descriptor of another process is a file of small pages in memory with these seals; then
 * *size never changes. Reading a file of huge pages, or on a disk, could fault. */
bool exo_memfd_is(int fd, int seals, uint64_t *size);

#endif
