/* The test side of the allocator: fails a chosen allocation, or lets something else happen at it.
 * Not thread-safe; for tests with one thread. */
#ifndef EXO_BASE_MEMORY_FAULT_H
#define EXO_BASE_MEMORY_FAULT_H

#include <stdint.h>

#include <exogym/memory.h>

/* The n-th allocation from now on (1 is the next) fails, once; 0 lets all of them succeed. */
void exo_memory_fail_at(uint64_t n);
/* The n-th allocation from now on calls `hook`, once, and succeeds: something changes at that
 * moment. */
void exo_memory_call_at(uint64_t n, void (*hook)(void));
/* Allocations asked for since the process started. */
uint64_t exo_memory_allocations(void);

#endif
