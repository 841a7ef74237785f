/* Memory: the library's only access to the allocator, so that a test can fail the n-th allocation.
 *
 * Plain memory that the library hands to a caller is freed with exo_free. Allocated memory is
 * zeroed, except where exo_realloc grows it. Any thread.
 */
#ifndef EXOGYM_MEMORY_H
#define EXOGYM_MEMORY_H

#include <stddef.h>

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* Allocates count * size zeroed bytes. NULL: no memory, or the product overflows. */
EXO_API void *exo_calloc(size_t count, size_t size);
/* Resizes `memory` to count * size bytes; added bytes are not zeroed. NULL: `memory` is
 * unchanged. */
EXO_API void *exo_realloc(void *memory, size_t count, size_t size);
/* Allocates zeroed memory, aligned to 64 bytes, for buffers that kernels read. From 2 MiB on it is
 * aligned to huge pages and advised as such. */
EXO_API void *exo_alloc_aligned(size_t bytes);
/* The size of such an allocation: `bytes` rounded up. SIZE_MAX: larger than any memory. */
EXO_API size_t exo_aligned_size(size_t bytes);
/* Copies `text`. NULL: no memory. */
EXO_API char *exo_strdup(const char *text);
/* Frees memory of the functions above; accepts NULL. */
EXO_API void exo_free(void *memory);

EXO_DECLS_END

#endif
