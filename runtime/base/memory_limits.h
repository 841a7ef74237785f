/* The memory that this process may take, as the kernel says: the machine's, and that of the control
 * groups (version 1 or 2) that hold the process. No state; any thread. */
#ifndef EXO_BASE_MEMORY_LIMITS_H
#define EXO_BASE_MEMORY_LIMITS_H

#include <stdint.h>

#include <exogym/status.h>

/* What one control group and the groups above it say. */
typedef struct exo_memory_group {
    uint64_t limit; /* the least limit, in bytes; UINT64_MAX: none */
    uint64_t room;  /* the least rest of a limit, files that can be dropped not counted as used;
                             UINT64_MAX: no limit */
    long long oom_kills; /* processes of the group that the kernel killed for want of memory;
                             -1: unknown */
} exo_memory_group;

/* The control groups of this process. */
exo_memory_group exo_memory_group_read(void);
/* The same, for tests: `groups` is a file like /proc/self/cgroup, `root` a folder like
 * /sys/fs/cgroup. */
exo_memory_group exo_memory_group_read_in(const char *groups, const char *root);

/* Bytes of memory: the machine's, or the control groups' limit if that is less. 0: unknown. */
uint64_t exo_memory_limit(void);
/* The bytes that this process can still get, to refuse a large allocation before the kernel kills a
 * process for it. 0: unknown. */
uint64_t exo_free_memory(void);
/* Checks a large allocation whose size another user's file determines. NOMEM if `bytes` are more
 * than the free memory; the text begins with `what` ("the model's 5 parameters"). */
exo_status exo_memory_expect(uint64_t bytes, const char *what, exo_err *err);

#endif
