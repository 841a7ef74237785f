/* A head over a large vocabulary: logits, their log-sums or entropies, and gradients, with a part
 * of the logits in memory at a time (exo_head_args).
 *
 * Rows are cut into chunks, and the vocabulary into blocks, which are shared out to lanes. The cuts
 * depend on shapes only, so sums have one order. A wide head keeps the logits of one chunk over the
 * whole vocabulary, and computes their gradients from them. Any other head keeps the logits of one
 * chunk and one block per runner, and computes them again for gradients, except those of its first
 * tiles if it gets memory for them.
 *
 * State: a plan belongs to its operation, which runs one call at a time. Read next: softmax.h,
 * gemm.h. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "base/bf16.h"
#include "nn/cpu/gemm.h"
#include "nn/cpu/invariant.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"
#include "nn/cpu/softmax.h"

enum {
    LANES = EXO_HEAD_LANES,
    CHUNK_ELEMENTS = 1 << 24, /* logits of a chunk over the whole vocabulary: 64 MiB */
    KEPT_ELEMENTS = 1 << 24,  /* logits from forward to backward: 64 MiB */
    KEPT_OF_BF16 = 3 << 22,   /* the same beside operands of bf16: 48 MiB */
    MIN_CHUNK = 64,
    MAX_CHUNK = 1024,
    MIN_BLOCK = 64,
    MAX_BLOCK = 512,
    SUM_ROWS = 32
};

/* The products of one plan, indexed by [the last chunk?][the last block?]. */
struct head_plan {
    exo_plan plan;
    exo_head_shape shape;
    /* Rows of a chunk, and elements of the vocabulary in a block. */
    size_t chunk, block;
    /* The number of chunks and of blocks. */
    size_t chunks, blocks;
    /* Chunks whose gradients are computed together. Parts of dx take memory for each of them. */
    size_t span;
    /* Tiles of each lane, its first ones, whose logits forward keeps if it gets memory for them. */
    size_t kept;
    size_t kept_room; /* numbers: of a lane's memory for them */
    exo_gemm *logits[2][2], *grad_x[2][2], *grad_w[2][2];
};

/* A call with its buffers in the scratch. Buffers are per runner, except where noted. */
struct head {
    struct head_plan *plan;
    exo_head_args k;
    /* The logits, chunk x block. Wide: chunk x vocabulary, for all runners. */
    float *buffer;
    /* For all runners: blocks x rows (wide: chunk) x sums_of() numbers. */
    float *sums;
    char *gradients;  /* chunk x block of the shape's dtype */
    char *block_cast; /* block x width of the shape's dtype */
    float *rows;      /* block x width: weights' gradient for take_rows */
    float *packed;    /* block x width: weights in panels, of an invariant head */
    /* Parts of dx: lanes x rows of `span` chunks x width, one part per lane. */
    float *partials;
};

/* --- Plan ------------------------------------------------------------------------------------- */

static size_t
rows_of(const struct head_plan *p, size_t chunk)
{
    return exo_piece_length(p->shape.rows, p->chunk, chunk);
}

static size_t
columns_of(const struct head_plan *p, size_t block)
{
    return exo_piece_length(p->shape.vocabulary, p->block, block);
}

/* The most logits of a tile. */
static size_t
size_of_tile(const struct head_plan *p)
{
    return rows_of(p, 0) * columns_of(p, 0);
}

/* The pitch of a block's logits. An invariant head writes them a panel of weights at a time. */
static size_t
stride_of_block(const struct head_plan *p)
{
    size_t columns = columns_of(p, 0);
    return p->shape.invariant ? exo_decode_stride(columns) : columns;
}

static exo_status
plan_products(struct head_plan *p, size_t rows, size_t columns, int r, int c, exo_err *err)
{
    const exo_head_shape *s = &p->shape;
    exo_gemm_shape g = {.rows = rows,
                        .cols = columns,
                        .inner = s->width,
                        .transpose_b = 1,
                        .c_stride = s->wide ? s->vocabulary : columns,
                        .in_dtype = s->dtype,
                        .out_dtype = EXO_F32};
    exo_status st = exo_gemm_new(&p->logits[r][c], &g, LANES, err);
    if (st != EXO_OK || !s->gradients)
        return st;
    g = (exo_gemm_shape){.rows = rows,
                         .cols = s->width,
                         .inner = columns,
                         .in_dtype = s->dtype,
                         .out_dtype = EXO_F32,
                         .add = 1};
    st = exo_gemm_new(&p->grad_x[r][c], &g, LANES, err);
    g = (exo_gemm_shape){.rows = columns,
                         .cols = s->width,
                         .inner = rows,
                         .transpose_a = 1,
                         .in_dtype = s->dtype,
                         .out_dtype = EXO_F32,
                         .add = 1};
    return st == EXO_OK ? exo_gemm_new(&p->grad_w[r][c], &g, LANES, err) : st;
}

