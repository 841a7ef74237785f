/* Products of matrices by kernels of this folder. A block computes a tile of the result from tiles
 * in shared memory.
 *
 * Each element is summed in one order, whatever the shape and whichever kernel computes it: fmaf
 * over pieces of EXO_CUDA_PIECE elements of k from zero on, then the pieces in their order. The
 * products of generation have the same one (decoder.cu). There, the warps of a block share out the
 * pieces; one chain over all of k would leave most of them without work.
 *
 * Products of fp32 with long sides, of which rows are along k, are computed in wide tiles, by
 * threads with eight rows and four columns each. A load of 16 bytes from shared memory takes a warp
 * four cycles, or two where lanes 2n and 2n + 1, or those that are two apart, read the same address.
 * So a warp has two groups of rows, which alternate from lane to lane, and 16 groups of columns. No
 * state. Read next: matmul.h, matmul_lt.cu. */
#include "nn/cuda/fp8.h"
#include "nn/cuda/map.h"
#include "nn/cuda/matmul.h"

enum {
    TILE = 64,        /* rows and columns of a block */
    DEPTH = 16,       /* elements of k in shared memory at a time */
    PITCH = TILE + 4, /* of a tile in shared memory, against conflicts of banks */
    MICRO = 4,        /* rows and columns of a thread */
    ACROSS = TILE / MICRO
};

enum {
    WIDE_ROWS = 128, /* of a wide tile */
    WIDE_COLUMNS = 64,
    WIDE_MICRO = 8,               /* rows of a thread, in two halves; columns as above */
    WIDE_FOURS = 2 + 1,           /* times four elements of k that a thread loads */
    WIDE_PITCH_A = WIDE_ROWS + 4, /* of a tile in shared memory */
    WIDE_PITCH_B = WIDE_COLUMNS + 4,
    WIDE_LEAST = 96 /* rows and columns of a product, for wide tiles */
};
static_assert(EXO_CUDA_PIECE % DEPTH == 0, "pieces are whole tiles");

/* to[kk][i] = element (first + i, k0 + kk) of a matrix of `count` rows, zero outside. along_k: the
 * elements of k lie side by side. */
template <typename T>
__device__ static void
load_tile(float *to, const T *x, size_t ld, bool along_k, size_t first, size_t count, size_t k0,
          size_t k)
{
    for (unsigned e = threadIdx.x; e < TILE * DEPTH; e += EXO_CUDA_BLOCK) {
        const unsigned i = along_k ? e / DEPTH : e % TILE, kk = along_k ? e % DEPTH : e / TILE;
        const size_t row = first + i, column = k0 + kk;
        const bool inside = row < count && column < k;
        to[kk * PITCH + i] =
            inside ? exo_cuda_get(x, along_k ? row * ld + column : column * ld + row) : 0.0f;
    }
}

/* The element of a sum: `before` is that of p.added, or of c. */
__device__ static float
element_of(const exo_cuda_product &p, size_t column, float sum, float before)
{
    float value = p.alpha * sum;
    if (p.scale_a)
        value = value * (*p.scale_a * *p.scale_b);
    if (p.beta != 0)
        value = value + p.beta * before;
    if (p.bias)
        value = value + p.bias[column];
    return value;
}

/* Whether four columns of c, and of what is added, are one access, where column is a multiple of four. */
template <typename Out>
__device__ static bool
has_wide_rows(const exo_cuda_product &p)
{
    const size_t four = sizeof(exo_cuda_four<Out>);
    const uintptr_t ends = reinterpret_cast<uintptr_t>(p.c) | reinterpret_cast<uintptr_t>(p.added);
    return (ends | (p.ldc | p.stride_c) * sizeof(Out)) % four == 0;
}

