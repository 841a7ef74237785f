/* A pool of tapes. A node takes a tape for a forward and backward pass and gives it back, so
 * activations need memory for the passes that run at once, not for all nodes. Lock-free; any
 * thread. */
#ifndef EXO_TAPE_POOL_H
#define EXO_TAPE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>

#include <exogym/tensor.h>

enum {
    EXO_TAPE_POOL_PLACES = 64
};

typedef struct exo_tape_pool {
    _Atomic(exo_tape *) places[EXO_TAPE_POOL_PLACES]; /* idle tapes */
    bool rehearses; /* its tapes are for rehearsals; set before the first is taken */
} exo_tape_pool;

/* Takes an idle tape, or makes one. NOMEM. */
exo_status exo_tape_pool_take(exo_tape_pool *pool, exo_tape **out, exo_err *err);
/* Gives a tape back and sets *tape to NULL; accepts NULL in it. A tape that finds no place is
 * freed. */
void exo_tape_pool_give(exo_tape_pool *pool, exo_tape **tape);
/* Frees the idle tapes. Every tape must have been given back. */
void exo_tape_pool_release(exo_tape_pool *pool);

#endif
