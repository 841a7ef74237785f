/* A head over a large vocabulary (exo_head_args), with a tile of the logits in memory at a time:
 * some rows by a block of the vocabulary. For each row, the maximum and the sums of exponentials go
 * on from block to block. Gradients compute the logits again, except in a wide head, whose blocks
 * are the whole vocabulary. The cuts depend on shapes alone, so sums have one order.
 *
 * Logits are fp32. A wide head with targets and products of bf16, which is the loss of a training
 * pass, has them in bf16, as PyTorch's autocast does, and computes their gradients in their place
 * (logit_rows.h).
 *
 * No state. Read next: matmul.h, plans.h. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/log_sum.h"
#include "nn/cuda/logit_rows.h"
#include "nn/cuda/map.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/plans.h"

#ifndef EXO_CUDA_WIDE_ELEMENTS /* the tests have smaller tiles */
#define EXO_CUDA_WIDE_ELEMENTS (9 << 25)
#endif

enum {
    TILE_ELEMENTS = 1 << 24, /* logits of a tile: 64 MiB */
    /* Of a wide head, each tile of which adds to the whole gradient of the weights: up to 1.1 GiB,
     * and as many of gradients in bf16. Logits of bf16 have that memory alone, three times as
     * many: 16,384 rows of GPT-2 are one tile, and its product for dx has 384 blocks of (128,
     * 256), three for each of 128 multiprocessors. */
    WIDE_ELEMENTS = EXO_CUDA_WIDE_ELEMENTS,
    NARROW_TIMES = 3,
    LINE = 64, /* elements; a row of a tile begins at a multiple, for wide accesses */
    MOST_BLOCK = EXO_CUDA_LOG_SUM_PART,
    LEAST_CHUNK = 64 /* rows */
};

/* A call with its buffers in the scratch. */
struct head {
    const exo_head_shape *shape;
    exo_head_args k;
    size_t chunk, block;     /* rows and elements of the vocabulary of a tile */
    size_t pitch;            /* of a row: the block, filled up */
    bool narrow_logits;      /* they are bf16, else fp32 */
    void *logits;            /* (chunk, pitch) */
    exo_cuda_row_sums *sums; /* (rows); with narrow logits NULL */
    void *gradients; /* (chunk, pitch) of the shape's dtype; if logits are, too: the logits */
    void *cast;      /* (block, width): weights of the shape's dtype */
    size_t bytes;
};

/* The rows of a tile, of which `elements` logits are the most: all tiles have about as many, since a
 * product with few rows takes as long as one with many. */
static size_t
rows_of_tile(size_t rows, size_t pitch, size_t elements)
{
    const size_t least = LEAST_CHUNK, fit = elements / pitch / least * least;
    const size_t most = fit < least ? least : fit, tiles = (rows + most - 1) / most;
    const size_t even = tiles > 0 ? (rows + tiles - 1) / tiles : 0;
    const size_t filled = (even + least - 1) / least * least;
    return filled < rows ? filled : rows;
}

static head
lay_out(const exo_head_shape *s, void *scratch)
{
    exo_cuda_room r = {static_cast<char *>(scratch), 0};
    const size_t whole = s->vocabulary, most_block = MOST_BLOCK, line = LINE;
    const size_t most = TILE_ELEMENTS, most_wide = WIDE_ELEMENTS;
    const bool narrow = s->dtype != EXO_F32;
    head h = {};
    h.shape = s;
    h.block = s->wide || whole < most_block ? whole : most_block;
    h.pitch = (h.block + line - 1) / line * line;
    h.narrow_logits = narrow && s->wide && !s->entropy;
    const size_t wide = h.narrow_logits ? most_wide * NARROW_TIMES : most_wide;
    h.chunk = rows_of_tile(s->rows, h.pitch, s->wide ? wide : most);
    h.logits = exo_cuda_take(&r, h.chunk * h.pitch,
                             h.narrow_logits ? sizeof(exo_cuda_bf16) : sizeof(float));
    if (!h.narrow_logits)
        h.sums =
            static_cast<exo_cuda_row_sums *>(exo_cuda_take(&r, s->rows, sizeof(exo_cuda_row_sums)));
    h.gradients = narrow && !h.narrow_logits
                      ? exo_cuda_take(&r, h.chunk * h.pitch, sizeof(exo_cuda_bf16))
                      : h.logits;
    if (narrow && !s->wide)
        h.cast = exo_cuda_take(&r, h.block * s->width, sizeof(exo_cuda_bf16));
    h.bytes = r.bytes;
    return h;
}

