/* 2-D convolution. State: the plan, in the operation's cache; it keeps the weights from forward to
 * backward. Read next: nn/cpu/conv.c. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

enum {
    X,
    WEIGHT,
    BIAS
};

struct state {
    exo_plan *plan;
};

static void
release_state(void *state)
{
    exo_plan_free(&((struct state *)state)->plan);
}

static exo_status
clear(exo_tape *tape, float *gradient, size_t count, bool add)
{
    return gradient && !add ? exo_tape_run(tape, fill, .count = count, .y = gradient) : EXO_OK;
}

static exo_status
conv2d_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct state *state = op->state;
    exo_tensor *x = op->in[X], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    exo_status st = EXO_OK;
    bool add_x = false, add_w = false, add_b = false;
    void *dx = exo_tape_grad(tape, x, &add_x, &st);
    void *target = dx;
    if (dx && add_x) /* the kernel overwrites dx, so its result is added afterwards */
        target = exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype));
    float *dw = exo_tape_grad(tape, weight, &add_w, &st);
    float *db = bias ? exo_tape_grad(tape, bias, &add_b, &st) : NULL;
    if (exo_tape_error(tape, NULL) != EXO_OK || clear(tape, dw, weight->numel, add_w) != EXO_OK ||
        (bias && clear(tape, db, bias->numel, add_b) != EXO_OK))
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, conv_backward, .plan = state->plan, .dx = target, .dweight = dw,
                      .dbias = db, .x = x->data, .dy = op->out->grad);
    if (st == EXO_OK && target != dx) {
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                          .b = target);
        exo_tape_buffer_done(tape, target);
    }
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class conv2d_class = {
    .name = "conv2d", .backward = conv2d_backward, .release = release_state};

static bool
check_shapes(exo_tape *tape, const exo_tensor *x, const exo_tensor *w, const exo_tensor *bias,
             const exo_conv2d_opts *opts)
{
    char a[96], b[96];
    if (x->num_dims != 4 || w->num_dims != 4 || x->dims[1] != w->dims[1] || x->numel == 0 ||
        w->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL,
                      "conv2d: x %s and weight %s: expected (N, C, H, W) and (O, C, R, S)",
                      exo_shape_text(x, a), exo_shape_text(w, b));
        return false;
    }
    if (w->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32)) {
        exo_tape_fail(tape, EXO_INVAL, "conv2d: weight is %s, bias %s: expected fp32",
                      exo_dtype_name(w->dtype), bias ? exo_dtype_name(bias->dtype) : "none");
        return false;
    }
    if (bias && (bias->num_dims != 1 || bias->dims[0] != w->dims[0])) {
        exo_tape_fail(tape, EXO_INVAL, "conv2d: bias %s: expected (%zu)", exo_shape_text(bias, a),
                      w->dims[0]);
        return false;
    }
    if (x->dims[2] + 2 * opts->padding < w->dims[2] ||
        x->dims[3] + 2 * opts->padding < w->dims[3]) {
        exo_tape_fail(tape, EXO_INVAL,
                      "conv2d: x %s with padding %zu is smaller than the kernel %s",
                      exo_shape_text(x, a), opts->padding, exo_shape_text(w, b));
        return false;
    }
    return true;
}

exo_tensor *
exo_conv2d(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
           const exo_conv2d_opts *opts)
{
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    exo_conv2d_opts o = opts ? *opts : (exo_conv2d_opts){0};
    o.stride = o.stride ? o.stride : 1;
    if (!check_shapes(tape, x, weight, bias, &o))
        return NULL;
    x = exo_to_dtype(tape, exo_to_layout(tape, x, EXO_CHANNELS_LAST), exo_compute_dtype(tape));
    exo_op *op = x ? exo_tape_op(tape, &conv2d_class, (exo_tensor *[]){x, weight, bias}, 3) : NULL;
    if (!op)
        return NULL;

    const exo_pass *pass = exo_tape_pass(tape);
    exo_conv_shape shape = {
        .batch = x->dims[0],
        .in_channels = x->dims[1],
        .height = x->dims[2],
        .width = x->dims[3],
        .out_channels = weight->dims[0],
        .kernel_height = weight->dims[2],
        .kernel_width = weight->dims[3],
        .stride = o.stride,
        .padding = o.padding,
        .out_height = (x->dims[2] + 2 * o.padding - weight->dims[2]) / o.stride + 1,
        .out_width = (x->dims[3] + 2 * o.padding - weight->dims[3]) / o.stride + 1,
        .dtype = (size_t)x->dtype,
        .with_bias = bias != NULL,
        .backward = pass->grad,
        .input_grad = x->needs_grad,
    };
    exo_err err = {0};
    bool fresh = false;
    struct state *state = exo_tape_state(tape, op, &shape, sizeof shape, sizeof *state, &fresh);
    if (!state)
        return NULL;
    exo_status st = EXO_OK;
    if (fresh)
        st = exo_plan_new(&state->plan, exo_tape_device(tape), EXO_SHAPE_CONV, &shape, &err);
    if (st != EXO_OK)
        return exo_tape_plan_failed(tape, op, x->dtype, st, &err);
    const size_t dims[4] = {shape.batch, shape.out_channels, shape.out_height, shape.out_width};
    exo_tensor *y = exo_tape_tensor(tape, x->dtype, EXO_CHANNELS_LAST, 4, dims);
    if (!y || exo_tape_run(tape, conv, .plan = state->plan, .y = y->data, .x = x->data,
                           .weight = weight->data, .bias = bias ? bias->data : NULL) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
