/* Memory: the one door to the allocator, so that a test can close it (fail the n-th allocation).
 *
 * What the library hands to a caller as plain memory is freed with exo_free. Everything is zeroed.
 * Any thread.
 */
#ifndef EXOGYM_MEMORY_H
#define EXOGYM_MEMORY_H

#include <stddef.h>

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* count * size zeroed bytes, or NULL (no memory, or the product overflows). */
EXO_API void *exo_calloc(size_t count, size_t size);
/* Grows or shrinks; what is new is not zeroed. NULL leaves `memory` as it was. */
EXO_API void *exo_realloc(void *memory, size_t count, size_t size);
/* Zeroed memory aligned to 64 bytes, for buffers that kernels read; from 2 MiB on, aligned to and
 * advised as huge pages. */
EXO_API void *exo_alloc_aligned(size_t bytes);
/* What that takes: `bytes` rounded up. SIZE_MAX: more than there can be. */
EXO_API size_t exo_aligned_size(size_t bytes);
/* A copy of `text`, or NULL: no memory. */
EXO_API char *exo_strdup(const char *text);
/* Frees what any of the above gave; NULL is fine. */
EXO_API void exo_free(void *memory);

EXO_DECLS_END

#endif
