/* Changes of shape, layout and type. No state. Read next: nn/tape_impl.h, which describes
 * layouts. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

/* Transposes each sample: (channels, area) to (area, channels), or back. */
static exo_status
transpose_samples(exo_tape *tape, const exo_tensor *shape, const void *in, void *out,
                  bool to_channels_last, bool add)
{
    size_t channels = shape->dims[1], area = shape->dims[2] * shape->dims[3];
    return exo_tape_run(tape, transpose, .samples = shape->dims[0],
                        .rows = to_channels_last ? channels : area,
                        .columns = to_channels_last ? area : channels, .dtype = shape->dtype,
                        .y = out, .x = in, .add = add);
}

static bool
is_one_row(const exo_tensor *x)
{
    /* Then the bytes of both layouts are equal. */
    return x->dims[1] == 1 || x->dims[2] * x->dims[3] == 1;
}

/* --- Layout ----------------------------------------------------------------------------------- */

/* op->number: 1 if the output has its samples transposed; 0 if it has the same bytes as x. */
static exo_status
layout_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    bool add = false;
    exo_status st = EXO_OK;
    if (op->number == 0 && exo_tape_steal_grad(op, x))
        return EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx && op->number != 0)
        st = transpose_samples(tape, x, op->out->grad, dx, x->layout == EXO_CHANNELS_LAST, add);
    else if (dx && add)
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                          .b = op->out->grad);
    else if (dx)
        st = exo_tape_copy(tape, dx, op->out->grad, x->numel * exo_dtype_size(x->dtype));
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class layout_class = {.name = "layout", .backward = layout_backward};

/* x as a tensor of `layout` and dims. `move`: with its samples transposed; else a view of the same
 * bytes. */
static exo_tensor *
relayout(exo_tape *tape, exo_tensor *x, bool move, exo_layout layout, size_t num_dims,
         const size_t *dims)
{
    exo_op *op = exo_tape_op(tape, &layout_class, &x, 1);
    if (!op)
        return NULL;
    op->number = move;
    exo_tensor *y = move ? exo_tape_tensor(tape, x->dtype, layout, num_dims, dims)
                         : exo_tape_view(tape, x, layout, num_dims, dims);
    if (!y)
        return NULL;
    if (move &&
        transpose_samples(tape, x, x->data, y->data, x->layout == EXO_ROW_MAJOR, false) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_to_layout(exo_tape *tape, exo_tensor *x, exo_layout layout)
{
    if (!x || x->layout == layout || x->num_dims != 4)
        return x;
    if (!exo_is_float(x))
        return exo_tape_fail(tape, EXO_INVAL, "images must be fp32 or bf16, not %s",
                             exo_dtype_name(x->dtype));
    return relayout(tape, x, !is_one_row(x), layout, 4, x->dims);
}

exo_tensor *
exo_flatten(exo_tape *tape, exo_tensor *x)
{
    if (!x || exo_tape_error(tape, NULL) != EXO_OK || x->num_dims == 2)
        return x;
    char text[96];
    if (x->num_dims < 2 || x->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL, "flatten: x %s: expected (N, ...)",
                             exo_shape_text(x, text));
    const size_t dims[2] = {x->dims[0], x->numel / x->dims[0]};
    bool move = x->layout == EXO_CHANNELS_LAST && !is_one_row(x);
    return relayout(tape, x, move, EXO_ROW_MAJOR, 2, dims);
}

/* --- Type ------------------------------------------------------------------------------------- */

static exo_status
cast_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    bool add = false;
    exo_status st = EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    void *target = add ? exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype)) : dx;
    if (st != EXO_OK || !target)
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, cast, .count = x->numel, .to = x->dtype, .from = op->out->dtype,
                      .y = target, .x = op->out->grad);
    if (st == EXO_OK && add)
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                          .b = target);
    if (add)
        exo_tape_buffer_done(tape, target);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class cast_class = {.name = "cast", .backward = cast_backward};

exo_tensor *
exo_to_dtype(exo_tape *tape, exo_tensor *x, exo_dtype dtype)
{
    if (!x || x->dtype == dtype)
        return x;
    if (!exo_is_float(x))
        return exo_tape_fail(tape, EXO_INVAL, "a %s tensor cannot be an operand of a product",
                             exo_dtype_name(x->dtype));
    exo_op *op = exo_tape_op(tape, &cast_class, &x, 1);
    exo_tensor *y = op ? exo_tape_tensor(tape, dtype, x->layout, x->num_dims, x->dims) : NULL;
    if (!y)
        return NULL;
    if (exo_tape_run(tape, cast, .count = x->numel, .to = dtype, .from = x->dtype, .y = y->data,
                     .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
