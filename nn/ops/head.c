/* A head over a large vocabulary: see head.h. */
#include "head.h"

#include <math.h>
#include <string.h>

#include "bf16.h"
#include "softmax.h"
#include "tape_impl.h"

enum {
    CHUNK_ELEMENTS = 1 << 24, /* of logits that are there at a time: 64 MiB */
    MIN_CHUNK = 64,
    MAX_CHUNK = 1024,
    MIN_BLOCK = 64,
    MAX_BLOCK = 512,
    SUM_ROWS = 32
};

/* --- Plan ------------------------------------------------------------------------------------------------------------------------ */

static size_t
rows_of(const exo_head_plan *p, size_t chunk)
{
    return exo_piece_length(p->shape.rows, p->chunk, chunk);
}

static size_t
columns_of(const exo_head_plan *p, size_t block)
{
    return exo_piece_length(p->shape.vocabulary, p->block, block);
}

static exo_status
plan_products(exo_head_plan *p, size_t rows, size_t columns, int r, int c, exo_err *err)
{
    const exo_head_shape *s = &p->shape;
    exo_gemm_shape g = {.rows = rows,
                        .cols = columns,
                        .inner = s->width,
                        .transpose_b = 1,
                        .c_stride = s->vocabulary,
                        .in_dtype = s->dtype,
                        .out_dtype = EXO_F32};
    exo_status st = exo_gemm_new(&p->logits[r][c], &g, EXO_HEAD_LANES, err);
    if (st != EXO_OK || !s->gradients)
        return st;
    g = (exo_gemm_shape){
        .rows = rows, .cols = s->width, .inner = columns, .in_dtype = s->dtype, .out_dtype = EXO_F32, .add = 1};
    st = exo_gemm_new(&p->grad_x[r][c], &g, EXO_HEAD_LANES, err);
    g = (exo_gemm_shape){.rows = columns,
                         .cols = s->width,
                         .inner = rows,
                         .transpose_a = 1,
                         .in_dtype = s->dtype,
                         .out_dtype = EXO_F32,
                         .add = 1};
    return st == EXO_OK ? exo_gemm_new(&p->grad_w[r][c], &g, EXO_HEAD_LANES, err) : st;
}

static size_t
clamp(size_t value, size_t least, size_t most)
{
    return value < least ? least : value > most ? most : value;
}

exo_status
exo_head_plan_init(exo_head_plan *p, const exo_head_shape *shape, exo_err *err)
{
    exo_status st = EXO_OK;
    *p = (exo_head_plan){.shape = *shape};
    size_t lanes_worth = (shape->vocabulary / (2 * EXO_HEAD_LANES) + 63) / 64 * 64;
    p->block = clamp(lanes_worth, MIN_BLOCK, MAX_BLOCK);
    p->chunk = clamp(CHUNK_ELEMENTS / shape->vocabulary / 64 * 64, MIN_CHUNK, MAX_CHUNK);
    p->chunks = exo_pieces(shape->rows, p->chunk);
    p->blocks = exo_pieces(shape->vocabulary, p->block);
    size_t rows[2] = {p->chunk, rows_of(p, p->chunks - 1)}, columns[2] = {p->block, columns_of(p, p->blocks - 1)};
    for (int r = 0; r < 2; r++)
        for (int c = 0; st == EXO_OK && c < 2; c++) {
            bool needed = (r == 1 || p->chunks > 1) && (c == 1 || p->blocks > 1);
            if (needed)
                st = plan_products(p, rows[r], columns[c], r, c, err);
        }
    if (st != EXO_OK)
        exo_head_plan_release(p);
    return st;
}

void
exo_head_plan_release(exo_head_plan *p)
{
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++) {
            exo_gemm_free(&p->logits[r][c]);
            exo_gemm_free(&p->grad_x[r][c]);
            exo_gemm_free(&p->grad_w[r][c]);
        }
}

/* --- Memory ---------------------------------------------------------------------------------------------------------------------- */