static size_t
clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Cuts the rows and the vocabulary. */
static void
cut(struct head_plan *p, const exo_head_shape *shape)
{
    p->shape = *shape;
    size_t lanes_worth = (shape->vocabulary / (2 * LANES) + 63) / 64 * 64;
    p->block = shape->invariant ? EXO_LOG_SUM_PART : clamp(lanes_worth, MIN_BLOCK, MAX_BLOCK);
    p->chunk = clamp(CHUNK_ELEMENTS / shape->vocabulary / 64 * 64, MIN_CHUNK, MAX_CHUNK);
    p->chunks = exo_pieces(shape->rows, p->chunk);
    p->blocks = exo_pieces(shape->vocabulary, p->block);
    /* If the span is more than 1, all parts of dx together take at most half the memory of the
     * weights' gradient. */
    p->span = shape->wide ? 1 : clamp(shape->vocabulary / (2 * LANES * p->chunk), 1, p->chunks);
    const size_t all = exo_pieces(p->blocks, LANES) * p->chunks,
                 room = (shape->dtype == EXO_BF16 ? KEPT_OF_BF16 : KEPT_ELEMENTS) / LANES,
                 fit = room / size_of_tile(p);
    p->kept = shape->wide || shape->invariant ? 0 : clamp(fit, 0, all);
    /* A full room has a round size, which other buffers of a pass have, too. */
    p->kept_room = p->kept == fit && fit > 0 ? room : p->kept * size_of_tile(p);
}

exo_status
exo_cpu_head_plan(exo_plan **out, const exo_head_shape *shape, exo_err *err)
{
    exo_status st = EXO_OK;
    struct head_plan *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "no memory for the plan of a head");
    cut(p, shape);
    size_t rows[2] = {p->chunk, rows_of(p, p->chunks - 1)},
           columns[2] = {p->block, columns_of(p, p->blocks - 1)};
    for (int r = 0; r < 2; r++)
        for (int c = 0; st == EXO_OK && c < 2; c++) {
            bool needed = (r == 1 || p->chunks > 1) && (c == 1 || p->blocks > 1);
            if (needed)
                st = plan_products(p, rows[r], columns[c], r, c, err);
        }
    if (st == EXO_OK)
        *out = &p->plan;
    else
        exo_cpu_head_plan_free(&p->plan);
    return st;
}

void
exo_cpu_head_plan_free(exo_plan *plan)
{
    struct head_plan *p = (struct head_plan *)(void *)plan;
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            exo_gemm_free(&p->logits[r][c]);
            exo_gemm_free(&p->grad_x[r][c]);
            exo_gemm_free(&p->grad_w[r][c]);
        }
    exo_free(p);
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* The number of rows in chunks [begin, end). */
static size_t
rows_between(const struct head_plan *p, size_t begin, size_t end)
{
    size_t first = begin * p->chunk, last = end * p->chunk;
    return (last < p->shape.rows ? last : p->shape.rows) - first;
}

/* How many numbers a block leaves for each row: the maximum and the sum, and for entropies also the
 * sum of exo_softmax_margins. */
static size_t
sums_of(const struct head_plan *p)
{
    return p->shape.entropy ? 3 : 2;
}

/* The next `bytes` of the scratch. With scratch NULL it only counts them. */
static void *
part(char *scratch, size_t *used, size_t bytes)
{
    char *at = scratch ? scratch + *used : NULL;
    *used += exo_aligned_size(bytes);
    return at;
}

