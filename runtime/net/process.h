/* Processes of this host: what identifies one beyond its number, and being told of its end. */
#ifndef EXO_NET_PROCESS_H
#define EXO_NET_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EXO_BOOT_ID = 64
};

/* Identity of the running kernel and of the namespace of process numbers: equal for processes that
 * can see each other. Tests give processes different ones with EXOGYM_HOST_ID, as if they were on
 * different hosts. */
void exo_boot_id(char out[EXO_BOOT_ID]);
/* When process `pid` started, in clock ticks since boot; 0 if there is none. */
uint64_t exo_process_start(uint32_t pid);
/* Who started it; 0: it has ended. */
uint32_t exo_process_parent(uint32_t pid);
/* A descriptor that becomes readable when the process ends; -1 if it is gone, is another by now, or
 * cannot be watched. */
int exo_process_watch(uint32_t pid, uint64_t start);

#endif
