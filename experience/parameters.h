/* Parameters: an item with a version of a model's learned parameters, from a trainer to its makers.
 * It also says how far makers may go: draws below the quota are theirs. So the trainer paces them,
 * and no experience is older than it allows.
 *
 * Pure functions over the caller's memory, any thread. Read next: trainer.c, maker.c. */
#ifndef EXO_PARAMETERS_H
#define EXO_PARAMETERS_H

#include <exogym/graph.h>

typedef struct exo_parameters {
    uint64_t version, quota;
    size_t numel;
    const float *values; /* (numel) */
    const char *sha256;  /* (64) of the values as the trainer has them; no NUL */
} exo_parameters;

/* Makes an item, which the caller drops. NOMEM. */
exo_status exo_parameters_new(exo_item **out, const exo_parameters *parameters, exo_err *err);
/* Views an item for a model of `numel` parameters without a copy. INVAL: it is for another model, or
 * is no such item; DAMAGED: the values do not have the hash, because they were altered on the way,
 * or rounded by a codec of the edge. */
exo_status exo_parameters_view(exo_parameters *out, const exo_item *item, size_t numel,
                               exo_err *err);

#endif
