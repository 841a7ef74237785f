/* Processes of this host: their identity beyond a process number, and a report of their end. No
 * state; any thread. */
#ifndef EXO_NET_PROCESS_H
#define EXO_NET_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/boot.h"

/* Reads the start time of process `pid`, in clock ticks since boot; *start is 0 if there is no such
 * process. False, with errno: it cannot be read now, for example because no descriptor is left. */
bool exo_process_look(uint32_t pid, uint64_t *start);
/* The start time; 0: there is no such process, or it cannot be read now. */
uint64_t exo_process_start(uint32_t pid);
/* True: the process with that number and start time has certainly ended. */
bool exo_process_has_ended(uint32_t pid, uint64_t start);
/* The process's parent; 0: the process has ended, or it cannot be read now. */
uint32_t exo_process_parent(uint32_t pid);
/* Whether the process runs as this process's user. False also if that cannot be read now. */
bool exo_process_is_own(uint32_t pid);
/* Gives a descriptor that becomes readable when the process ends; the caller closes it. -1: the
 * process has ended, the number is another's by now, or it cannot be watched. */
int exo_process_watch(uint32_t pid, uint64_t start);

#endif
