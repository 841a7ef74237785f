/* A pool of tapes: see tape_pool.h. A place holds an idle tape or NULL; taking and giving are
 * single atomic exchanges. */
#include "actors/tape_pool.h"

exo_status
exo_tape_pool_take(exo_tape_pool *pool, exo_tape **out, exo_err *err)
{
    for (size_t i = 0; i < EXO_TAPE_POOL_PLACES; i++) {
        exo_tape *tape = atomic_exchange(&pool->places[i], NULL);
        if (tape) {
            *out = tape;
            return EXO_OK;
        }
    }
    return pool->rehearses ? exo_tape_new_rehearsal(out, err) : exo_tape_new(out, err);
}

void
exo_tape_pool_give(exo_tape_pool *pool, exo_tape **tape)
{
    for (size_t i = 0; *tape && i < EXO_TAPE_POOL_PLACES; i++) {
        exo_tape *expected = NULL;
        if (atomic_compare_exchange_strong(&pool->places[i], &expected, *tape))
            *tape = NULL;
    }
    exo_tape_free(tape);
}

void
exo_tape_pool_release(exo_tape_pool *pool)
{
    for (size_t i = 0; i < EXO_TAPE_POOL_PLACES; i++) {
        exo_tape *tape = atomic_exchange(&pool->places[i], NULL);
        exo_tape_free(&tape);
    }
}
