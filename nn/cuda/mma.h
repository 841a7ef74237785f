/* What the tensor cores are used with: products of small matrices of bf16 by the 32 threads of a
 * warp, their operands from shared memory, and copies to shared memory beside computation.
 *
 * A product is (16, 16) times (16, 8), summed in fp32. Its operands are spread over the lanes of the
 * warp (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"). Lane 4 g + t has
 *
 *     sum   (16, 8)    rows g and g + 8, columns 2 t and 2 t + 1: sum[0..1] and sum[2..3]
 *     a     (16, 16)   rows g, g + 8, g, g + 8; columns 2 t and 2 t + 1, in a[2] and a[3] 8 later
 *     b     (16, 8)    rows 2 t and 2 t + 1, in b1 8 later; column g
 *
 * with two elements in a word, the first one in its lower half. So the sums of two products side by
 * side are, rounded to bf16, an operand a.
 *
 * nvcc has one instruction for each function. The CUDA runtime of the tests has the same by the
 * tables of the PTX ISA (tests/cuda/mma.cc): the kernels' layouts are what is tested. All lanes of a
 * warp call together. No state. Read next: attention_mma.h. */
#ifndef EXO_CUDA_MMA_H
#define EXO_CUDA_MMA_H

#include "nn/cuda/grid.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "exogym needs GPUs of compute capability 8.0 (Ampere) or later: set EXO_CUDA_ARCHITECTURES"
#endif

#ifdef __CUDACC__

__device__ static inline uint32_t
exo_cuda_shared_address(const void *at)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

/* Two numbers as bf16, rounded to nearest. */
__device__ static inline uint32_t
exo_cuda_two_bf16(float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

/* 2^x by one instruction: 0 in place of what is below 2^-126. */
__device__ static inline float
exo_cuda_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* sum += a b. volatile, as that of all lanes together: a compiler must not move it behind a branch that some
 * lanes take (https://github.com/llvm/llvm-project/pull/96521). */
__device__ static inline void
exo_cuda_mma(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices (8, 8) from shared memory: `row` of lane 8 m + r is row r of matrix m, at a multiple
 * of 16 bytes. Word m is row g, columns 2 t and 2 t + 1 of matrix m. */
__device__ static inline void
exo_cuda_load_matrices(uint32_t word[4], const exo_cuda_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(exo_cuda_shared_address(row))
                 : "memory");
}

/* The same, transposed: word m is rows 2 t and 2 t + 1, column g of matrix m. */
__device__ static inline void
exo_cuda_load_transposed(uint32_t word[4], const exo_cuda_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(exo_cuda_shared_address(row))
                 : "memory");
}

/* Begins a copy of 16 bytes to shared memory, or of zeros; both addresses are multiples of 16. */
__device__ static inline void
exo_cuda_begin_copy(void *shared, const void *from, bool zeros)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(exo_cuda_shared_address(shared)), "l"(from), "r"(zeros ? 0 : 16)
                 : "memory");
}

/* Ends a group: the copies that this thread has begun since the last one. */
__device__ static inline void
exo_cuda_end_copies(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for this thread's groups, except the last `N`. */
template <int N>
__device__ static inline void
exo_cuda_wait_copies(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

static inline uint32_t
exo_cuda_two_bf16(float first, float second)
{
    exo_cuda_bf16 two[2];
    exo_cuda_set(two, 0, first);
    exo_cuda_set(two, 1, second);
    return two[0].bits | static_cast<uint32_t>(two[1].bits) << 16;
}

static inline float
exo_cuda_exp2(float x)
{
    return x < -126 ? 0 : exp2f(x);
}

static inline void
exo_cuda_mma(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    const uint32_t b[2] = {b0, b1};
    emulated_mma(sum, a, b);
}

static inline void
exo_cuda_load_matrices(uint32_t word[4], const exo_cuda_bf16 *row)
{
    emulated_load_matrices(word, row, false);
}

static inline void
exo_cuda_load_transposed(uint32_t word[4], const exo_cuda_bf16 *row)
{
    emulated_load_matrices(word, row, true);
}

static inline void
exo_cuda_begin_copy(void *shared, const void *from, bool zeros)
{
    emulated_begin_copy(shared, from, zeros);
}

static inline void
exo_cuda_end_copies(void)
{
    emulated_end_copies();
}

template <int N>
static inline void
exo_cuda_wait_copies(void)
{
    emulated_wait_copies(N);
}

#endif

/* --- Operands from rows in shared memory ------------------------------------------------------ */

/* Where a lane's row begins, for four matrices of a tile (16, 16) at (row, column) of rows of
 * `pitch` elements: those of the upper rows first. */
__device__ static inline const exo_cuda_bf16 *
exo_cuda_down_first(const exo_cuda_bf16 *rows, int pitch, int row, int column)
{
    const int lane = static_cast<int>(threadIdx.x % EXO_CUDA_WARP);
    return rows + (row + lane % 16) * pitch + column + lane / 16 * 8;
}

/* The same with those of the left columns first. */
__device__ static inline const exo_cuda_bf16 *
exo_cuda_across_first(const exo_cuda_bf16 *rows, int pitch, int row, int column)
{
    const int lane = static_cast<int>(threadIdx.x % EXO_CUDA_WARP);
    return rows + (row + lane / 16 * 8 + lane % 8) * pitch + column + lane / 8 % 2 * 8;
}

/* sum (16 M, 8 N) += a (16 M, DEPTH) b^T: a and b (8 N, DEPTH) are rows in shared memory. N is
 * even. */
template <int M, int N, int DEPTH>
__device__ static inline void
exo_cuda_mma_rows(float sum[M][N][4], const exo_cuda_bf16 *a, const exo_cuda_bf16 *b, int pitch)
{
    EXO_CUDA_UNROLL
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t left[M][4];
        EXO_CUDA_UNROLL
        for (int m = 0; m < M; m++)
            exo_cuda_load_matrices(left[m], exo_cuda_down_first(a, pitch, m * 16, k));
        EXO_CUDA_UNROLL
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            exo_cuda_load_matrices(right, exo_cuda_across_first(b, pitch, n * 8, k));
            EXO_CUDA_UNROLL
            for (int m = 0; m < M; m++) {
                exo_cuda_mma(sum[m][n], left[m], right[0], right[1]);
                exo_cuda_mma(sum[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* sum (16 M, 8 N) += a (16 M, 8 K) b: a are sums of products, which are rounded to bf16, and b
 * (8 K, 8 N) are rows in shared memory. N and K are even. */
template <int M, int N, int K>
__device__ static inline void
exo_cuda_mma_sums(float sum[M][N][4], const float a[M][K][4], const exo_cuda_bf16 *b, int pitch)
{
    EXO_CUDA_UNROLL
    for (int k = 0; k < K; k += 2) {
        uint32_t left[M][4];
        EXO_CUDA_UNROLL
        for (int m = 0; m < M; m++)
            EXO_CUDA_UNROLL
        for (int i = 0; i < 4; i++)
            left[m][i] =
                exo_cuda_two_bf16(a[m][k + i / 2][i % 2 * 2], a[m][k + i / 2][i % 2 * 2 + 1]);
        EXO_CUDA_UNROLL
        for (int n = 0; n < N; n += 2) {
            uint32_t right[4];
            exo_cuda_load_transposed(right, exo_cuda_down_first(b, pitch, k * 8, n * 8));
            EXO_CUDA_UNROLL
            for (int m = 0; m < M; m++) {
                exo_cuda_mma(sum[m][n], left[m], right[0], right[1]);
                exo_cuda_mma(sum[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

#endif