bool
exo_head_open(exo_head *h, exo_tape *tape)
{
    const exo_head_plan *p = h->plan;
    size_t chunk = rows_of(p, 0), width = p->shape.width, block = columns_of(p, 0);
    h->buffer = exo_tape_buffer(tape, chunk * p->shape.vocabulary * sizeof *h->buffer);
    h->sums = exo_tape_buffer(tape, p->blocks * chunk * 2 * sizeof *h->sums);
    if (p->shape.gradients) {
        h->blocks = exo_tape_buffer(tape, EXO_HEAD_LANES * chunk * block * exo_dtype_size((exo_dtype)p->shape.dtype));
        h->partials = exo_tape_buffer(tape, EXO_HEAD_LANES * chunk * width * sizeof *h->partials);
    }
    return exo_tape_error(tape, NULL) == EXO_OK;
}

void
exo_head_close(exo_head *h, exo_tape *tape)
{
    exo_tape_buffer_done(tape, h->buffer);
    exo_tape_buffer_done(tape, h->sums);
    exo_tape_buffer_done(tape, h->blocks);
    exo_tape_buffer_done(tape, h->partials);
}

/* --- A chunk --------------------------------------------------------------------------------------------------------------------- */

struct loop {
    exo_head *head;
    size_t chunk, first, rows; /* of x */
    int last;                  /* the chunk is the last one */
    exo_failure failure;
};

static struct loop
loop_of(exo_head *h, size_t chunk)
{
    const exo_head_plan *p = h->plan;
    return (struct loop){.head = h,
                         .chunk = chunk,
                         .first = chunk * p->chunk,
                         .rows = rows_of(p, chunk),
                         .last = chunk + 1 == p->chunks};
}

/* Blocks of a lane: [*begin, *end). */
static void
lane_blocks(const exo_head_plan *p, size_t lane, size_t *begin, size_t *end)
{
    *begin = lane * p->blocks / EXO_HEAD_LANES;
    *end = (lane + 1) * p->blocks / EXO_HEAD_LANES;
}

static const void *
elements(const void *of, size_t skip, size_t dtype)
{
    return (const char *)of + skip * exo_dtype_size((exo_dtype)dtype);
}

static void
logits_lane(void *context, size_t lane)
{
    struct loop *l = context;
    exo_head *h = l->head;
    const exo_head_plan *p = h->plan;
    const exo_head_shape *s = &p->shape;
    const void *x = elements(h->x, l->first * s->width, s->dtype);
    size_t begin, end;
    exo_err err = {0};
    lane_blocks(p, lane, &begin, &end);
    for (size_t b = begin; b < end; b++) {
        const void *w = elements(h->weight, b * p->block * s->width, s->dtype);
        float *out = h->buffer + b * p->block, *sums = h->sums + b * l->rows * 2;
        exo_gemm *g = p->logits[l->last][b + 1 == p->blocks];
        exo_failure_note(&l->failure, exo_gemm_run(g, lane, x, w, NULL, out, &err), &err);
        exo_softmax_part(out, l->rows, s->vocabulary, columns_of(p, b), h->scale, sums, sums + l->rows);
    }
}

/* Of so many rows: the sums of all blocks. */
static void
sum_blocks(void *context, size_t piece)
{
    const struct loop *l = context;
    exo_head *h = l->head;
    const exo_head_plan *p = h->plan;
    size_t first = piece * SUM_ROWS, end = first + exo_piece_length(l->rows, SUM_ROWS, piece);
    for (size_t r = first; r < end; r++) {
        int32_t target = h->targets[l->first + r];
        float max = -INFINITY;
        double sum = 0;
        for (size_t b = 0; b < p->blocks; b++)
            max = fmaxf(max, h->sums[b * l->rows * 2 + r]);
        for (size_t b = 0; b < p->blocks; b++) {
            const float *part = h->sums + b * l->rows * 2 + r;
            sum += (double)part[l->rows] * exp((double)(part[0] - max));
        }
        h->log_sum[l->first + r] = (float)((double)max + log(sum));
        if (target >= 0)
            h->picked[l->first + r] = h->buffer[r * p->shape.vocabulary + (size_t)target] * h->scale;
    }
}