/* Elements (row, column) on of c, of MICRO sums: those outside are left out. */
template <typename Out>
__device__ static void
store(const exo_cuda_product &p, size_t skip, size_t row, size_t column, const float sum[MICRO])
{
    const size_t at = skip + row * p.ldc + column;
    Out *const c = static_cast<Out *>(p.c);
    const Out *const added = p.added ? static_cast<const Out *>(p.added) : c;
    float four[MICRO], before[MICRO] = {};
    if (row >= p.m)
        return;
    if (has_wide_rows<Out>(p) && column + MICRO <= p.n) {
        if (p.beta != 0)
            exo_cuda_get_four(added, at, before);
        EXO_CUDA_UNROLL
        for (unsigned i = 0; i < MICRO; i++)
            four[i] = element_of(p, column + i, sum[i], before[i]);
        exo_cuda_set_four(c, at, four);
        return;
    }
    EXO_CUDA_UNROLL
    for (unsigned i = 0; i < MICRO; i++)
        if (column + i < p.n)
            exo_cuda_set(c, at + i,
                         element_of(p, column + i, sum[i],
                                    p.beta != 0 ? exo_cuda_get(added, at + i) : 0.0f));
}

template <int ROWS>
__device__ static void
end_piece(float total[ROWS][MICRO], float sum[ROWS][MICRO])
{
    EXO_CUDA_UNROLL
    for (int r = 0; r < ROWS; r++)
        EXO_CUDA_UNROLL
    for (int c = 0; c < MICRO; c++) {
        total[r][c] += sum[r][c];
        sum[r][c] = 0;
    }
}

/* The products of an element with those of a row. */
__device__ static void
add_products(float u, const float4 &v, float sum[MICRO])
{
    sum[0] = fmaf(u, v.x, sum[0]);
    sum[1] = fmaf(u, v.y, sum[1]);
    sum[2] = fmaf(u, v.z, sum[2]);
    sum[3] = fmaf(u, v.w, sum[3]);
}

template <typename A, typename B, typename Out>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) multiply_tile(exo_cuda_product p)
{
    __shared__ __align__(16) float as[DEPTH * PITCH], bs[DEPTH * PITCH];
    const size_t row = static_cast<size_t>(blockIdx.x) * TILE,
                 column = static_cast<size_t>(blockIdx.y) * TILE;
    const A *a = static_cast<const A *>(p.a) + blockIdx.z * p.stride_a;
    const B *b = static_cast<const B *>(p.b) + blockIdx.z * p.stride_b;
    const unsigned y = threadIdx.x / ACROSS * MICRO, x = threadIdx.x % ACROSS * MICRO;
    const bool idle = row + y >= p.m || column + x >= p.n;
    float sum[MICRO][MICRO] = {}, total[MICRO][MICRO] = {};
    for (size_t k0 = 0; k0 < p.k; k0 += DEPTH) {
        load_tile(as, a, p.lda, !p.transpose_a, row, p.m, k0, p.k);
        load_tile(bs, b, p.ldb, p.transpose_b, column, p.n, k0, p.k);
        __syncthreads();
        const size_t depth = p.k - k0 < DEPTH ? p.k - k0 : static_cast<size_t>(DEPTH);
        for (size_t kk = 0; kk < depth && !idle; kk++) {
            const float4 u = *reinterpret_cast<const float4 *>(as + kk * PITCH + y),
                         v = *reinterpret_cast<const float4 *>(bs + kk * PITCH + x);
            add_products(u.x, v, sum[0]);
            add_products(u.y, v, sum[1]);
            add_products(u.z, v, sum[2]);
            add_products(u.w, v, sum[3]);
        }
        if ((k0 + DEPTH) % EXO_CUDA_PIECE == 0 || k0 + DEPTH >= p.k)
            end_piece<MICRO>(total, sum);
        __syncthreads();
    }
    EXO_CUDA_UNROLL
    for (unsigned r = 0; r < MICRO; r++)
        store<Out>(p, blockIdx.z * p.stride_c, row + y + r, column + x, total[r]);
}

/* --- Wide tiles ------------------------------------------------------------------------------- */

/* Where a thread's elements of k begin: of two rows of a, and of one of b. */
struct wide_rows {
    const float *row[WIDE_FOURS];
};