/* Lays out the buffers of a call in its scratch. Returns the size of the scratch. */
static size_t
lay_out(struct head *h, const struct head_plan *p, exo_scratch_use use, char *scratch)
{
    const exo_head_shape *s = &p->shape;
    size_t used = 0, chunk = rows_of(p, 0), width = s->width, block = stride_of_block(p),
           runners = exo_runners(LANES), element = exo_dtype_size((exo_dtype)s->dtype);
    h->buffer =
        part(scratch, &used,
             (s->wide ? chunk * s->vocabulary : runners * chunk * block) * sizeof *h->buffer);
    h->sums = part(scratch, &used,
                   p->blocks * (s->wide ? chunk : s->rows) * sums_of(p) * sizeof *h->sums);
    if (s->dtype != EXO_F32 && !s->wide)
        h->block_cast = part(scratch, &used, runners * block * width * element);
    if (s->invariant && use == EXO_SCRATCH_FORWARD)
        h->packed = part(scratch, &used, runners * exo_rows_matrix_bytes(block, width));
    if (s->wide || use != EXO_SCRATCH_FORWARD) {
        h->gradients = part(scratch, &used, runners * chunk * block * element);
        h->partials =
            part(scratch, &used, LANES * rows_between(p, 0, p->span) * width * sizeof *h->partials);
    }
    if (use == EXO_SCRATCH_ROWS)
        h->rows = part(scratch, &used, runners * block * width * sizeof *h->rows);
    return used;
}

size_t
exo_cpu_head_scratch(const exo_head_shape *shape, exo_scratch_use use)
{
    struct head_plan p = {0};
    struct head h = {0};
    cut(&p, shape);
    if (use == EXO_SCRATCH_ROWS && p.span < p.chunks)
        return 0;
    if (use == EXO_SCRATCH_LOGITS)
        return shape->gradients ? p.kept_room * sizeof(float) : 0;
    return lay_out(&h, &p, use, NULL);
}

static struct head
head_of(const exo_head_args *k, exo_scratch_use use)
{
    struct head h = {.plan = (struct head_plan *)(void *)k->plan, .k = *k};
    lay_out(&h, h.plan, use, k->scratch);
    return h;
}

/* --- A block ---------------------------------------------------------------------------------- */

/* A loop of all lanes over some chunks. */
struct loop {
    struct head *head;
    size_t begin, end;  /* chunks */
    size_t first, rows; /* of x */
    exo_failure failure;
};

/* A tile of the logits, one chunk x one block, on one runner. */
struct tile {
    size_t runner, lane;
    size_t block, columns, column; /* the block's number, size and first element */
    const void *weight;            /* (columns, width) of the shape's dtype */
    size_t chunk, rows, row;
    float *logits; /* (rows, columns) */
    size_t stride; /* of a row of the logits */
    bool kept;     /* the logits stay from forward to backward */
};

static struct loop
loop_of(struct head *h, size_t begin, size_t end)
{
    const struct head_plan *p = h->plan;
    return (struct loop){.head = h,
                         .begin = begin,
                         .end = end,
                         .first = begin * p->chunk,
                         .rows = rows_between(p, begin, end)};
}

/* The blocks of a lane: [*begin, *end). */
static void
lane_blocks(const struct head_plan *p, size_t lane, size_t *begin, size_t *end)
{
    *begin = lane * p->blocks / LANES;
    *end = (lane + 1) * p->blocks / LANES;
}

static const void *
elements(const void *of, size_t skip, size_t dtype)
{
    return (const char *)of + skip * exo_dtype_size((exo_dtype)dtype);
}

static struct tile
part_of(const struct head *h, size_t runner, size_t lane, size_t block)
{
    const struct head_plan *p = h->plan;
    struct tile part = {.runner = runner,
                        .lane = lane,
                        .block = block,
                        .columns = columns_of(p, block),
                        .column = block * p->block};
    size_t skip = part.column * p->shape.width;
    if (p->shape.dtype == EXO_F32) {
        part.weight = h->k.weight + skip;
    } else if (h->k.cast) {
        part.weight = elements(h->k.cast, skip, p->shape.dtype);
    } else {
        exo_dtype dtype = (exo_dtype)p->shape.dtype;
        void *cast =
            h->block_cast + runner * columns_of(p, 0) * p->shape.width * exo_dtype_size(dtype);
        exo_cast(EXO_F32, h->k.weight + skip, dtype, cast, part.columns * p->shape.width);
        part.weight = cast;
    }
    return part;
}