size_t
exo_cuda_head_scratch(const exo_head_shape *shape, exo_scratch_use use)
{
    return use == EXO_SCRATCH_ROWS || use == EXO_SCRATCH_LOGITS ? 0 : lay_out(shape, NULL).bytes;
}

/* --- Kernels: a block is a row of a tile ------------------------------------------------------ */

/* A tile: rows [row, row + rows) by columns [column, column + columns). The kernels here are for
 * logits of fp32. */
struct tile {
    size_t row, rows, column, columns, pitch;
    void *logits;
    exo_cuda_row_sums *sums;
    void *gradients;
    float scale;
    const int32_t *targets;
    const float *log_sum, *entropy, *factor;
    float *picked;
};

/* Goes on with the sums of a tile's rows. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) add_tile(tile t)
{
    const size_t row = t.row + blockIdx.x;
    const float *z = static_cast<const float *>(t.logits) + blockIdx.x * t.pitch;
    const exo_cuda_row_sums before = t.column > 0 ? t.sums[row] : exo_cuda_row_sums{0, 0, 0};
    const exo_cuda_row_sums now =
        exo_cuda_add_parts(z, t.columns, t.scale, t.entropy != NULL, t.column > 0 ? &before : NULL);
    if (threadIdx.x > 0)
        return;
    t.sums[row] = now;
    const size_t place = t.targets && t.targets[row] >= 0
                             ? static_cast<size_t>(t.targets[row]) - t.column
                             : t.columns; /* wraps around if it is before the tile */
    if (place < t.columns)
        t.picked[row] = t.scale * z[place];
}

/* From the sums of rows to what the call wants. */
__global__ static void
end_rows(size_t rows, const exo_cuda_row_sums *sums, exo_head_args k, bool entropy, bool invariant)
{
    for (EXO_CUDA_EACH(r, rows)) {
        const float log_sum = exo_cuda_log_sum_of(sums[r]);
        k.log_sum[r] = log_sum;
        if (entropy)
            k.entropy[r] = logf(sums[r].sum) - sums[r].margin / sums[r].sum;
        else if (invariant)
            k.picked[r] = k.targets[r] < 0 ? 0 : k.picked[r] - log_sum;
    }
}

/* What a row's gradients have in common. */
struct row_numbers {
    float scale, log_sum, entropy, factor;
    bool has_entropy;
    size_t target; /* SIZE_MAX: none */
};

__device__ static inline row_numbers
numbers_of(const tile &t, size_t row)
{
    const bool has_target = !t.entropy && t.targets[row] >= 0;
    return {t.scale,
            t.log_sum[row],
            t.entropy ? t.entropy[row] : 0.0f,
            t.factor[row],
            t.entropy != NULL,
            has_target ? static_cast<size_t>(t.targets[row]) : SIZE_MAX};
}

/* The gradient of a logit, of column v. The logits of a row without a target may be infinite. */
__device__ static inline float
gradient_of(const row_numbers &r, size_t v, float logit)
{
    if (r.factor == 0)
        return 0;
    const float log_p = r.scale * logit - r.log_sum, p = expf(log_p);
    const float d =
        r.has_entropy ? (p > 0 ? p * (log_p + r.entropy) : 0) : p - (r.target == v ? 1.0f : 0.0f);
    return r.factor * d;
}

