/* Matrix products in pieces of EXO_MATMUL_PIECE rows of C. A piece is one call on its thread;
 * pieces run on any threads, at the same time.
 *
 * Owner: the caller of exo_matmul_new. gemm.h has the shapes and the errors. Read next:
 * matmul.c. */
#ifndef EXO_CPU_MATMUL_H
#define EXO_CPU_MATMUL_H

#include "nn/cpu/gemm.h"

enum {
    EXO_MATMUL_PIECE = 64 /* rows */
};

typedef struct exo_matmul exo_matmul;

exo_status exo_matmul_new(exo_matmul **out, const exo_gemm_shape *shape, exo_err *err);
void exo_matmul_free(exo_matmul **matmul);
size_t exo_matmul_pieces(const exo_matmul *matmul);
exo_status exo_matmul_run(exo_matmul *matmul, size_t piece, const void *a, const void *b,
                          const float *bias, void *c, exo_err *err);

#endif
