/* Free memory, to refuse a large allocation before the system kills a process for it. No state. */
#ifndef EXO_BASE_FREE_MEMORY_H
#define EXO_BASE_FREE_MEMORY_H

#include <stdint.h>

#include <exogym/status.h>

/* The bytes that this process can still get: the machine's, or its control group's if they are
 * fewer. 0: unknown. Any thread. */
uint64_t exo_free_memory(void);
/* Checks a large allocation whose size another user's file determines. NOMEM if `bytes` are more
 * than the free memory; the text begins with `what` ("the model's 5 parameters"). */
exo_status exo_memory_expect(uint64_t bytes, const char *what, exo_err *err);

#endif
