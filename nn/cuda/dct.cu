/* The DCT of chunks of a matrix: a chunk is a block, and two products of small matrices in shared
 * memory. Blocks keep the cosines for all of their chunks. No state. Read next: top_k.cu. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"

enum {
    MOST_BLOCKS = 1024,
    OWN_ROWS = 16 /* rows of an element of a product that one thread has, at most */
};

/* A matrix in memory: element (i, j) is at[i * row + j * column]. */
struct matrix {
    const float *at;
    unsigned row, column;
};

/* The threads of a block, as `lines` lines of the chunk's columns; the rest have no work. */
struct layout {
    unsigned rows, lines, row, column;
    bool works;
};

/* own = the elements of a (rows, inner) b (inner, columns) in this thread's column and every
 * lines-th row. */
__device__ static inline void
multiply(float own[OWN_ROWS], const layout &l, const matrix &a, const matrix &b, unsigned inner)
{
    for (int s = 0; s < OWN_ROWS; s++)
        own[s] = 0;
    for (unsigned i = 0; i < inner && l.works; i++) {
        const float by = b.at[i * b.row + l.column * b.column];
        const float *const from = a.at + i * a.column;
        for (unsigned s = 0, row = l.row; s < OWN_ROWS; s++, row += l.lines)
            if (row < l.rows)
                own[s] = fmaf(from[row * a.row], by, own[s]);
    }
}

/* Writes this thread's elements to `to`, with `step` from row to row. */
__device__ static inline void
put(float *to, size_t step, const layout &l, const float own[OWN_ROWS])
{
    for (unsigned s = 0, row = l.row; s < OWN_ROWS; s++, row += l.lines)
        if (l.works && row < l.rows)
            to[row * step + l.column] = own[s];
}

/* Rows of a basis are padded to an odd number, so that a column lies in different banks. */
template <typename T>
__host__ __device__ static inline T
pitch_of(T n)
{
    return n | 1;
}

/* Writes the matrix (n, n) of the transform. A cosine that is 0 is exactly 0, so that a value which
 * is 0 stays 0. cosines: room for 4 n. All threads call it. */
__device__ static inline void
make_basis(float *basis, float *cosines, unsigned n)
{
    const double pi = 3.14159265358979323846, length = static_cast<double>(n);
    __syncthreads();
    for (unsigned m = threadIdx.x; m < 4 * n; m += blockDim.x)
        cosines[m] = m == n || m == 3 * n
                         ? 0
                         : static_cast<float>(cos(pi * static_cast<double>(m) / (2 * length)) *
                                              sqrt(2 / length));
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n * n; i += blockDim.x) {
        const unsigned f = i / n, at = i % n, m = (2 * at + 1) * f % (4 * n);
        basis[f * pitch_of(n) + at] = f > 0 ? cosines[m] : static_cast<float>(sqrt(1 / length));
    }
}

/* Shared: the chunk, which at first has room for cosines, and the bases of rows and of columns,
 * which are one for a square. */
static size_t
chunk_floats(size_t h, size_t w)
{
    const size_t most = 4 * (h > w ? h : w);
    return h * w > most ? h * w : most;
}

__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK, 3) dct_chunks(exo_dct_args k, size_t floats)
{
    EXO_CUDA_SHARED(float, shared);
    const unsigned h = static_cast<unsigned>(k.chunk_rows), w = static_cast<unsigned>(k.chunk_cols);
    const unsigned ph = pitch_of(h), pw = pitch_of(w), lines = blockDim.x / w;
    const size_t across = k.cols / w, chunks = k.rows / h * across;
    float *const chunk = shared, *const left = chunk + floats;
    float *const right = h == w ? left : left + h * ph;
    const layout l = {h, lines, threadIdx.x / w, threadIdx.x % w, threadIdx.x / w < lines};
    const matrix own_chunk = {chunk, w, 1}, a = {left, k.inverse ? 1 : ph, k.inverse ? ph : 1};
    const matrix b = {right, k.inverse ? pw : 1, k.inverse ? 1 : pw};
    float own[OWN_ROWS];
    make_basis(left, chunk, h);
    if (h != w)
        make_basis(right, chunk, w);
    for (size_t c = blockIdx.x; c < chunks; c += gridDim.x) {
        const size_t in_matrix = c / across * h * k.cols + c % across * w;
        const float *x = k.x + (k.inverse ? c * h * w : in_matrix);
        float *y = k.y + (k.inverse ? in_matrix : c * h * w);
        __syncthreads(); /* the chunk is free */
        for (unsigned i = threadIdx.x; i < h * w; i += blockDim.x)
            chunk[i] = k.inverse ? x[i] : x[i / w * k.cols + i % w];
        __syncthreads();
        multiply(own, l, a, own_chunk, h);
        __syncthreads(); /* all have read the chunk */
        put(chunk, w, l, own);
        __syncthreads();
        multiply(own, l, own_chunk, b, w);
        put(y, k.inverse ? k.cols : w, l, own);
    }
}

exo_status
exo_cuda_dct(exo_device *device, const exo_dct_args *k, exo_err *err)
{
    const size_t h = k->chunk_rows, w = k->chunk_cols, most = MOST_BLOCKS, warp = EXO_CUDA_WARP;
    if (k->rows * k->cols == 0)
        return EXO_OK;
    const size_t chunks = k->rows / h * (k->cols / w), floats = chunk_floats(h, w);
    const size_t bases = h * pitch_of(h) + (h == w ? 0 : w * pitch_of(w));
    const size_t wanted = h * w / 4 > w ? h * w / 4 : w, block = EXO_CUDA_BLOCK;
    const size_t threads = wanted < block ? (wanted + warp - 1) / warp * warp : block;
    exo_cuda_launch(dct_chunks, static_cast<unsigned>(chunks < most ? chunks : most),
                    static_cast<unsigned>(threads), (floats + bases) * sizeof(float),
                    exo_cuda_of(device)->stream, *k, floats);
    return exo_cuda_launched("dct", err);
}
