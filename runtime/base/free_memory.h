/* What memory there is left, to refuse what would not fit before the system ends a process for
 * it. */
#ifndef EXO_BASE_FREE_MEMORY_H
#define EXO_BASE_FREE_MEMORY_H

#include <stdint.h>

#include <exogym/status.h>

/* Bytes that this process could still get: the machine's, or its control group's if that is less.
 * 0: unknown. Any thread. */
uint64_t exo_free_memory(void);
/* To be asked before much is allocated that somebody else's file speaks of. NOMEM: `bytes` are more
 * than there are; the text begins with `what` ("the model's 5 parameters"). */
exo_status exo_memory_expect(uint64_t bytes, const char *what, exo_err *err);

#endif