/* The gradients of a tile's logits: a block is a row, and a thread takes four of it at a time. */
template <typename T>
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) differentiate(tile t)
{
    const row_numbers row = numbers_of(t, t.row + blockIdx.x);
    const float *z = static_cast<const float *>(t.logits) + blockIdx.x * t.pitch;
    T *const out = static_cast<T *>(t.gradients) + blockIdx.x * t.pitch;
    for (size_t i = threadIdx.x * 4; i < t.columns; i += EXO_CUDA_BLOCK * 4) {
        float four[4]; /* the pitch has room for those behind the last column */
        exo_cuda_get_four(z, i, four);
        for (size_t j = 0; j < 4; j++)
            four[j] = i + j < t.columns ? gradient_of(row, t.column + i + j, four[j]) : 0.0f;
        exo_cuda_set_four(out, i, four);
    }
}

template <typename T>
static void
start_differentiate(exo_cuda_device *cuda, const tile &t)
{
    exo_cuda_launch_each(differentiate<T>, static_cast<unsigned>(t.rows), EXO_CUDA_BLOCK,
                         cuda->stream, t);
}

/* --- Tiles ------------------------------------------------------------------------------------ */

static tile
tile_of(const head *h, size_t row, size_t column, bool gradients)
{
    const exo_head_shape *s = h->shape;
    tile t = {};
    t.row = row;
    t.rows = s->rows - row < h->chunk ? s->rows - row : h->chunk;
    t.column = column;
    t.columns = s->vocabulary - column < h->block ? s->vocabulary - column : h->block;
    t.pitch = h->pitch;
    t.logits = h->logits;
    t.sums = h->sums;
    t.gradients = h->gradients;
    t.scale = h->k.scale;
    t.targets = s->entropy ? NULL : h->k.targets;
    t.log_sum = h->k.log_sum;
    t.entropy = s->entropy ? h->k.entropy : NULL;
    t.factor = gradients ? h->k.factor : NULL;
    t.picked = h->k.picked;
    return t;
}

static const void *
elements(const void *of, size_t skip, size_t dtype)
{
    return static_cast<const char *>(of) + skip * exo_dtype_size(static_cast<exo_dtype>(dtype));
}

/* *out: the weights of the block from `column` on, in the shape's dtype. */
static exo_status
weights_of(exo_device *device, const head *h, size_t column, const void **out, exo_err *err)
{
    const exo_head_shape *s = h->shape;
    const size_t skip = column * s->width, left = s->vocabulary - column;
    *out = s->dtype == EXO_F32 ? h->k.weight + skip : elements(h->k.cast, skip, s->dtype);
    if (s->dtype == EXO_F32 || h->k.cast)
        return EXO_OK;
    exo_cast_args cast = {};
    cast.count = (left < h->block ? left : h->block) * s->width;
    cast.to = static_cast<exo_dtype>(s->dtype);
    cast.from = EXO_F32;
    cast.y = h->cast;
    cast.x = h->k.weight + skip;
    *out = h->cast;
    return exo_cuda_cast(device, &cast, err);
}

static exo_cuda_product
product_of(const head *h)
{
    exo_cuda_product p = {};
    p.batch = 1;
    p.dtype = static_cast<exo_dtype>(h->shape->dtype);
    p.out_dtype = EXO_F32;
    p.alpha = 1;
    return p;
}

/* The logits of a tile: x weight^T. */
static exo_status
multiply(exo_cuda_device *cuda, const head *h, const tile *t, const void *weights, exo_err *err)
{
    const exo_head_shape *s = h->shape;
    exo_cuda_product p = product_of(h);
    p.m = t->rows;
    p.n = t->columns;
    p.k = p.lda = p.ldb = s->width;
    p.transpose_b = true;
    p.a = elements(h->k.x, t->row * s->width, s->dtype);
    p.b = weights;
    p.out_dtype = h->narrow_logits ? EXO_BF16 : EXO_F32;
    p.c = t->logits;
    p.ldc = t->pitch;
    return s->invariant ? exo_cuda_multiply_invariant(cuda, &p, err)
                        : exo_cuda_multiply(cuda, &p, err);
}

