/* Products of matrices on a GPU. matmul_lt.cu computes them by cuBLASLt; the tests have
 * tests/cuda/matmul.cc in its place. matmul_tile.cu has kernels of this folder, whose sums of an
 * element have one order whatever the shape: for passes that are `invariant`. It is the order of
 * generation (decoder.cu).
 *
 * Matrices are row by row, as everywhere in exogym. State: exo_cuda_matmul, of one device. Read
 * next: linear.cu. */
#ifndef EXO_CUDA_MATMUL_H
#define EXO_CUDA_MATMUL_H

#include "nn/cuda/device.h"

enum {
    EXO_CUDA_PIECE = 64 /* elements of k that are summed from zero on */
};

/* What an operand consists of: numbers of the product's type, or codes of fp8. */
typedef enum exo_cuda_operand {
    EXO_CUDA_NUMBERS,
    EXO_CUDA_E4M3,
    EXO_CUDA_E5M2,
} exo_cuda_operand;

/* What cuBLASLt does to a product before it writes it, in place of a sweep (its epilogues). */
typedef enum exo_cuda_epilogue {
    EXO_CUDA_PLAIN,
    EXO_CUDA_ADD_BIAS,   /* c + vector (n) bf16 */
    EXO_CUDA_GELU,       /* GELU by tanh of c + vector (n) bf16; c + vector goes to aux */
    EXO_CUDA_GELU_SLOPE, /* c times the slope of GELU by tanh at aux */
    EXO_CUDA_SUM_A       /* c as it is; the sums of op(a) over k go to vector (m) fp32 */
} exo_cuda_epilogue;

/* c (m, n) = alpha op(a) op(b) + beta added, then + bias (n) if it is there.
 *
 * a is (m, k), or (k, m) with transpose_a; b is (k, n), or (n, k) with transpose_b. Rows begin
 * every lda, ldb and ldc elements. With `batch` above 1, the matrices of the next product begin
 * stride_a, stride_b and stride_c elements later. Products are summed in fp32. On a
 * device with `tf32`, exo_cuda_multiply rounds the operands of fp32 to tf32, which has 11 bits of
 * mantissa. a and b are of `dtype`, c and added of `out_dtype`. With beta 0 nothing is added.
 *
 * Or a and b are codes of fp8, each of which stands for its number times a scale on the device. Then
 * sums run along the rows of both (no transpose_a, but transpose_b), m, n and k are multiples of 16,
 * not both are E5M2, and there is one product. */
typedef struct exo_cuda_product {
    size_t m, n, k, batch; /* batch from 1 */
    bool transpose_a, transpose_b;
    exo_dtype dtype, out_dtype;
    exo_cuda_operand codes_a, codes_b; /* both numbers, or neither */
    const float *scale_a, *scale_b;    /* of codes */
    float alpha, beta;
    const void *a, *b;
    const void *added; /* as c; NULL: c itself */
    void *c;
    size_t lda, ldb, ldc, stride_a, stride_b, stride_c;
    const float *bias; /* (n) fp32, or NULL; only with an out_dtype of EXO_F32 */
    /* Other than plain: only of exo_cuda_fuse, and for exo_cuda_multiply; without a bias. */
    exo_cuda_epilogue epilogue;
    void *vector, *aux; /* aux lies as c does. EXO_CUDA_GELU: either may be NULL */
} exo_cuda_product;

exo_status exo_cuda_matmul_new(exo_cuda_matmul **out, exo_cuda_device *cuda, exo_err *err);
void exo_cuda_matmul_free(exo_cuda_matmul *matmul); /* accepts NULL */
/* p becomes `with`, the same product with an epilogue, if cuBLASLt has that. It depends on the shape,
 * on the alignment of the arrays and on EXOGYM_CUDA_EPILOGUES, and stays so for a shape. */
exo_status exo_cuda_fuse(exo_cuda_device *cuda, exo_cuda_product *p, const exo_cuda_product *with,
                         exo_err *err);
/* Asks for a product on the device's stream. Products with m, n or k 0 are done, too. */
exo_status exo_cuda_multiply(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err);
/* The same by this folder's kernels (matmul_tile.cu): fmaf in the order of k, in pieces, which are
 * then added in their order. */
exo_status exo_cuda_multiply_invariant(exo_cuda_device *cuda, const exo_cuda_product *p,
                                       exo_err *err);

#endif
