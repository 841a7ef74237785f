/* The Newton-Schulz iteration of Muon: three products a step (exo_newton_schulz_args). State: sums
 * of the device, which its stream guards. Read next: matmul.h. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/plans.h"

/* What the scratch has. */
struct room {
    float *next;        /* (rows, cols) */
    float *gram, *poly; /* (side, side), the shorter side */
    double *squares;    /* (1) */
    size_t bytes;
};

static room
lay_out(const exo_newton_schulz_shape *s, void *scratch)
{
    const size_t side = s->rows < s->cols ? s->rows : s->cols;
    exo_cuda_room r = {static_cast<char *>(scratch), 0};
    room out = {};
    out.squares = static_cast<double *>(exo_cuda_take(&r, 1, sizeof *out.squares));
    out.next = static_cast<float *>(exo_cuda_take(&r, s->rows * s->cols, sizeof *out.next));
    out.gram = static_cast<float *>(exo_cuda_take(&r, side * side, sizeof *out.gram));
    out.poly = static_cast<float *>(exo_cuda_take(&r, side * side, sizeof *out.poly));
    out.bytes = r.bytes;
    return out;
}

size_t
exo_cuda_newton_schulz_scratch(const exo_newton_schulz_shape *shape)
{
    return lay_out(shape, NULL).bytes;
}

__global__ static void
normalize(size_t count, float *x, const double *squares, float eps)
{
    float norm = static_cast<float>(sqrt(*squares));
    norm = norm < eps ? eps : norm; /* a NaN stays */
    for (EXO_CUDA_EACH(i, count))
        x[i] = x[i] / norm;
}

__global__ static void
add_to_diagonal(size_t side, float *x, float a)
{
    for (EXO_CUDA_EACH(i, side))
        x[i * side + i] = x[i * side + i] + a;
}

/* gram = X X^T, or X^T X of a tall matrix; poly = a + b gram + c gram gram; next = poly X, or
 * X poly. */
static exo_status
iterate(exo_cuda_device *cuda, const exo_newton_schulz_shape *s, const exo_newton_schulz_args *k,
        const room *r, const float *x, float *next, exo_err *err)
{
    const bool tall = s->rows > s->cols;
    const size_t side = tall ? s->cols : s->rows, length = tall ? s->rows : s->cols;
    exo_cuda_product p = {};
    p.batch = 1;
    p.dtype = p.out_dtype = EXO_F32;
    p.m = p.n = side;
    p.k = length;
    p.alpha = 1;
    p.a = p.b = x;
    p.lda = p.ldb = s->cols;
    p.transpose_a = tall;
    p.transpose_b = !tall;
    p.c = r->gram;
    p.ldc = side;
    exo_status st = exo_cuda_multiply(cuda, &p, err);
    p.k = p.lda = p.ldb = side;
    p.a = p.b = p.added = r->gram;
    p.transpose_a = p.transpose_b = false;
    p.alpha = k->c;
    p.beta = k->b;
    p.c = r->poly;
    if (st == EXO_OK)
        st = exo_cuda_multiply(cuda, &p, err);
    if (st == EXO_OK)
        exo_cuda_launch_each(add_to_diagonal, exo_cuda_blocks(side, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, side, r->poly, k->a);
    p.m = s->rows;
    p.n = s->cols;
    p.a = tall ? x : r->poly;
    p.b = tall ? r->poly : x;
    p.lda = tall ? s->cols : side;
    p.ldb = tall ? side : s->cols;
    p.ldc = s->cols;
    p.alpha = 1;
    p.beta = 0;
    p.added = NULL;
    p.c = next;
    return st == EXO_OK ? exo_cuda_multiply(cuda, &p, err) : st;
}

exo_status
exo_cuda_newton_schulz(exo_device *device, const exo_newton_schulz_args *k, exo_err *err)
{
    const exo_newton_schulz_shape *s = &exo_cuda_plan_of(k->plan)->newton_schulz;
    exo_cuda_device *cuda = exo_cuda_of(device);
    const size_t count = s->rows * s->cols;
    const room r = lay_out(s, k->scratch);
    exo_sum_squares_args squares = {};
    squares.count = count;
    squares.x = k->x;
    squares.out = r.squares;
    exo_status st = exo_cuda_sum_squares(device, &squares, err);
    if (st == EXO_OK)
        exo_cuda_launch_each(normalize, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, count, k->x, r.squares, k->eps);
    float *now = k->x, *next = r.next;
    for (size_t step = 0; st == EXO_OK && step < k->steps; step++) {
        float *before = now;
        st = iterate(cuda, s, k, &r, now, next, err);
        now = next;
        next = before;
    }
    if (st == EXO_OK && now != k->x)
        st = exo_cuda_status(
            cudaMemcpyAsync(k->x, now, count * sizeof *now, cudaMemcpyDeviceToDevice, cuda->stream),
            "newton_schulz", err);
    return st == EXO_OK ? exo_cuda_launched("newton_schulz", err) : st;
}
