/* The operations of the large-vocabulary head that likelihood.c calls. No state. Read next:
 * vocabulary.c. */
#ifndef EXO_OPS_VOCABULARY_H
#define EXO_OPS_VOCABULARY_H

#include <exogym/tensor.h>

/* exo_entropy of the logits scale x weight^T. Only a part of the logits is in memory at a time.
 * x (R, W), weight (V, W) -> (R). NULL: recorded in the tape. */
exo_tensor *exo_linear_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float scale);

#endif
