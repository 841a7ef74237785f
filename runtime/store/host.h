/* Limits that this machine, container or login sets for a process. No state; any thread. */
#ifndef EXO_STORE_HOST_H
#define EXO_STORE_HOST_H

#include <stdint.h>

/* Bytes of memory: the least of the machine's memory and the limits of this process's control group
 * and the groups above it, in either version of control groups. 0: unknown. */
uint64_t exo_memory_limit(void);
/* The same, for tests: `groups` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup, `machine` the machine's bytes. */
uint64_t exo_memory_limit_in(const char *groups, const char *root, uint64_t machine);

/* Raises the soft limit of open descriptors to the hard one, if permitted. */
void exo_raise_descriptor_limit(void);

#endif
