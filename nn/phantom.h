/* Phantom memory: any number of bytes of address space over the same few pages. With it a pass over
 * a model is rehearsed on a machine that has no room for the model.
 *
 * It may be read and written, but what is written at one address appears at others too. Only
 * touched pages take memory. Read next: phantom.c; rehearsal.c. */
#ifndef EXO_NN_PHANTOM_H
#define EXO_NN_PHANTOM_H

#include <stddef.h>

/* Maps `bytes` of phantom memory; exo_phantom_free() unmaps them. NULL: no address space, or the
 * system has no anonymous files. Any thread. */
void *exo_phantom_new(size_t bytes);
void exo_phantom_free(void *memory, size_t bytes);

#endif
