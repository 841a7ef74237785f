/* Phantom memory: addresses for any number of bytes that all lie on the same 2 MiB, so that a pass over the largest model can be rehearsed on
 * the smallest machine. It may be read and written; what is written comes up anywhere else. */
#ifndef EXO_NN_PHANTOM_H
#define EXO_NN_PHANTOM_H

#include <stddef.h>

/* NULL: no address space, or the system has no anonymous files. */
void *exo_phantom_new(size_t bytes);
void exo_phantom_free(void *memory, size_t bytes);

#endif
