/* A part of a table of embeddings, for nn/parallel. No state. Read next: embedding.c. */
#ifndef EXO_OPS_EMBEDDING_H
#define EXO_OPS_EMBEDDING_H

#include <exogym/sequence.h>

/* The rows of a table (vocabulary, W) that `tokens` name -> (R, W), from `weight` (V, W), its rows
 * [first, first + V) alone: a token of another row gives zeros. NULL: recorded in the tape. */
exo_tensor *exo_embedding_part(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight, size_t first,
                               size_t vocabulary);
/* tokens - first where that is in [0, count), else -1: an input of the pass. `tokens` are an input,
 * too. NULL: recorded in the tape. */
exo_tensor *exo_local_tokens(exo_tape *tape, const exo_tensor *tokens, size_t first, size_t count);
/* x + bias for each row. x (R, W), bias (W). NULL: recorded in the tape. */
exo_tensor *exo_add_bias(exo_tape *tape, exo_tensor *x, exo_tensor *bias);

#endif
