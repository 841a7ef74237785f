/* The operations of the large-vocabulary head that likelihood.c and nn/parallel call. No state. Read next:
 * vocabulary.c. */
#ifndef EXO_OPS_VOCABULARY_H
#define EXO_OPS_VOCABULARY_H

#include <exogym/tensor.h>

/* The part of a vocabulary that this member of a group has. */
typedef struct exo_vocabulary_part {
    size_t first, vocabulary; /* its first element; the size of the whole */
    uint32_t rank, members;
    /* Gathers `count` elements in place: member r brings the r-th of `members` equal shards. */
    exo_status (*gather)(void *context, exo_tape *tape, float *all, size_t count, exo_err *err);
    void *context;
} exo_vocabulary_part;

/* exo_entropy of the logits scale x weight^T. Only a part of the logits is in memory at a time.
 * x (R, W), weight (V, W) -> (R). NULL: recorded in the tape. */
exo_tensor *exo_linear_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float scale);
/* exo_linear_cross_entropy over the whole vocabulary. weight (V_r, W): the part's rows. x's gradient
 * is the part's share of it. NULL: recorded in the tape. */
exo_tensor *exo_part_cross_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight,
                                   exo_tensor *targets, const exo_vocabulary_part *part);

#endif
