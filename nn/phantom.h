/* Phantom memory: addresses for any number of bytes that all lie on the same pages, of which there
 * are only those that were touched, so that a pass over a model can be rehearsed on a machine that
 * has no room for it. It may be read and written; what is written comes up elsewhere too. */
#ifndef EXO_NN_PHANTOM_H
#define EXO_NN_PHANTOM_H

#include <stddef.h>

/* NULL: no address space, or the system has no anonymous files. */
void *exo_phantom_new(size_t bytes);
void exo_phantom_free(void *memory, size_t bytes);

#endif