/* Where the tile's logits stay from forward to backward; NULL: they do not. */
static float *
kept_logits(const struct head *h, const struct tile *part)
{
    const struct head_plan *p = h->plan;
    size_t begin, end;
    if (!h->k.logits)
        return NULL;
    lane_blocks(p, part->lane, &begin, &end);
    const size_t index = (part->block - begin) * p->chunks + part->chunk;
    return index < p->kept ? (float *)h->k.logits[part->lane] + index * size_of_tile(p) : NULL;
}

static void
move_to_chunk(const struct head *h, struct tile *part, size_t chunk)
{
    const struct head_plan *p = h->plan;
    part->chunk = chunk;
    part->rows = rows_of(p, chunk);
    part->row = chunk * p->chunk;
    part->stride = p->shape.wide ? p->shape.vocabulary
                   : h->packed   ? stride_of_block(p)
                                 : part->columns;
    part->logits = h->buffer + (p->shape.wide ? part->column
                                              : part->runner * rows_of(p, 0) * stride_of_block(p));
    float *kept = kept_logits(h, part);
    part->kept = kept != NULL;
    part->logits = kept ? kept : part->logits;
}

static const void *
rows_of_x(const struct head *h, const struct tile *part)
{
    const exo_head_shape *s = &h->plan->shape;
    return elements(h->k.x, part->row * s->width, s->dtype);
}

/* The gemm for the tile's size. */
static exo_gemm *
product(const struct head_plan *p, exo_gemm *const kinds[2][2], const struct tile *part)
{
    return kinds[part->chunk + 1 == p->chunks][part->block + 1 == p->blocks];
}

/* The memory of a runner's weights in panels. */
static exo_decode_matrix
panels_of(const struct head *h, const struct tile *part)
{
    size_t width = h->plan->shape.width, block = stride_of_block(h->plan);
    return exo_rows_matrix(part->columns, width, h->packed + part->runner * block * width);
}

static void
pack_weights(const struct head *h, const struct tile *part)
{
    exo_decode_matrix m = panels_of(h, part);
    for (size_t panel = 0; panel < m.panels; panel++)
        exo_rows_pack(&m, part->weight, panel);
}

static void
compute_logits(struct loop *l, const struct tile *part)
{
    const struct head *h = l->head;
    exo_err err = {0};
    if (h->packed) {
        exo_decode_matrix m = panels_of(h, part);
        const exo_decode_rows x = {.x = rows_of_x(h, part), .stride = m.inputs};
        for (size_t panel = 0; panel < m.panels; panel++)
            exo_decode_product(&m, &x, part->rows, panel, &(exo_decode_end){0}, part->logits,
                               part->stride);
        return;
    }
    exo_gemm *g = product(h->plan, h->plan->logits, part);
    exo_failure_note(
        &l->failure,
        exo_gemm_run(g, part->runner, rows_of_x(h, part), part->weight, NULL, part->logits, &err),
        &err);
}

/* --- Forward ---------------------------------------------------------------------------------- */

static void
pick_targets(const struct head *h, const struct tile *part)
{
    for (size_t r = 0; r < part->rows; r++) {
        int32_t target = h->k.targets[part->row + r];
        if (target >= 0 && (size_t)target >= part->column &&
            (size_t)target < part->column + part->columns)
            h->k.picked[part->row + r] =
                part->logits[r * part->stride + (size_t)target - part->column] * h->k.scale;
    }
}

static void
forward_lane(void *context, size_t runner, size_t lane)
{
    struct loop *l = context;
    struct head *h = l->head;
    size_t begin, end;
    lane_blocks(h->plan, lane, &begin, &end);
    for (size_t b = begin; b < end; b++) {
        struct tile part = part_of(h, runner, lane, b);
        if (h->packed)
            pack_weights(h, &part);
        for (size_t c = l->begin; c < l->end; c++) {
            move_to_chunk(h, &part, c);
            compute_logits(l, &part);
            float *sums = h->sums + b * l->rows * sums_of(h->plan) + (part.row - l->first);
            if (!h->k.targets) {
                exo_softmax_margins(part.logits, part.rows, part.stride, part.columns, h->k.scale,
                                    sums, sums + l->rows, sums + 2 * l->rows);
                continue;
            }
            pick_targets(h, &part);
            exo_softmax_part(part.logits, part.rows, part.stride, part.columns, h->k.scale, sums,
                             sums + l->rows);
        }
    }
}

