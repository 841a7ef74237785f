/* Matrix products by pieces: the rows of C are cut into pieces of EXO_MATMUL_PIECE; each is one call on the thread that runs it. */
#ifndef EXO_CPU_MATMUL_H
#define EXO_CPU_MATMUL_H

#include "nn/cpu/gemm.h"

enum {
    EXO_MATMUL_PIECE = 64
};

typedef struct exo_matmul exo_matmul;

exo_status exo_matmul_new(exo_matmul **out, const exo_gemm_shape *shape, exo_err *err);
void exo_matmul_free(exo_matmul **matmul);
size_t exo_matmul_pieces(const exo_matmul *matmul);
exo_status exo_matmul_run(exo_matmul *matmul, size_t piece, const void *a, const void *b,
                          const float *bias, void *c, exo_err *err);

#endif
