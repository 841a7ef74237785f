/* Memory that comes and goes at a fixed address, and memory that goes back to the system. Any thread;
 * one thread at a time for each address. memory.c counts requests as allocations, so that tests can
 * make them fail. */
#ifndef EXO_BASE_PAGES_H
#define EXO_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Reserves addresses for `bytes`, without memory: an access raises SIGSEGV. They are aligned to a
 * page; from 2 MiB on they are advised to be huge pages. NULL: no addresses. */
void *exo_pages_reserve(size_t bytes);
/* Gives the addresses memory, all zero. False: there is no memory. */
bool exo_pages_open(void *pages, size_t bytes);
/* Gives the memory back to the system. */
void exo_pages_close(void *pages, size_t bytes);
/* Frees the addresses; accepts NULL. */
void exo_pages_free(void *pages, size_t bytes);
/* Gives freed memory of all allocations back to the system, as far as whole pages are free. */
void exo_pages_trim(void);

#endif