/* Adds up what the blocks left of a row, `stride` numbers apart, for its entropy. Let t be the top
 * of a block, s its sum and g its margin, and T the largest top. With d = scale (T - t) the block
 * adds e^-d s to the row's sum S, and e^-d (d s + g) to G. The entropy is log S + G / S. No term is
 * negative, so nothing cancels. */
static void
sum_entropy(struct head *h, const float *parts, size_t rows, size_t stride, size_t row)
{
    double top = -INFINITY, sum = 0, margin = 0, scale = (double)h->k.scale;
    for (size_t b = 0; b < h->plan->blocks; b++) /* with fmax, gcc 12 for ARM fails (its bug) */
        top = (double)parts[b * stride] > top ? (double)parts[b * stride] : top;
    for (size_t b = 0; b < h->plan->blocks; b++) {
        const float *part = parts + b * stride;
        double below = scale * (top - (double)part[0]), e = exp(-below);
        if (e == 0) /* logits of -infinity have no sum */
            continue;
        sum += e * (double)part[rows];
        margin += e * (below * (double)part[rows] + (double)part[2 * rows]);
    }
    h->k.log_sum[row] = (float)(scale * top + log(sum));
    h->k.entropy[row] = (float)(log(sum) + margin / sum);
}

/* The same for the log-sum. */
static void
sum_logs(struct head *h, const float *parts, size_t rows, size_t stride, size_t row)
{
    exo_log_sum all = EXO_NO_TERMS;
    for (size_t b = 0; b < h->plan->blocks; b++)
        exo_log_sum_add(&all, parts[b * stride], parts[b * stride + rows]);
    double log_sum = exo_log_sum_value(&all);
    h->k.log_sum[row] = (float)log_sum;
    if (h->plan->shape.invariant)
        h->k.picked[row] = h->k.targets[row] < 0 ? 0 : (float)((double)h->k.picked[row] - log_sum);
}

/* A piece of SUM_ROWS rows. */
static void
sum_blocks(void *context, size_t piece)
{
    const struct loop *l = context;
    struct head *h = l->head;
    size_t first = piece * SUM_ROWS, end = first + exo_piece_length(l->rows, SUM_ROWS, piece);
    size_t stride = l->rows * sums_of(h->plan);
    for (size_t r = first; r < end; r++)
        if (h->k.targets)
            sum_logs(h, h->sums + r, l->rows, stride, l->first + r);
        else
            sum_entropy(h, h->sums + r, l->rows, stride, l->first + r);
}

