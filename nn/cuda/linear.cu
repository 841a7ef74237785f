/* Linear layers: a product of matrices, then one sweep for what cuBLASLt does not do with it. No state.
 * Read next: matmul.h, plans.h. */
#include "nn/cuda/activations.h"
#include "nn/cuda/columns.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/map.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/plans.h"

/* --- Forward ---------------------------------------------------------------------------------- */

/* v = c + bias; before = v; y = activation(v), all (rows, columns). bias and before may be NULL,
 * and c may be either of the others. */
struct finish_args {
    size_t count, columns;
    exo_activation activation;
    const void *c;
    void *before, *y;
    const float *bias;
};

/* N elements of a row at a time, 1 or 4. */
template <typename T, int N>
__global__ static void
finish_each(finish_args k)
{
    for (EXO_CUDA_EACH(group, k.count / N)) {
        const size_t i = group * N, column = i % k.columns;
        float v[N];
        exo_cuda_read<N>(static_cast<const T *>(k.c), i, v);
        for (int j = 0; j < N && k.bias; j++)
            v[j] = v[j] + k.bias[column + static_cast<size_t>(j)];
        if (k.before)
            exo_cuda_write<N>(static_cast<T *>(k.before), i, v);
        for (int j = 0; j < N; j++)
            v[j] = exo_cuda_activation(k.activation, v[j]);
        exo_cuda_write<N>(static_cast<T *>(k.y), i, v);
    }
}

