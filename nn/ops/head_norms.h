/* The norms of Qwen3's attention. Read next: head_norms.c. */
#ifndef EXO_OPS_HEAD_NORMS_H
#define EXO_OPS_HEAD_NORMS_H

#include <exogym/tensor.h>

/* RMS norms over each head of queries and keys (Henry et al., 2020, arXiv:2010.04245): x (R, (H + 2 G)
 * D), rows of queries by head, then keys, then values. y is x with exo_rms_norm of each of the H queries
 * with `queries` (D) and of each of the G keys with `keys` (D); values stay. y has the type of products.
 * NULL: x or a weight is NULL, or recorded in the tape: INVAL, NOMEM. */
exo_tensor *exo_head_norms(exo_tape *tape, exo_tensor *x, size_t heads, size_t kv_heads,
                           exo_tensor *queries, exo_tensor *keys, float eps);

#endif
