/* RMS norms over heads: see head_norms.h. The heads of queries, and those of keys, are copied together,
 * so that each is a row of the norm's kernels. Saves a factor of each of these rows for backward, which
 * copies them again. No other state. Read next: row_norm.c. */
#include "nn/ops/head_norms.h"

#include "nn/tape_run.h"

enum {
    INPUT,
    QUERIES, /* indices into op->in, of weights, and into op->saved, of factors */
    KEYS
};

/* The heads of queries or keys in an operation: rows (R, heads, D) of x (R, all). */
struct heads {
    exo_tensor *weight;
    float *inverse; /* (shape.rows): what the norm saves for backward */
    exo_row_norm_shape shape;
    size_t rows, columns; /* R, and heads D */
    size_t first, pitch;  /* the column with which they begin; those of x */
};

/* op->number is the heads of queries. */
static struct heads
heads_of(const exo_op *op, int kind)
{
    const exo_tensor *x = op->in[INPUT];
    const size_t width = op->in[kind]->numel, queries = op->number;
    const size_t keys = (x->dims[1] / width - queries) / 2;
    const size_t count = kind == QUERIES ? queries : keys;
    return (struct heads){.weight = op->in[kind],
                          .inverse = op->saved[kind],
                          .shape = {.rows = x->dims[0] * count, .width = width},
                          .rows = x->dims[0],
                          .columns = count * width,
                          .first = kind == QUERIES ? 0 : queries * width,
                          .pitch = x->dims[1]};
}

static float *
take(exo_tape *tape, const struct heads *h)
{
    return exo_tape_buffer(tape, h->rows * h->columns * sizeof(float));
}

/* own (R, heads, D) = their part of x (R, all). */
static exo_status
gather(exo_tape *tape, const struct heads *h, float *own, const float *x)
{
    return exo_tape_run(tape, copy_columns, .rows = h->rows, .count = h->columns,
                        .y_pitch = h->columns, .x_pitch = h->pitch, .y = own, .x = x + h->first);
}

/* Their part of x (R, all) (+)= own (R, heads, D). */
static exo_status
scatter(exo_tape *tape, const struct heads *h, float *x, const float *own, bool add)
{
    return exo_tape_run(tape, copy_columns, .rows = h->rows, .count = h->columns,
                        .y_pitch = h->pitch, .x_pitch = h->columns, .y = x + h->first, .x = own,
                        .add = add);
}

/* The columns behind the keys of y (R, all) (+)= those of x. */
static exo_status
copy_values(exo_tape *tape, const exo_op *op, float *y, const float *x, bool add)
{
    const struct heads keys = heads_of(op, KEYS);
    const size_t first = keys.first + keys.columns;
    return exo_tape_run(tape, copy_columns, .rows = keys.rows, .count = keys.columns,
                        .y_pitch = keys.pitch, .x_pitch = keys.pitch, .y = y + first,
                        .x = x + first, .add = add);
}

/* --- Backward --------------------------------------------------------------------------------- */

/* dx (R, all) may be NULL, or dy. */
static exo_status
heads_backward(exo_tape *tape, const exo_op *op, int kind, float *dx, const float *dy, bool add)
{
    const struct heads h = heads_of(op, kind);
    exo_status st = EXO_OK;
    bool old = false;
    void *scratch = NULL;
    float *x = take(tape, &h), *own_dy = take(tape, &h), *own_dx = take(tape, &h);
    float *dweight = exo_tape_grad(tape, h.weight, &old, &st);
    if (st == EXO_OK && dweight && !old)
        st = exo_tape_run(tape, fill, .count = h.weight->numel, .y = dweight);
    if (dweight)
        exo_tape_scratch(tape, EXO_SHAPE_ROW_NORM, &h.shape, EXO_SCRATCH_BACKWARD, &scratch);
    if (st != EXO_OK || exo_tape_error(tape, NULL) != EXO_OK)
        return st != EXO_OK ? st : exo_tape_error(tape, NULL);
    st = gather(tape, &h, x, op->in[INPUT]->data);
    if (st == EXO_OK)
        st = gather(tape, &h, own_dy, dy);
    if (st == EXO_OK)
        st = exo_tape_run(tape, row_norm_backward, .shape = h.shape, .eps = op->factor,
                          .dtype = EXO_F32, .dx = own_dx, .dweight = dweight, .x = x,
                          .weight = h.weight->data, .inverse = h.inverse, .dy = own_dy,
                          .scratch = scratch);
    if (st == EXO_OK && dx)
        st = scatter(tape, &h, dx, own_dx, add);
    void *done[] = {x, own_dy, own_dx, scratch};
    for (size_t i = 0; i < sizeof done / sizeof *done; i++)
        exo_tape_buffer_done(tape, done[i]);
    return st;
}

