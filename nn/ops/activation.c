/* ReLU, tanh, and dropout of elements and of channels. State: masks, which live in the pass's
 * buffers until backward. Read next: nn/tape_run.h. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

/* The memory for x's gradient: that of the output's gradient if x can take it over. NULL with *st
 * OK: no gradient is needed. NULL with another status: no memory. */
static void *
grad_target(exo_tape *tape, exo_op *op, exo_tensor *x, bool *add, exo_status *st)
{
    *add = false;
    return exo_tape_steal_grad(op, x) ? x->grad : exo_tape_grad(tape, x, add, st);
}

/* --- ReLU ------------------------------------------------------------------------------------- */

static exo_status
relu_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    const void *dy = op->out->grad;
    void *dx = grad_target(tape, op, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, relu_backward, .count = x->numel, .dtype = x->dtype, .dx = dx,
                          .y = op->out->data, .dy = dy, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class relu_class = {.name = "relu", .backward = relu_backward};

/* Begins an operation with an output of x's type and shape. False: x is NULL, or an error was
 * recorded. */
static bool
begin_like(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_op **op, exo_tensor **y)
{
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return false;
    if (!exo_is_float(x)) {
        exo_tape_fail(tape, EXO_INVAL, "%s: takes fp32 or bf16, not %s", op_class->name,
                      exo_dtype_name(x->dtype));
        return false;
    }
    *op = exo_tape_op(tape, op_class, &x, 1);
    *y = *op ? exo_tape_tensor(tape, x->dtype, x->layout, x->num_dims, x->dims) : NULL;
    return *y != NULL;
}

exo_tensor *
exo_relu(exo_tape *tape, exo_tensor *x)
{
    exo_op *op;
    exo_tensor *y;
    if (!begin_like(tape, &relu_class, x, &op, &y))
        return NULL;
    if (exo_tape_run(tape, relu, .count = x->numel, .dtype = x->dtype, .y = y->data,
                     .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

/* --- tanh ------------------------------------------------------------------------------------- */

static exo_status
tanh_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, tanh_backward, .count = x->numel, .dx = dx, .y = op->out->data,
                          .dy = op->out->grad, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class tanh_class = {.name = "tanh", .backward = tanh_backward};

exo_tensor *
exo_tanh(exo_tape *tape, exo_tensor *x)
{
    exo_op *op;
    exo_tensor *y;
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    if (!begin_like(tape, &tanh_class, x, &op, &y))
        return NULL;
    if (exo_tape_run(tape, tanh, .count = x->numel, .y = y->data, .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

/* --- Dropout ---------------------------------------------------------------------------------- */

/* keep[i] = whether a uniform number in [0, 1) is at least p. */
static exo_status
draw_mask(exo_tape *tape, const exo_op *op, float p, uint8_t *keep, size_t count)
{
    const exo_pass *pass = exo_tape_pass(tape);
    return exo_tape_run(tape, dropout_draw, .count = count, .keep = keep, .seed = pass->seed,
                        .step = pass->step, .node = pass->node, .ordinal = op->ordinal,
                        .threshold = (uint32_t)((double)p * 4294967296.0));
}

static exo_status
dropout_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    const void *dy = op->out->grad;
    void *dx = grad_target(tape, op, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, dropout, .count = x->numel, .dtype = x->dtype, .y = dx, .x = dy,
                          .keep = op->saved[0], .factor = op->factor, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class dropout_class = {.name = "dropout", .backward = dropout_backward};

static bool
check_probability(exo_tape *tape, const char *name, float p)
{
    if (p >= 0.0f && p < 1.0f)
        return true;
    exo_tape_fail(tape, EXO_INVAL, "%s: the probability %g is not in [0, 1)", name, (double)p);
    return false;
}

exo_tensor *
exo_dropout(exo_tape *tape, exo_tensor *x, float p)
{
    if (!x || !check_probability(tape, "dropout", p))
        return NULL;
    if (!exo_tape_pass(tape)->train || p == 0.0f)
        return x;
    exo_op *op;
    exo_tensor *y;
    if (!begin_like(tape, &dropout_class, x, &op, &y))
        return NULL;
    uint8_t *keep = exo_tape_buffer(tape, x->numel);
    if (!keep)
        return NULL;
    op->saved[0] = keep;
    op->factor = 1.0f / (1.0f - p);
    if (draw_mask(tape, op, p, keep, x->numel) != EXO_OK ||
        exo_tape_run(tape, dropout, .count = x->numel, .dtype = x->dtype, .y = y->data,
                     .x = x->data, .keep = keep, .factor = op->factor) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

/* --- Dropout of channels ---------------------------------------------------------------------- */

/* y (+)= x factor, where factor (N, C) is saved[0]. */
static exo_status
scale_channels(exo_tape *tape, const exo_op *op, const exo_tensor *like, const void *x, void *y,
               bool add)
{
    return exo_tape_run(tape, channel_scale, .samples = like->dims[0],
                        .rows = like->dims[2] * like->dims[3], .channels = like->dims[1],
                        .dtype = like->dtype, .y = y, .x = x, .factor = op->saved[0], .add = add);
}

static exo_status
dropout2d_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    const void *dy = op->out->grad;
    void *dx = grad_target(tape, op, x, &add, &st);
    if (dx)
        st = scale_channels(tape, op, x, dy, dx, add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class dropout2d_class = {.name = "dropout2d", .backward = dropout2d_backward};

exo_tensor *
exo_dropout2d(exo_tape *tape, exo_tensor *x, float p)
{
    char text[96];
    if (!x || !check_probability(tape, "dropout2d", p))
        return NULL;
    if (x->num_dims != 4)
        return exo_tape_fail(tape, EXO_INVAL, "dropout2d: x %s: expected (N, C, H, W)",
                             exo_shape_text(x, text));
    if (!exo_tape_pass(tape)->train || p == 0.0f)
        return x;
    exo_op *op;
    exo_tensor *y;
    x = exo_to_layout(tape, x, EXO_CHANNELS_LAST);
    if (!begin_like(tape, &dropout2d_class, x, &op, &y))
        return NULL;
    size_t masks = x->dims[0] * x->dims[1];
    float *factor = exo_tape_buffer(tape, masks * sizeof *factor);
    uint8_t *keep = factor ? exo_tape_buffer(tape, masks) : NULL;
    if (!keep)
        return NULL;
    op->saved[0] = factor;
    if (draw_mask(tape, op, p, keep, masks) != EXO_OK ||
        exo_tape_run(tape, select, .count = masks, .y = factor, .keep = keep,
                     .value = 1.0f / (1.0f - p)) != EXO_OK)
        return NULL;
    exo_tape_buffer_done(tape, keep);
    if (scale_channels(tape, op, x, x->data, y->data, false) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
