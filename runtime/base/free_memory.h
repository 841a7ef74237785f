/* What memory there is left, to refuse what would not fit before the system ends a process for it. */
#ifndef EXO_BASE_FREE_MEMORY_H
#define EXO_BASE_FREE_MEMORY_H

#include <stdint.h>

/* Bytes that this process could still get: the machine's, or its control group's if that is less. 0: unknown. Any thread. */
uint64_t exo_free_memory(void);

#endif