template <typename T>
static void
finish(exo_cuda_device *cuda, const finish_args *k)
{
    if (k->columns % 4 == 0 && exo_cuda_has_fours(exo_cuda_from<T>(k->c)) &&
        exo_cuda_has_fours(exo_cuda_from<T>(k->before)) &&
        exo_cuda_has_fours(exo_cuda_from<T>(k->y)))
        exo_cuda_launch_each((finish_each<T, 4>), exo_cuda_blocks(k->count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, *k);
    else
        exo_cuda_launch_each((finish_each<T, 1>), exo_cuda_blocks(k->count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, *k);
}

static exo_cuda_product
product_of(const exo_linear_shape *s)
{
    exo_cuda_product p = {};
    p.m = s->rows;
    p.n = s->out;
    p.k = s->in;
    p.batch = 1;
    p.dtype = static_cast<exo_dtype>(s->dtype);
    p.out_dtype = static_cast<exo_dtype>(s->dtype);
    p.alpha = 1;
    p.lda = p.ldb = s->in;
    p.ldc = s->out;
    return p;
}

/* The operands are codes of fp8: a of a format, b of E4M3, both with sums along their rows. */
static void
take_fp8(exo_cuda_product *p, exo_cuda_operand a, const float *a_scale, const float *b_scale)
{
    p->codes_a = a;
    p->codes_b = EXO_CUDA_E4M3;
    p->scale_a = a_scale;
    p->scale_b = b_scale;
    p->transpose_a = false;
    p->transpose_b = true;
    p->lda = p->ldb = p->k;
}

/* Gives the product the bias and, if it is GELU by tanh, the activation, where cuBLASLt has that. The
 * bias as bf16 is in the device's partials. */
static exo_status
fuse(exo_device *device, const exo_linear_args *k, exo_cuda_product *p, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_cuda_product with = *p;
    if (k->bias && p->n > EXO_CUDA_PARTIALS)
        return EXO_OK;
    with.bias = NULL;
    with.vector = k->bias ? cuda->partials : NULL;
    with.epilogue = k->bias ? EXO_CUDA_ADD_BIAS : EXO_CUDA_PLAIN;
    if (k->activation == EXO_GELU_TANH) {
        with.epilogue = EXO_CUDA_GELU;
        with.c = k->y;
        with.aux = k->before;
    }
    const exo_status st = exo_cuda_fuse(cuda, p, &with, err);
    const exo_cast_args rounded = {p->n, EXO_BF16, EXO_F32, p->vector, k->bias};
    return st == EXO_OK && p->vector ? exo_cuda_cast(device, &rounded, err) : st;
}

exo_status
exo_cuda_linear(exo_device *device, const exo_linear_args *k, exo_err *err)
{
    const exo_linear_shape *s = &exo_cuda_plan_of(k->plan)->linear;
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_cuda_product p = product_of(s);
    p.transpose_b = true;
    p.out_dtype = static_cast<exo_dtype>(s->out_dtype);
    p.a = k->x;
    p.b = k->weight;
    p.c = k->before ? k->before : k->y;
    p.bias = p.out_dtype == EXO_F32 ? k->bias : NULL;
    p.beta = k->residual ? 1.0f : 0.0f;
    p.added = k->residual;
    if (s->fp8)
        take_fp8(&p, EXO_CUDA_E4M3, k->x_scale, k->weight_scale);
    exo_status st = EXO_OK;
    if (!s->invariant && (p.out_dtype == EXO_BF16 || s->fp8))
        st = fuse(device, k, &p, err);
    if (st == EXO_OK)
        st = s->invariant ? exo_cuda_multiply_invariant(cuda, &p, err)
                          : exo_cuda_multiply(cuda, &p, err);
    const float *bias = p.bias || p.epilogue != EXO_CUDA_PLAIN ? NULL : k->bias;
    const bool activated = k->activation == EXO_LINEAR || p.epilogue == EXO_CUDA_GELU;
    const size_t count = s->rows * s->out;
    if (st != EXO_OK || count == 0 || (activated && !bias && p.c == k->y))
        return st;
    const finish_args f = {count, s->out, k->activation, p.c, bias ? k->before : NULL, k->y, bias};
    EXO_CUDA_BY_TYPE(p.out_dtype, finish, cuda, &f);
    return exo_cuda_launched("linear", err);
}

/* --- Gradients -------------------------------------------------------------------------------- */

exo_status
exo_cuda_linear_grad_x(exo_device *device, const exo_linear_grad_x_args *k, exo_err *err)
{
    const exo_linear_shape *s = &exo_cuda_plan_of(k->plan)->linear;
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_cuda_product p = product_of(s);
    p.n = s->in;
    p.k = s->out;
    p.lda = s->out;
    p.ldc = s->in;
    p.a = k->dy;
    p.b = k->weight;
    p.c = k->dx;
    if (s->fp8)
        take_fp8(&p, EXO_CUDA_E5M2, k->dy_scale, k->weight_scale);
    exo_cuda_product with = p;
    with.epilogue = EXO_CUDA_GELU_SLOPE;
    with.aux = const_cast<void *>(k->before);
    exo_status st = EXO_OK;
    if (k->before && k->activation == EXO_GELU_TANH)
        st = exo_cuda_fuse(cuda, &p, &with, err);
    if (st == EXO_OK)
        st = exo_cuda_multiply(cuda, &p, err);
    if (st != EXO_OK || !k->before || p.aux)
        return st;
    const exo_activation_backward_args slope = {p.m * p.n, k->activation, p.out_dtype,
                                                k->dx,     k->before,     k->dx};
    return exo_cuda_activation_backward(device, &slope, err);
}

exo_status
exo_cuda_linear_grad_w(exo_device *device, const exo_linear_grad_w_args *k, exo_err *err)
{
    const exo_linear_shape *s = &exo_cuda_plan_of(k->plan)->linear;
    exo_cuda_device *cuda = exo_cuda_of(device);
    exo_cuda_product p = product_of(s);
    p.m = s->out;
    p.n = s->in;
    p.k = s->rows;
    p.transpose_a = true;
    p.out_dtype = EXO_F32;
    p.beta = 1;
    p.lda = s->out;
    p.ldc = s->in;
    p.a = k->dy;
    p.b = k->x;
    p.c = k->dw;
    if (s->fp8)
        take_fp8(&p, EXO_CUDA_E5M2, k->dy_scale, k->x_scale);
    exo_cuda_product with = p;
    with.epilogue = EXO_CUDA_SUM_A;
    with.vector = cuda->partials;
    exo_status st = EXO_OK;
    if (k->db && p.dtype == EXO_BF16 && p.m <= EXO_CUDA_PARTIALS) /* fp32: summed in fp64 */
        st = exo_cuda_fuse(cuda, &p, &with, err);
    if (st == EXO_OK)
        st = exo_cuda_multiply(cuda, &p, err);
    if (st != EXO_OK || !k->db)
        return st;
    const exo_add_args added = {p.m, EXO_F32, k->db, k->db, p.vector};
    const exo_column_sums_args sums = {s->rows, s->out, p.dtype, k->db, k->dy, true};
    return p.vector ? exo_cuda_add(device, &added, err) : exo_cuda_column_sums(device, &sums, err);
}

EXO_CUDA_MAP_TYPED(activation_backward, k.dx, exo_cuda_from<T>(k.x), exo_cuda_from<T>(k.dy), false,
                   (b * exo_cuda_activation_slope(k.activation, a)))

/* --- Low-rank parts --------------------------------------------------------------------------- */

__global__ static void
lora_merge_each(exo_lora_merge_args k)
{
    for (EXO_CUDA_EACH(at, k.rows * k.columns)) {
        const size_t r = at / k.columns, c = at % k.columns;
        float sum = 0;
        for (size_t i = 0; i < k.rank; i++) {
            const float product = k.b[r * k.rank + i] * k.a[i * k.columns + c];
            sum = sum + product;
        }
        k.y[at] = k.x[at] + k.scale * sum;
    }
}

exo_status
exo_cuda_lora_merge(exo_device *device, const exo_lora_merge_args *k, exo_err *err)
{
    const size_t count = k->rows * k->columns;
    if (count > 0)
        exo_cuda_launch_each(lora_merge_each, exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("lora_merge", err);
}

/* --- Sums of columns -------------------------------------------------------------------------- */

enum {
    PART_ROWS = 128 /* of a part, at least */
};

__device__ static void
write_column(const exo_column_sums_args &k, size_t c, double sum)
{
    k.y[c] = (k.add ? k.y[c] : 0.0f) + static_cast<float>(sum);
}

/* A block has a part of the rows (y). The only part writes the result, else each leaves its sums in
 * `partials` (parts, columns). */
template <typename T>
__global__ static void
__launch_bounds__(EXO_CUDA_COLUMN_BLOCK)
    add_columns(exo_column_sums_args k, size_t part_rows, double *partials)
{
    const size_t c = exo_cuda_own_column(), first = blockIdx.y * part_rows;
    const size_t end = first + part_rows < k.rows ? first + part_rows : k.rows;
    const double sum = exo_cuda_column_total(static_cast<const T *>(k.x), k.columns, first, end);
    if (threadIdx.x >= EXO_CUDA_COLUMNS || c >= k.columns)
        return;
    if (gridDim.y == 1)
        write_column(k, c, sum);
    else
        partials[blockIdx.y * k.columns + c] = sum;
}

__global__ static void
add_column_parts(exo_column_sums_args k, size_t parts, const double *partials)
{
    for (EXO_CUDA_EACH(c, k.columns)) {
        double sum = 0;
        EXO_CUDA_READ_AHEAD(8)
        for (size_t p = 0; p < parts; p++)
            sum += partials[p * k.columns + c];
        write_column(k, c, sum);
    }
}

/* The parts of the rows: as many as there are partials for, by the shape alone. */
static size_t
parts_for(const exo_column_sums_args *k)
{
    const size_t room = EXO_CUDA_PARTIALS / k->columns, limit = EXO_CUDA_PARTS;
    const size_t most = room < limit ? room : limit, parts = k->rows / PART_ROWS;
    return parts > most ? (most ? most : 1) : (parts ? parts : 1);
}

template <typename T>
static exo_status
column_sums(exo_device *device, const exo_column_sums_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    if (k->columns == 0)
        return EXO_OK;
    const size_t parts = parts_for(k);
    const dim3 grid(static_cast<unsigned>((k->columns + EXO_CUDA_COLUMNS - 1) / EXO_CUDA_COLUMNS),
                    static_cast<unsigned>(parts));
    exo_cuda_launch(add_columns<T>, grid, EXO_CUDA_COLUMN_BLOCK, 0, cuda->stream, *k,
                    (k->rows + parts - 1) / parts, cuda->partials);
    if (parts > 1)
        exo_cuda_launch_each(add_column_parts, exo_cuda_blocks(k->columns, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, *k, parts, cuda->partials);
    return exo_cuda_launched("column_sums", err);
}

exo_status
exo_cuda_column_sums(exo_device *device, const exo_column_sums_args *k, exo_err *err)
{
    return EXO_CUDA_BY_TYPE(k->dtype, column_sums, device, k, err);
}
