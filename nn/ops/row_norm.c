/* Layer norm and RMS norm. Keeps a mean and a factor of each row; sums for weight and bias go by pieces of rows, added in their order. */
#include <exogym/sequence.h>

#include <string.h>

#include "nn/cpu/row_norm.h"
#include "nn/ops/pieces.h"
#include "nn/tape_impl.h"

enum {
    INPUT,
    WEIGHT,
    BIAS
};

enum {
    ROWS = 32,   /* a piece                             */
    COLUMNS = 64 /* of a piece that adds up the pieces */
};

struct loop {
    exo_row_norm norm;
    size_t rows;
    const float *x;
    exo_dtype type;
    void *y;
    const void *dy;
    float *mean, *inverse, *dx;
    bool add;
    float *partial; /* (pieces, 2, width): dweight, dbias; NULL: neither is needed */
    size_t pieces;
    float *target; /* of sum_piece */
    size_t which;
};

static void
forward_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * ROWS, skip = first * l->norm.width;
    exo_row_norm_forward(&l->norm, exo_piece_length(l->rows, ROWS, piece), l->x + skip, l->type,
                         (char *)l->y + skip * exo_dtype_size(l->type), l->mean ? l->mean + first : NULL,
                         l->inverse + first);
}

static void
backward_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * ROWS, width = l->norm.width, skip = first * width;
    float *sums = l->partial ? l->partial + piece * 2 * width : NULL;
    if (sums)
        memset(sums, 0, 2 * width * sizeof *sums);
    exo_row_norm_backward(&l->norm, exo_piece_length(l->rows, ROWS, piece), l->x + skip,
                          l->mean ? l->mean + first : NULL, l->inverse + first, l->type,
                          (const char *)l->dy + skip * exo_dtype_size(l->type), l->dx + skip, l->add, sums,
                          sums ? sums + width : NULL);
}

static void
sum_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * COLUMNS, count = exo_piece_length(l->norm.width, COLUMNS, piece);
    float *restrict target = l->target + first;
    for (size_t p = 0; p < l->pieces; p++) {
        const float *restrict sums = l->partial + (2 * p + l->which) * l->norm.width + first;
        for (size_t i = 0; i < count; i++)
            target[i] += sums[i];
    }
}

/* Adds the pieces' sums (0: of weight, 1: of bias) to the gradient of `in`. */
static exo_status
add_sums(exo_tape *tape, struct loop *l, exo_tensor *in, size_t which)
{
    bool add = false;
    exo_status st = EXO_OK;
    l->target = exo_tape_grad(tape, in, &add, &st);
    l->which = which;
    if (!l->target)
        return st;
    if (!add)
        memset(l->target, 0, in->numel * sizeof *l->target);
    exo_parallel_for(exo_pieces(l->norm.width, COLUMNS), sum_piece, l);
    return EXO_OK;
}

static struct loop
loop_of(const exo_op *op)
{
    const exo_tensor *x = op->in[INPUT], *bias = op->in[BIAS];
    return (struct loop){.norm = {.width = x->dims[1],
                                  .centered = op->number != 0,
                                  .eps = op->factor,
                                  .weight = op->in[WEIGHT]->data,
                                  .bias = bias ? bias->data : NULL},
                         .rows = x->dims[0],
                         .x = x->data,
                         .inverse = op->saved[0],
                         .mean = op->saved[1],
                         .pieces = exo_pieces(x->dims[0], ROWS)};
}

static exo_status
row_norm_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    struct loop l = loop_of(op);
    float *unused = NULL;
    exo_status st = EXO_OK;
    l.type = op->out->dtype;
    l.dy = op->out->grad;
    l.dx = exo_tape_grad(tape, x, &l.add, &st);
    if (st == EXO_OK && !l.dx) /* of an input: only the sums are wanted */
        l.dx = unused = exo_tape_buffer(tape, x->numel * sizeof(float));
    if (weight->needs_grad || (bias && bias->needs_grad))
        l.partial = exo_tape_buffer(tape, l.pieces * 2 * l.norm.width * sizeof *l.partial);
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return exo_tape_error(tape, err);
    exo_parallel_for(l.pieces, backward_piece, &l);
    st = add_sums(tape, &l, weight, 0);
    if (st == EXO_OK && bias)
        st = add_sums(tape, &l, bias, 1);
    exo_tape_buffer_done(tape, l.partial);
    exo_tape_buffer_done(tape, unused);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class layer_norm_class = {.name = "layer_norm", .backward = row_norm_backward};
static const exo_op_class rms_norm_class = {.name = "rms_norm", .backward = row_norm_backward};

static exo_tensor *
row_norm(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, float eps)
{
    char a[96], b[96];
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || x->numel == 0 || weight->num_dims != 1 || weight->dims[0] != x->dims[1] ||
        (bias && !exo_same_shape(weight, bias)))
        return exo_tape_fail(tape, EXO_INVAL, "%s: x %s and weight %s: expected (R, W) and (W), bias (W)",
                             op_class->name, exo_shape_text(x, a), exo_shape_text(weight, b));
    if (weight->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32))
        return exo_tape_fail(tape, EXO_INVAL, "%s: weight and bias must be fp32", op_class->name);
    x = exo_to_dtype(tape, x, EXO_F32);
    exo_op *op = x ? exo_tape_op(tape, op_class, (exo_tensor *[]){x, weight, bias}, 3) : NULL;
    exo_tensor *y = op ? exo_tape_tensor(tape, exo_compute_dtype(tape), EXO_ROW_MAJOR, 2, x->dims) : NULL;
    if (!y)
        return NULL;
    bool centered = op_class == &layer_norm_class;
    op->number = centered;
    op->factor = eps;
    op->saved[0] = exo_tape_buffer(tape, x->dims[0] * sizeof(float));
    op->saved[1] = centered ? exo_tape_buffer(tape, x->dims[0] * sizeof(float)) : NULL;
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    struct loop l = loop_of(op);
    l.type = y->dtype;
    l.y = y->data;
    exo_parallel_for(l.pieces, forward_piece, &l);
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_layer_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, float eps)
{
    return row_norm(tape, &layer_norm_class, x, weight, bias, eps);
}

exo_tensor *
exo_rms_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float eps)
{
    return row_norm(tape, &rms_norm_class, x, weight, NULL, eps);
}