/* Rows beyond a matrix are its last one: no sum of theirs is stored. */
__device__ static wide_rows
find_wide(const exo_cuda_product &p, size_t row, size_t column)
{
    const unsigned i = threadIdx.x / (DEPTH / 4), kk = threadIdx.x % (DEPTH / 4) * 4;
    const float *a = static_cast<const float *>(p.a) + kk,
                *b = static_cast<const float *>(p.b) + kk;
    const size_t first = row + i, second = first + WIDE_ROWS / 2, third = column + i;
    return {{a + (first < p.m ? first : p.m - 1) * p.lda,
             a + (second < p.m ? second : p.m - 1) * p.lda,
             b + (third < p.n ? third : p.n - 1) * p.ldb}};
}

/* This thread's part of the tiles at k0, zero beyond the end of k, which is a multiple of four. */
__device__ static void
load_wide(const wide_rows &from, size_t k0, size_t k, float4 four[WIDE_FOURS])
{
    const bool inside = k0 + threadIdx.x % (DEPTH / 4) * 4 < k;
    EXO_CUDA_UNROLL
    for (int n = 0; n < WIDE_FOURS; n++)
        four[n] = inside ? *reinterpret_cast<const float4 *>(from.row[n] + k0) : float4{0, 0, 0, 0};
}

/* to[n pitch] = element n of four. */
__device__ static void
spread(float *to, int pitch, const float4 &four)
{
    to[0] = four.x;
    to[pitch] = four.y;
    to[2 * pitch] = four.z;
    to[3 * pitch] = four.w;
}

__device__ static void
keep_wide(const float4 four[WIDE_FOURS], float *as, float *bs)
{
    const unsigned i = threadIdx.x / (DEPTH / 4), kk = threadIdx.x % (DEPTH / 4) * 4;
    spread(as + kk * WIDE_PITCH_A + i, WIDE_PITCH_A, four[0]);
    spread(as + kk * WIDE_PITCH_A + WIDE_ROWS / 2 + i, WIDE_PITCH_A, four[1]);
    spread(bs + kk * WIDE_PITCH_B + i, WIDE_PITCH_B, four[2]);
}

/* sum += the products of this thread's rows, y and y + WIDE_ROWS / 2 on, and columns, x on. Beyond
 * the end of k there are zeros, which change no sum. */
__device__ static void
add_wide(const float *as, const float *bs, unsigned y, unsigned x, float sum[WIDE_MICRO][MICRO])
{
    EXO_CUDA_UNROLL
    for (int kk = 0; kk < DEPTH; kk++) {
        const float *a = as + kk * WIDE_PITCH_A + y;
        const float4 u0 = *reinterpret_cast<const float4 *>(a),
                     u1 = *reinterpret_cast<const float4 *>(a + WIDE_ROWS / 2),
                     v = *reinterpret_cast<const float4 *>(bs + kk * WIDE_PITCH_B + x);
        const float us[WIDE_MICRO] = {u0.x, u0.y, u0.z, u0.w, u1.x, u1.y, u1.z, u1.w};
        EXO_CUDA_UNROLL
        for (int r = 0; r < WIDE_MICRO; r++)
            add_products(us[r], v, sum[r]);
    }
}

