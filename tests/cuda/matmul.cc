/* Products for the tests, in place of cuBLASLt's. Those of fp32 are plain loops, whose order depends
 * on the shape, as cuBLASLt's does: passes that need one order must not use them. A device with tf32
 * rounds their operands. Others are the kernel of nn/cuda/matmul_tile.cu. No state. */
#include "nn/cuda/matmul.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/own_bytes.h"

exo_status
exo_cuda_matmul_new(exo_cuda_matmul **out, exo_cuda_device *cuda, exo_err *err)
{
    (void)cuda;
    (void)err;
    *out = NULL;
    return EXO_OK;
}

void
exo_cuda_matmul_free(exo_cuda_matmul *matmul)
{
    (void)matmul;
}

size_t
exo_cuda_matmul_bytes(void)
{
    return 0;
}

/* The nearest number of tf32, which has 10 bits behind the point. */
static float
rounded(float x)
{
    const uint32_t bits = exo_cuda_bits(x);
    return isfinite(x) ? exo_cuda_float((bits + 0xFFFu + (bits >> 13 & 1u)) & ~0x1FFFu) : x;
}

/* A sum begins at an element of k that the number of rows says. */
static float
sum_of(const exo_cuda_product &p, bool tf32, size_t matrix, size_t row, size_t column)
{
    const float *a = static_cast<const float *>(p.a) + matrix * p.stride_a,
                *b = static_cast<const float *>(p.b) + matrix * p.stride_b;
    float sum = 0;
    for (size_t i = 0; i < p.k; i++) {
        const size_t k = (i + p.m * 7) % p.k;
        const float x = a[p.transpose_a ? k * p.lda + row : row * p.lda + k],
                    y = b[p.transpose_b ? column * p.ldb + k : k * p.ldb + column];
        sum = tf32 ? fmaf(rounded(x), rounded(y), sum) : fmaf(x, y, sum);
    }
    return sum;
}

static void
multiply_each(exo_cuda_product p, bool tf32)
{
    const float *added = static_cast<const float *>(p.added ? p.added : p.c);
    for (EXO_CUDA_EACH(i, p.batch * p.m * p.n)) {
        const size_t column = i % p.n, row = i / p.n % p.m, matrix = i / p.n / p.m;
        const size_t at = matrix * p.stride_c + row * p.ldc + column;
        float value = p.alpha * sum_of(p, tf32, matrix, row, column);
        if (p.beta != 0)
            value = value + p.beta * added[at];
        static_cast<float *>(p.c)[at] = p.bias ? value + p.bias[column] : value;
    }
}

exo_status
exo_cuda_multiply(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    if (p->dtype != EXO_F32 || p->out_dtype != EXO_F32)
        return exo_cuda_multiply_invariant(cuda, p, err);
    if (p->m > 0 && p->n > 0)
        exo_cuda_launch_each(multiply_each, exo_cuda_blocks(p->batch * p->m * p->n, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, *p, cuda->tf32);
    return exo_cuda_launched("a product of matrices", err);
}
