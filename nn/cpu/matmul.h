/* Matrix products through oneDNN, piece by piece: C (rows, cols) = op(A) op(B) [+ bias] [+ C].
 *
 * The rows of C are cut into pieces of EXO_MATMUL_PIECE; each is one single-threaded call. All matrices are row-major without
 * gaps; A is (rows, inner), or (inner, rows) if transposed; B is (inner, cols), or (cols, inner) if transposed. */
#ifndef EXO_CPU_MATMUL_H
#define EXO_CPU_MATMUL_H

#include <exogym/tensor.h>

enum {
    EXO_MATMUL_PIECE = 64
};

/* Plain numbers: compared byte by byte. */
typedef struct exo_matmul_shape {
    size_t rows, cols, inner;
    size_t transpose_a, transpose_b; /* 0 or 1 */
    size_t in_dtype, out_dtype;      /* EXO_F32 or EXO_BF16 */
    size_t with_bias;                /* (cols) fp32 */
    size_t add;                      /* to what C holds, which is fp32 then */
} exo_matmul_shape;

typedef struct exo_matmul exo_matmul;

exo_status exo_matmul_new(exo_matmul **out, const exo_matmul_shape *shape, exo_err *err);
void exo_matmul_free(exo_matmul **matmul);
size_t exo_matmul_pieces(const exo_matmul *matmul);
exo_status exo_matmul_run(exo_matmul *matmul, size_t piece, const void *a, const void *b, const float *bias, void *c,
                          exo_err *err);

#endif
