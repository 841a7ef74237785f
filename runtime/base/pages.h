/* Memory at an address that stays while the memory comes and goes. Any thread; an address belongs to one at a time. Counted with the allocations
 * of memory.c, so that tests fail it. */
#ifndef EXO_BASE_PAGES_H
#define EXO_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Addresses for `bytes`, without memory: who reads or writes there is ended. Aligned to a page, or from 2 MiB on advised as huge pages. NULL: no
 * addresses. */
void *exo_pages_reserve(size_t bytes);
/* Puts memory there: zeros. False: there is none. */
bool exo_pages_open(void *pages, size_t bytes);
/* Takes it away. */
void exo_pages_close(void *pages, size_t bytes);
/* Gives the addresses back; accepts NULL. */
void exo_pages_free(void *pages, size_t bytes);

#endif
