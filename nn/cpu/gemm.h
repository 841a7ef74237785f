/* One matrix product, C (rows, cols) = op(A) op(B) [+ bias] [+ C], of row-major matrices or parts
 * of them, on the calling thread.
 *
 * A is (rows, inner), or (inner, rows) if transposed. B is (inner, cols), or (cols, inner) if
 * transposed. A stride is the distance of two rows in elements; 0: rows without gaps.
 *
 * Owner: the caller of exo_gemm_new. Read next: gemm.c, matmul.h. */
#ifndef EXO_CPU_GEMM_H
#define EXO_CPU_GEMM_H

#include <exogym/tensor.h>

/* All members are of one type, so that shapes can be compared byte by byte. */
typedef struct exo_gemm_shape {
    size_t rows, cols, inner;
    size_t a_stride, b_stride, c_stride;
    size_t transpose_a, transpose_b; /* 0 or 1 */
    size_t in_dtype, out_dtype;      /* EXO_F32 or EXO_BF16 */
    size_t with_bias;                /* (cols) fp32 */
    size_t add;                      /* 0 or 1: adds to C, which must be fp32 */
} exo_gemm_shape;

typedef struct exo_gemm exo_gemm;

/* `calls`: the calls that run at the same time, at most. UNSUPPORTED: not on this processor.
 * NOMEM. */
exo_status exo_gemm_new(exo_gemm **out, const exo_gemm_shape *shape, size_t calls, exo_err *err);
void exo_gemm_free(exo_gemm **gemm);
/* Runs the product, on any thread. `call` is the call's number: different numbers find different
 * working memory at once. */
exo_status exo_gemm_run(exo_gemm *gemm, size_t call, const void *a, const void *b,
                        const float *bias, void *c, exo_err *err);

#endif