/* Of a tile with narrow logits: the sums, and with factors the gradients. */
static void
start_rows(exo_cuda_device *cuda, const head *h, const tile *t)
{
    const exo_cuda_logit_rows_args k = {t->rows,
                                        t->columns,
                                        t->pitch,
                                        t->scale,
                                        static_cast<exo_cuda_bf16 *>(t->logits),
                                        t->targets + t->row,
                                        t->factor ? t->factor + t->row : NULL,
                                        h->k.log_sum + t->row,
                                        h->k.picked ? h->k.picked + t->row : NULL};
    exo_cuda_logit_rows(cuda, &k);
}

/* From a tile's logits to their gradients. */
static void
differentiate_tile(exo_cuda_device *cuda, const head *h, const tile *t)
{
    if (h->narrow_logits)
        start_rows(cuda, h, t);
    else
        EXO_CUDA_BY_TYPE(h->shape->dtype, start_differentiate, cuda, *t);
}

/* Goes on with the sums of a tile's rows. With `gradients`, which a wide head has, ends them, and
 * goes on to the gradients of the logits. */
static void
sum_tile(exo_cuda_device *cuda, const head *h, const tile *t, bool gradients)
{
    if (h->narrow_logits) {
        start_rows(cuda, h, t);
        return;
    }
    exo_cuda_launch(add_tile, static_cast<unsigned>(t->rows), EXO_CUDA_BLOCK, 0, cuda->stream, *t);
    if (!gradients)
        return;
    exo_head_args k = h->k;
    k.log_sum += t->row;
    k.entropy = k.entropy ? k.entropy + t->row : NULL;
    exo_cuda_launch_each(end_rows, exo_cuda_blocks(t->rows, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         cuda->stream, t->rows, h->sums + t->row, k, h->shape->entropy != 0, false);
    differentiate_tile(cuda, h, t);
}

/* Adds a tile's part to dx and dweight, from the gradients of its logits. */
static exo_status
add_gradients(exo_cuda_device *cuda, const head *h, const tile *t, const void *weights,
              exo_err *err)
{
    const exo_head_shape *s = h->shape;
    exo_status st = EXO_OK;
    exo_cuda_product p = product_of(h);
    p.beta = 1;
    p.a = t->gradients;
    p.lda = t->pitch;
    p.k = t->columns;
    p.n = p.ldb = p.ldc = s->width;
    p.m = t->rows;
    p.b = weights;
    p.c = h->k.dx ? h->k.dx + t->row * s->width : NULL;
    if (h->k.dx)
        st = exo_cuda_multiply(cuda, &p, err);
    p.transpose_a = true;
    p.m = t->columns;
    p.k = t->rows;
    p.b = elements(h->k.x, t->row * s->width, s->dtype);
    p.c = h->k.dweight ? h->k.dweight + t->column * s->width : NULL;
    return st == EXO_OK && h->k.dweight ? exo_cuda_multiply(cuda, &p, err) : st;
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* Log-sums, entropies and picked logits of all rows. A wide head computes a chunk's gradients while
 * its logits are there. */
static exo_status
go_forward(exo_device *device, const head *h, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    const exo_head_shape *s = h->shape;
    const bool gradients = s->wide && h->k.factor;
    exo_status st = EXO_OK;
    for (size_t column = 0; st == EXO_OK && column < s->vocabulary; column += h->block) {
        const void *weights = NULL;
        st = weights_of(device, h, column, &weights, err);
        for (size_t row = 0; st == EXO_OK && row < s->rows; row += h->chunk) {
            const tile t = tile_of(h, row, column, gradients);
            st = multiply(cuda, h, &t, weights, err);
            if (st != EXO_OK)
                break;
            sum_tile(cuda, h, &t, gradients);
            if (gradients)
                st = add_gradients(cuda, h, &t, weights, err);
        }
    }
    if (st == EXO_OK && !gradients && !h->narrow_logits)
        exo_cuda_launch_each(end_rows, exo_cuda_blocks(s->rows, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, s->rows, h->sums, h->k, s->entropy != 0,
                             s->invariant != 0);
    return st == EXO_OK ? exo_cuda_launched("head", err) : st;
}

exo_status
exo_cuda_head(exo_device *device, const exo_head_args *k, exo_err *err)
{
    head h = lay_out(&exo_cuda_plan_of(k->plan)->head, k->scratch);
    h.k = *k;
    return go_forward(device, &h, err);
}

exo_status
exo_cuda_head_backward(exo_device *device, const exo_head_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    head h = lay_out(&exo_cuda_plan_of(k->plan)->head, k->scratch);
    const exo_head_shape *s = h.shape;
    exo_status st = EXO_OK;
    h.k = *k;
    for (size_t column = 0; st == EXO_OK && column < s->vocabulary; column += h.block) {
        const void *weights = NULL;
        st = weights_of(device, &h, column, &weights, err);
        for (size_t row = 0; st == EXO_OK && row < s->rows; row += h.chunk) {
            const tile t = tile_of(&h, row, column, true);
            st = multiply(cuda, &h, &t, weights, err);
            if (st != EXO_OK)
                break;
            differentiate_tile(cuda, &h, &t);
            st = add_gradients(cuda, &h, &t, weights, err);
        }
    }
    return st == EXO_OK ? exo_cuda_launched("head_backward", err) : st;
}

/* --- Rows ------------------------------------------------------------------------------------- */

__global__ static void
row_factors_each(exo_row_factors_args k)
{
    for (EXO_CUDA_EACH(r, k.rows))
        k.y[r] = k.targets[r] < 0 ? 0.0f : (k.dy ? k.dy[r * k.stride] : 1.0f) * k.a / k.divisor;
}

exo_status
exo_cuda_row_factors(exo_device *device, const exo_row_factors_args *k, exo_err *err)
{
    if (k->rows > 0)
        exo_cuda_launch_each(row_factors_each, exo_cuda_blocks(k->rows, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("row_factors", err);
}

__global__ static void
picked_log_probs_each(exo_picked_log_probs_args k)
{
    for (EXO_CUDA_EACH(r, k.rows))
        k.y[r] = k.targets[r] < 0 ? 0.0f : k.y[r] - k.log_sum[r];
}

exo_status
exo_cuda_picked_log_probs(exo_device *device, const exo_picked_log_probs_args *k, exo_err *err)
{
    if (k->rows > 0)
        exo_cuda_launch_each(picked_log_probs_each, exo_cuda_blocks(k->rows, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("picked_log_probs", err);
}

/* One block: its threads share out the rows, then are added up. */
__global__ static void
__launch_bounds__(EXO_CUDA_BLOCK) add_picked(exo_picked_loss_args k)
{
    __shared__ double room[EXO_CUDA_WARP];
    double sum = 0;
    for (size_t r = threadIdx.x; r < k.rows; r += EXO_CUDA_BLOCK)
        sum += k.targets[r] < 0
                   ? 0.0
                   : static_cast<double>(k.log_sum[r]) - static_cast<double>(k.picked[r]);
    sum = exo_cuda_block_sum(sum, room);
    if (threadIdx.x == 0)
        k.y[0] = k.counted ? static_cast<float>(sum / static_cast<double>(k.counted)) : 0.0f;
}

exo_status
exo_cuda_picked_loss(exo_device *device, const exo_picked_loss_args *k, exo_err *err)
{
    exo_cuda_launch(add_picked, 1, EXO_CUDA_BLOCK, 0, exo_cuda_of(device)->stream, *k);
    return exo_cuda_launched("picked_loss", err);
}