static exo_status
head_norms_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT];
    exo_status st = EXO_OK;
    bool add = false;
    const float *dy = op->out->grad;
    float *dx = NULL;
    if (x->needs_grad) /* in the place of dy, the gradient of the values is there */
        dx = exo_tape_steal_grad(op, x) ? x->grad : exo_tape_grad(tape, x, &add, &st);
    for (int kind = QUERIES; st == EXO_OK && kind <= KEYS; kind++)
        st = heads_backward(tape, op, kind, dx, dy, add);
    if (st == EXO_OK && dx && dx != dy)
        st = copy_values(tape, op, dx, dy, add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class head_norms_class = {.name = "head_norms",
                                              .backward = head_norms_backward};

/* --- Forward ---------------------------------------------------------------------------------- */

static exo_status
heads_forward(exo_tape *tape, exo_op *op, int kind, float *y)
{
    op->saved[kind] = exo_tape_buffer(tape, heads_of(op, kind).shape.rows * sizeof(float));
    const struct heads h = heads_of(op, kind);
    float *before = take(tape, &h), *after = take(tape, &h);
    exo_status st = exo_tape_error(tape, NULL);
    if (st == EXO_OK)
        st = gather(tape, &h, before, op->in[INPUT]->data);
    if (st == EXO_OK)
        st = exo_tape_run(tape, row_norm, .shape = h.shape, .eps = op->factor, .dtype = EXO_F32,
                          .y = after, .inverse = h.inverse, .x = before, .weight = h.weight->data);
    if (st == EXO_OK)
        st = scatter(tape, &h, y, after, false);
    exo_tape_buffer_done(tape, before);
    exo_tape_buffer_done(tape, after);
    return st;
}

static bool
fit(const exo_tensor *x, size_t heads, size_t kv_heads, const exo_tensor *weight)
{
    return x->num_dims == 2 && x->numel > 0 && heads > 0 && kv_heads > 0 && weight->num_dims == 1 &&
           weight->dtype == EXO_F32 && x->dims[1] % weight->dims[0] == 0 &&
           x->dims[1] / weight->dims[0] == heads + 2 * kv_heads;
}

exo_tensor *
exo_head_norms(exo_tape *tape, exo_tensor *x, size_t heads, size_t kv_heads, exo_tensor *queries,
               exo_tensor *keys, float eps)
{
    char a[96], b[96], c[96];
    if (!x || !queries || !keys || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (!fit(x, heads, kv_heads, queries) || !fit(x, heads, kv_heads, keys))
        return exo_tape_fail(tape, EXO_INVAL,
                             "head_norms: x %s, %zu query and %zu key-value heads, weights %s and "
                             "%s: expected (R, (H + 2 G) D), and (D) and (D) of fp32",
                             exo_shape_text(x, a), heads, kv_heads, exo_shape_text(queries, b),
                             exo_shape_text(keys, c));
    x = exo_to_dtype(tape, x, EXO_F32);
    exo_op *op =
        x ? exo_tape_op(tape, &head_norms_class, (exo_tensor *[]){x, queries, keys}, 3) : NULL;
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2, x->dims) : NULL;
    if (!y)
        return NULL;
    op->number = heads;
    op->factor = eps;
    exo_status st = heads_forward(tape, op, QUERIES, y->data);
    if (st == EXO_OK)
        st = heads_forward(tape, op, KEYS, y->data);
    if (st == EXO_OK)
        st = copy_values(tape, op, y->data, x->data, false);
    return st == EXO_OK ? exo_to_dtype(tape, exo_tape_finish(tape, op, y), exo_compute_dtype(tape))
                        : NULL;
}