exo_status
exo_head_logits(exo_head *h, size_t chunk, exo_err *err)
{
    struct loop l = loop_of(h, chunk);
    exo_parallel_for(EXO_HEAD_LANES, logits_lane, &l);
    exo_parallel_for(exo_pieces(l.rows, SUM_ROWS), sum_blocks, &l);
    return exo_failure_result(&l.failure, err);
}

/* d logits of a block from its logits. */
static void
block_gradient(const struct loop *l, size_t block, char *out)
{
    const exo_head *h = l->head;
    const exo_head_plan *p = h->plan;
    size_t first = block * p->block, columns = columns_of(p, block);
    exo_dtype dtype = (exo_dtype)p->shape.dtype;
    exo_softmax_scaled(h->buffer + first, l->rows, p->shape.vocabulary, columns, h->scale, h->log_sum + l->first,
                       h->factor + l->first, dtype, out);
    for (size_t r = 0; r < l->rows; r++) {
        int32_t target = h->targets[l->first + r];
        if (target < 0 || (size_t)target < first || (size_t)target >= first + columns)
            continue;
        /* Rounded once: what is left of a probability near 1 is small beside it. */
        size_t at = r * columns + (size_t)target - first;
        double logit = (double)(h->buffer[r * p->shape.vocabulary + (size_t)target] * h->scale);
        float value = h->factor[l->first + r] * (float)expm1(logit - (double)h->log_sum[l->first + r]);
        if (dtype == EXO_BF16)
            ((uint16_t *)(void *)out)[at] = exo_to_bf16(value);
        else
            ((float *)(void *)out)[at] = value;
    }
}

static void
gradients_lane(void *context, size_t lane)
{
    struct loop *l = context;
    exo_head *h = l->head;
    const exo_head_plan *p = h->plan;
    const exo_head_shape *s = &p->shape;
    const void *x = elements(h->x, l->first * s->width, s->dtype);
    size_t begin, end;
    exo_err err = {0};
    char *out = h->blocks + lane * rows_of(p, 0) * columns_of(p, 0) * exo_dtype_size((exo_dtype)s->dtype);
    float *partial = h->partials + lane * l->rows * s->width;
    lane_blocks(p, lane, &begin, &end);
    memset(partial, 0, l->rows * s->width * sizeof *partial);
    for (size_t b = begin; b < end; b++) {
        int short_block = b + 1 == p->blocks;
        size_t skip = b * p->block * s->width;
        block_gradient(l, b, out);
        if (h->dx)
            exo_failure_note(&l->failure,
                             exo_gemm_run(p->grad_x[l->last][short_block], lane, out,
                                          elements(h->weight, skip, s->dtype), NULL, partial, &err),
                             &err);
        if (h->dweight)
            exo_failure_note(&l->failure,
                             exo_gemm_run(p->grad_w[l->last][short_block], lane, out, x, NULL, h->dweight + skip, &err),
                             &err);
    }
}

/* Adds the lanes' parts of dx, row by row. */
static void
sum_row(void *context, size_t row)
{
    const struct loop *l = context;
    const exo_head *h = l->head;
    size_t width = h->plan->shape.width;
    float *restrict dx = h->dx + (l->first + row) * width;
    for (size_t lane = 0; lane < EXO_HEAD_LANES; lane++) {
        const float *restrict part = h->partials + (lane * l->rows + row) * width;
        for (size_t i = 0; i < width; i++)
            dx[i] += part[i];
    }
}

exo_status
exo_head_gradients(exo_head *h, size_t chunk, exo_err *err)
{
    struct loop l = loop_of(h, chunk);
    exo_parallel_for(EXO_HEAD_LANES, gradients_lane, &l);
    if (h->dx)
        exo_parallel_for(l.rows, sum_row, &l);
    return exo_failure_result(&l.failure, err);
}