static exo_status
forward_chunks(struct head *h, size_t begin, size_t end, exo_err *err)
{
    struct loop l = loop_of(h, begin, end);
    exo_run_for(LANES, forward_lane, &l);
    exo_parallel_for(exo_pieces(l.rows, SUM_ROWS), sum_blocks, &l);
    return exo_failure_result(&l.failure, err);
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* d logits of a tile, from its logits. */
static void
part_gradient(const struct head *h, const struct tile *part, void *out)
{
    exo_dtype dtype = (exo_dtype)h->plan->shape.dtype;
    if (!h->k.targets) {
        exo_softmax_entropy(part->logits, part->rows, part->stride, part->columns, h->k.scale,
                            h->k.log_sum + part->row, h->k.entropy + part->row,
                            h->k.factor + part->row, dtype, out);
        return;
    }
    exo_softmax_scaled(part->logits, part->rows, part->stride, part->columns, h->k.scale,
                       h->k.log_sum + part->row, h->k.factor + part->row, dtype, out);
    for (size_t r = 0; r < part->rows; r++) {
        int32_t target = h->k.targets[part->row + r];
        if (target < 0 || (size_t)target < part->column ||
            (size_t)target >= part->column + part->columns || h->k.factor[part->row + r] == 0.0f)
            continue;
        /* The target's gradient is factor (p - 1). expm1 keeps the digits that p - 1 loses where p
         * is near 1. */
        size_t column = (size_t)target - part->column, at = r * part->columns + column;
        double logit = (double)(part->logits[r * part->stride + column] * h->k.scale);
        float value =
            h->k.factor[part->row + r] * (float)expm1(logit - (double)h->k.log_sum[part->row + r]);
        if (dtype == EXO_BF16)
            ((uint16_t *)out)[at] = exo_to_bf16(value);
        else
            ((float *)out)[at] = value;
    }
}

/* Adds a tile's part of dx to `partial` (rows of the loop, width), and its part of the weights'
 * gradient to `dw` (columns, width). dw may be NULL: not wanted. */
static void
add_gradients(struct loop *l, const struct tile *part, float *partial, float *dw)
{
    const struct head *h = l->head;
    const struct head_plan *p = h->plan;
    size_t width = p->shape.width;
    exo_err err = {0};
    char *out = h->gradients + part->runner * rows_of(p, 0) * columns_of(p, 0) *
                                   exo_dtype_size((exo_dtype)p->shape.dtype);
    part_gradient(h, part, out);
    if (h->k.dx)
        exo_failure_note(&l->failure,
                         exo_gemm_run(product(p, p->grad_x, part), part->runner, out, part->weight,
                                      NULL, partial + (part->row - l->first) * width, &err),
                         &err);
    if (dw)
        exo_failure_note(&l->failure,
                         exo_gemm_run(product(p, p->grad_w, part), part->runner, out,
                                      rows_of_x(h, part), NULL, dw, &err),
                         &err);
}

static void
gradients_lane(void *context, size_t runner, size_t lane)
{
    struct loop *l = context;
    struct head *h = l->head;
    const struct head_plan *p = h->plan;
    size_t width = p->shape.width, begin, end;
    float *partial = h->partials + lane * l->rows * width;
    lane_blocks(p, lane, &begin, &end);
    memset(partial, 0, l->rows * width * sizeof *partial);
    for (size_t b = begin; b < end; b++) {
        struct tile part = part_of(h, runner, lane, b);
        float *dw = h->k.dweight ? h->k.dweight + part.column * width : NULL;
        if (h->k.take_rows) {
            dw = h->rows + runner * columns_of(p, 0) * width;
            memset(dw, 0, part.columns * width * sizeof *dw);
        }
        for (size_t c = l->begin; c < l->end; c++) {
            move_to_chunk(h, &part, c);
            if (!p->shape.wide && !part.kept)
                compute_logits(l, &part);
            add_gradients(l, &part, partial, dw);
        }
        if (h->k.take_rows)
            h->k.take_rows(h->k.context, part.column, part.columns, dw);
    }
}

/* Adds the lanes' parts of a row of dx, in the order of the lanes. */
static void
sum_row(void *context, size_t row)
{
    const struct loop *l = context;
    const struct head *h = l->head;
    size_t width = h->plan->shape.width;
    float *restrict dx = h->k.dx + (l->first + row) * width;
    for (size_t lane = 0; lane < LANES; lane++) {
        const float *restrict part = h->partials + (lane * l->rows + row) * width;
        for (size_t i = 0; i < width; i++)
            dx[i] += part[i];
    }
}

static exo_status
gradient_chunks(struct head *h, size_t begin, size_t end, exo_err *err)
{
    struct loop l = loop_of(h, begin, end);
    exo_run_for(LANES, gradients_lane, &l);
    if (h->k.dx)
        exo_parallel_for(l.rows, sum_row, &l);
    return exo_failure_result(&l.failure, err);
}

/* --- All rows --------------------------------------------------------------------------------- */

exo_status
exo_cpu_head(exo_device *device, const exo_head_args *k, exo_err *err)
{
    struct head h = head_of(k, EXO_SCRATCH_FORWARD);
    const struct head_plan *p = h.plan;
    (void)device;
    if (!p->shape.wide)
        return forward_chunks(&h, 0, p->chunks, err);
    exo_status st = EXO_OK;
    for (size_t c = 0; st == EXO_OK && c < p->chunks; c++) {
        st = forward_chunks(&h, c, c + 1, err);
        if (st == EXO_OK && k->factor)
            st = gradient_chunks(&h, c, c + 1, err);
    }
    return st;
}

exo_status
exo_cpu_head_backward(exo_device *device, const exo_head_backward_args *k, exo_err *err)
{
    struct head h = head_of(k, k->take_rows ? EXO_SCRATCH_ROWS : EXO_SCRATCH_BACKWARD);
    const struct head_plan *p = h.plan;
    exo_status st = EXO_OK;
    (void)device;
    for (size_t c = 0; st == EXO_OK && c < p->chunks; c += p->span)
        st = gradient_chunks(&h, c, c + p->span < p->chunks ? c + p->span : p->chunks, err);
    return st;
}
