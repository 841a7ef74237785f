/* A pool of tapes: nodes take one for a forward and backward pass and give it back, so that N nodes need the activations'
 * memory of those that compute at once, not of all. Lock-free; any thread. */
#ifndef EXO_TAPE_POOL_H
#define EXO_TAPE_POOL_H

#include <stdatomic.h>

#include <exogym/tensor.h>

enum {
    EXO_TAPE_POOL_PLACES = 64
};

typedef struct exo_tape_pool {
    _Atomic(exo_tape *) places[EXO_TAPE_POOL_PLACES]; /* idle tapes */
} exo_tape_pool;

/* An idle tape, or a new one. */
exo_status exo_tape_pool_take(exo_tape_pool *pool, exo_tape **out, exo_err *err);
/* Gives a tape back; clears *tape. A tape for which there is no place is freed. */
void exo_tape_pool_give(exo_tape_pool *pool, exo_tape **tape);
/* Frees the idle tapes; none may be out. */
void exo_tape_pool_release(exo_tape_pool *pool);

#endif
