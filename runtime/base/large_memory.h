/* Large arrays that nobody will write. Read next: exogym/memory.h. */
#ifndef EXO_BASE_LARGE_MEMORY_H
#define EXO_BASE_LARGE_MEMORY_H

#include <stdbool.h>

/* With `on`, exo_alloc_aligned does not write to the large arrays of the calling thread, so they take
 * addresses and no memory until they are written. A rehearsal makes the arrays of a model that would
 * not fit. */
void exo_memory_leave_large(bool on);

#endif
