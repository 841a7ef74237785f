/* Matrix products in pieces of rows of C. A piece is one call on its thread; pieces run on any
 * threads, at the same time.
 *
 * A call copies parts of B into an order of its own, so it pays to have many rows. A piece has 64
 * to 288 of them, as many as leave 8, 16, 24, ... equal pieces to share out. The number depends on
 * the rows of C alone, as the bits may depend on it.
 *
 * Owner: the caller of exo_matmul_new. gemm.h has the shapes and the errors. Read next:
 * matmul.c. */
#ifndef EXO_CPU_MATMUL_H
#define EXO_CPU_MATMUL_H

#include "nn/cpu/gemm.h"

typedef struct exo_matmul exo_matmul;

exo_status exo_matmul_new(exo_matmul **out, const exo_gemm_shape *shape, exo_err *err);
void exo_matmul_free(exo_matmul **matmul);
size_t exo_matmul_pieces(const exo_matmul *matmul);
/* Piece `piece` computes rows [*first, *first + *count) of C. */
void exo_matmul_rows(const exo_matmul *matmul, size_t piece, size_t *first, size_t *count);
exo_status exo_matmul_run(exo_matmul *matmul, size_t piece, const void *a, const void *b,
                          const float *bias, void *c, exo_err *err);

#endif
