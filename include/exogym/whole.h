/* The state of a model's training as one whole: parameters and moments of the optimizer in the order
 * of the flat parameters, in host memory. Checkpoints of nodes that have shards are converted through
 * it to other numbers of nodes.
 *
 * One thread at a time.
 */
#ifndef EXOGYM_WHOLE_H
#define EXOGYM_WHOLE_H

#include <exogym/optim.h>

EXO_DECLS_BEGIN

/* The whole state. Its members may be read; the functions below write them. */
typedef struct exo_whole {
    size_t numel;  /* Psi */
    float *params; /* (numel) owned */
    /* (numel) each, owned; NULL: the optimizer has no such moment */
    float *moments[EXO_OPTIM_MOMENTS];
    const char *moment_names[EXO_OPTIM_MOMENTS]; /* exo_optim_moment_name; NULL where moments is */
    uint64_t steps;                              /* of the optimizer */
    bool begun;                                  /* something was put */
} exo_whole;

/* Makes the whole of `numel` parameters, all zero, without moments. The caller releases it. NOMEM. */
EXO_API exo_status exo_whole_init(exo_whole *out, size_t numel, exo_err *err);
/* Frees the memory; accepts a struct that is all zero. */
EXO_API void exo_whole_release(exo_whole *whole);
/* Puts the elements [first, first + params.count) and their optimizer. Errors: INVAL (the elements are
 * not in the whole, or the optimizer has another number of steps than those before), NOMEM, the
 * device's. */
EXO_API exo_status exo_whole_put(exo_whole *whole, size_t first, exo_array params,
                                 const exo_optim *optim, exo_err *err);
/* Gets these elements, and the state of their optimizer, from the whole. Errors: INVAL (the elements
 * are not in the whole, or the optimizer has other moments, also by their names), the device's. */
EXO_API exo_status exo_whole_get(const exo_whole *whole, size_t first, exo_array params,
                                 exo_optim *optim, exo_err *err);

EXO_DECLS_END

#endif