/* While a tile is computed with, the next one is on its way to registers, and goes to the other half
 * of the shared memory: one barrier a tile. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) multiply_wide(exo_cuda_product p)
{
    __shared__ __align__(16) float as[2][DEPTH * WIDE_PITCH_A], bs[2][DEPTH * WIDE_PITCH_B];
    const size_t row = static_cast<size_t>(blockIdx.x) * WIDE_ROWS,
                 column = static_cast<size_t>(blockIdx.y) * WIDE_COLUMNS;
    const unsigned lane = threadIdx.x % EXO_CUDA_WARP, warp = threadIdx.x / EXO_CUDA_WARP,
                   y = (warp * 2 + lane % 2) * MICRO, x = lane / 2 * MICRO;
    float sum[WIDE_MICRO][MICRO] = {}, total[WIDE_MICRO][MICRO] = {};
    const wide_rows from = find_wide(p, row, column);
    float4 four[WIDE_FOURS];
    load_wide(from, 0, p.k, four);
    for (size_t k0 = 0, half = 0; k0 < p.k; k0 += DEPTH, half ^= 1) {
        keep_wide(four, as[half], bs[half]);
        __syncthreads();
        if (k0 + DEPTH < p.k)
            load_wide(from, k0 + DEPTH, p.k, four);
        add_wide(as[half], bs[half], y, x, sum);
        if ((k0 + DEPTH) % EXO_CUDA_PIECE == 0 || k0 + DEPTH >= p.k)
            end_piece<WIDE_MICRO>(total, sum);
    }
    EXO_CUDA_UNROLL
    for (unsigned r = 0; r < WIDE_MICRO; r++)
        store<float>(p, 0, row + y + r % MICRO + r / MICRO * (WIDE_ROWS / 2), column + x, total[r]);
}

/* Whether wide tiles can compute it, and are filled. */
static bool
fits_wide(const exo_cuda_product *p)
{
    const uintptr_t ends = reinterpret_cast<uintptr_t>(p->a) | reinterpret_cast<uintptr_t>(p->b) |
                           (p->lda | p->ldb | p->k) * sizeof(float);
    return p->dtype == EXO_F32 && p->out_dtype == EXO_F32 && p->batch == 1 && !p->transpose_a &&
           p->transpose_b && p->m >= WIDE_LEAST && p->n >= WIDE_LEAST && ends % sizeof(float4) == 0;
}

static void
launch_wide(exo_cuda_device *cuda, const exo_cuda_product *p)
{
    const dim3 grid(static_cast<unsigned>((p->m + WIDE_ROWS - 1) / WIDE_ROWS),
                    static_cast<unsigned>((p->n + WIDE_COLUMNS - 1) / WIDE_COLUMNS));
    exo_cuda_launch(multiply_wide, grid, EXO_CUDA_BLOCK, 0, cuda->stream, *p);
}

/* --- Calls ------------------------------------------------------------------------------------ */

template <typename A, typename B>
static void
launch(exo_cuda_device *cuda, const exo_cuda_product *p)
{
    const dim3 grid(static_cast<unsigned>((p->m + TILE - 1) / TILE),
                    static_cast<unsigned>((p->n + TILE - 1) / TILE),
                    static_cast<unsigned>(p->batch));
    if (p->out_dtype == EXO_BF16)
        exo_cuda_launch((multiply_tile<A, B, exo_cuda_bf16>), grid, EXO_CUDA_BLOCK, 0, cuda->stream,
                        *p);
    else
        exo_cuda_launch((multiply_tile<A, B, float>), grid, EXO_CUDA_BLOCK, 0, cuda->stream, *p);
}

/* Codes of fp8, of which b's are E4M3 in all products that are asked for. */
static exo_status
launch_codes(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    if (p->codes_b != EXO_CUDA_E4M3)
        return exo_fail(err, EXO_UNSUPPORTED, "a product of fp8: b is of E5M2");
    if (p->codes_a == EXO_CUDA_E4M3)
        launch<exo_cuda_e4m3, exo_cuda_e4m3>(cuda, p);
    else
        launch<exo_cuda_e5m2, exo_cuda_e4m3>(cuda, p);
    return exo_cuda_launched("a product of fp8", err);
}

exo_status
exo_cuda_multiply_invariant(exo_cuda_device *cuda, const exo_cuda_product *p, exo_err *err)
{
    if (p->m == 0 || p->n == 0)
        return EXO_OK;
    if (p->codes_a != EXO_CUDA_NUMBERS)
        return launch_codes(cuda, p, err);
    if (fits_wide(p))
        launch_wide(cuda, p);
    else if (p->dtype == EXO_BF16)
        launch<exo_cuda_bf16, exo_cuda_bf16>(cuda, p);
    else
        launch<float, float>(cuda, p);
    return exo_cuda_launched("a product of matrices", err);
}
