/* What the head over a large vocabulary (vocabulary.c) offers to other operations. */
#ifndef EXO_OPS_VOCABULARY_H
#define EXO_OPS_VOCABULARY_H

#include <exogym/tensor.h>

/* exo_entropy of the logits scale x weight^T, a piece of them at a time. x (R, W), weight (V, W) ->
 * (R). */
exo_tensor *exo_linear_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float scale);

#endif
