/* Fault injection for tests: fails a chosen allocation, or calls a hook at it. Not thread-safe; for
 * tests with one thread. */
#ifndef EXO_BASE_MEMORY_FAULT_H
#define EXO_BASE_MEMORY_FAULT_H

#include <stdint.h>

#include <exogym/memory.h>

/* Makes the n-th allocation from now on (1 is the next) fail, once. 0: all succeed. */
void exo_memory_fail_at(uint64_t n);
/* Makes the n-th allocation from now on call `hook`, once, and succeed. For changes at that
 * moment. */
void exo_memory_call_at(uint64_t n, void (*hook)(void));
/* The number of allocations since the process started. */
uint64_t exo_memory_allocations(void);

#endif
