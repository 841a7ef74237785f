/* What this machine, container or login lets a process have. No state; any thread. */
#ifndef EXO_STORE_HOST_H
#define EXO_STORE_HOST_H

#include <stdint.h>

/* Bytes of memory: the machine's, or the limit of this process's control group or one above it,
 * whichever is least. Both versions of control groups. 0 if nothing says. */
uint64_t exo_memory_limit(void);
/* The same for a test: `groups` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup. */
uint64_t exo_memory_limit_in(const char *groups, const char *root, uint64_t machine);

/* Raises the soft limit of open descriptors to the hard one, if it may. */
void exo_raise_descriptor_limit(void);

#endif
