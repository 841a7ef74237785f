/* Linear layers: y = x W^T + b, then an activation or the addition of a residual. With an
 * activation, the pre-activation is saved for backward; a linear layer that alone uses the result
 * computes the gradient of the pre-activation in place of the result's. With low-rank parts, W is a
 * sum that is computed for the product and given back; backward computes it again if it needs it.
 *
 * With operands of fp8, x is written as codes for each product and its scale is kept, and so are the
 * weights' codes, those of the transpose for backward. All else is as with bf16. State: the plans, in
 * the operation's cache. Read next: lora.h, fp8.h, nn/cpu/linear.c. */
#include <exogym/sequence.h>

#include <string.h>

#include "nn/ops/fp8.h"
#include "nn/ops/lora.h"

enum {
    INPUT,
    WEIGHT,
    BIAS,
    RESIDUAL
};

enum {
    WEIGHTS_KEPT, /* index into op->saved: the weights as bf16 or fp8, under autocast */
    BEFORE,       /* index into op->saved: the pre-activation */
    MERGED,       /* index into op->saved: the weights with their low-rank parts, for a product */
    X_SCALE       /* index into op->saved: that of x as fp8, if forward has found it */
};

/* All sizes, which plans belong to. Compared byte by byte. */
struct sizes {
    exo_linear_shape shape;
    size_t parts; /* low-rank parts */
    exo_lora_part part[EXO_LORA_PARTS];
};

struct state {
    struct sizes sizes;
    exo_plan *plan;
    exo_lora_plans lora[EXO_LORA_PARTS];
};

static void
release_state(void *state)
{
    struct state *s = state;
    exo_plan_free(&s->plan);
    exo_lora_plans_free(s->lora);
}

/* The weights in the type of the product; under autocast, the saved copy. */
static const void *
compute_weights(const exo_op *op)
{
    const void *merged = op->saved[MERGED] ? op->saved[MERGED] : op->in[WEIGHT]->data;
    return op->saved[WEIGHTS_KEPT] ? op->saved[WEIGHTS_KEPT] : merged;
}

/* Adds the low-rank parts to the weights, if there are any. False: recorded in the tape. */
static bool
merge(exo_tape *tape, exo_op *op)
{
    const struct state *s = op->state;
    if (s->sizes.parts == 0)
        return true;
    op->saved[MERGED] = exo_tape_buffer(tape, op->in[WEIGHT]->numel * sizeof(float));
    return op->saved[MERGED] &&
           exo_lora_merge(tape, op, s->sizes.part, s->sizes.parts, op->saved[MERGED]) == EXO_OK;
}

/* The kept weights of fp8. */
static exo_fp8_matrix
fp8_weights(const exo_op *op)
{
    const exo_linear_shape *s = &((const struct state *)op->state)->sizes.shape;
    return exo_fp8_at(op->saved[WEIGHTS_KEPT], s->in * s->out, true, s->backward && s->input_grad);
}

static void
forget_merged(exo_tape *tape, exo_op *op)
{
    exo_tape_buffer_done(tape, op->saved[MERGED]);
    op->saved[MERGED] = NULL;
}

/* --- Backward --------------------------------------------------------------------------------- */

/* The gradient that the products read: in the type of x, and as fp8 if they take that. */
struct gradient {
    const void *dy;
    exo_fp8_matrix fp8;
};

static exo_status
backward_to_input(exo_tape *tape, exo_op *op, const struct gradient *g, exo_err *err)
{
    exo_tensor *x = op->in[INPUT];
    const struct state *s = op->state;
    const exo_fp8_matrix weights = s->sizes.shape.fp8 ? fp8_weights(op) : (exo_fp8_matrix){0};
    bool add = false;
    exo_status st = EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    const bool through = x->before && x->uses == 1 && !add;
    void *target = dx && add ? exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype)) : dx;
    if (!target || (!op->saved[WEIGHTS_KEPT] && !merge(tape, op)))
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, linear_grad_x, .plan = s->plan,
                      .activation = (exo_activation)x->activation,
                      .before = through ? x->before : NULL, .dx = target,
                      .dy = g->fp8.buffer ? g->fp8.codes : g->dy,
                      .weight = weights.buffer ? weights.transposed : compute_weights(op),
                      .dy_scale = g->fp8.scale, .weight_scale = weights.scale);
    x->grad_is_before = through;
    forget_merged(tape, op);
    if (add && st == EXO_OK)
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                          .b = target);
    if (add)
        exo_tape_buffer_done(tape, target);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

/* dw += dy^T x; db += the sum of dy's rows, unless db is NULL. */
static exo_status
add_weight_gradient(exo_tape *tape, exo_op *op, const struct gradient *g, float *dw, float *db)
{
    const exo_tensor *x = op->in[INPUT];
    const struct state *s = op->state;
    exo_fp8_matrix x8 = {0};
    if (g->fp8.buffer && (!exo_fp8_take(tape, x->numel, false, true, &x8) ||
                          !exo_fp8_fill(tape, &x8, EXO_E4M3, s->sizes.shape.rows, s->sizes.shape.in,
                                        x->dtype, x->data, op->saved[X_SCALE])))
        return exo_tape_error(tape, NULL);
    const exo_status st = exo_tape_run(tape, linear_grad_w, .plan = s->plan, .dw = dw, .db = db,
                                       .dy = x8.buffer ? g->fp8.transposed : g->dy,
                                       .x = x8.buffer ? x8.transposed : x->data,
                                       .dy_scale = g->fp8.scale, .x_scale = x8.scale);
    exo_tape_buffer_done(tape, x8.buffer);
    return st;
}

static exo_status
backward_to_weights(exo_tape *tape, exo_op *op, const struct gradient *g, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    bool add = false, add_bias = false;
    exo_status st = EXO_OK;
    float *dw = exo_tape_grad(tape, weight, &add, &st);
    if (dw && !add) /* the kernel adds to dw */
        st = exo_tape_run(tape, fill, .count = weight->numel, .y = dw);
    float *db = bias && st == EXO_OK ? exo_tape_grad(tape, bias, &add_bias, &st) : NULL;
    const bool with_dw = dw && add_bias && !g->fp8.buffer; /* fp8: the product reads codes of dy */
    if (st == EXO_OK && dw)
        st = add_weight_gradient(tape, op, g, dw, with_dw ? db : NULL);
    if (st == EXO_OK && db && !with_dw)
        st = exo_tape_run(tape, column_sums, .rows = x->dims[0], .columns = weight->dims[0],
                          .dtype = x->dtype, .y = db, .x = g->dy, .add = add_bias);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

/* A residual's gradient is the gradient of the output. */
static exo_status
backward_to_residual(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *residual = op->in[RESIDUAL];
    exo_status st = EXO_OK;
    bool add = false;
    if (!residual || exo_tape_steal_grad(op, residual))
        return EXO_OK;
    float *gradient = exo_tape_grad(tape, residual, &add, &st);
    if (gradient && add)
        st = exo_tape_run(tape, add, .count = residual->numel, .dtype = EXO_F32, .y = gradient,
                          .a = gradient, .b = op->out->grad);
    else if (gradient)
        st = exo_tape_copy(tape, gradient, op->out->grad, residual->numel * sizeof *gradient);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

/* Writes to `own` the gradient that the products read: that of the pre-activation, or without an
 * activation the output's gradient in the type of x. */
static exo_status
prepare_gradient(exo_tape *tape, const exo_op *op, void *own)
{
    const exo_tensor *x = op->in[INPUT], *y = op->out;
    if (op->saved[BEFORE])
        return exo_tape_run(tape, activation_backward, .count = y->numel,
                            .activation = (exo_activation)op->number, .dtype = x->dtype, .dx = own,
                            .x = op->saved[BEFORE], .dy = y->grad);
    return exo_tape_run(tape, cast, .count = y->numel, .to = x->dtype, .from = y->dtype, .y = own,
                        .x = y->grad);
}

/* Writes the gradient as fp8, if the products take that. False: recorded. */
static bool
make_fp8_gradient(exo_tape *tape, const exo_op *op, struct gradient *g)
{
    const exo_linear_shape *s = &((const struct state *)op->state)->sizes.shape;
    const bool to_x = op->in[INPUT]->needs_grad, to_weight = op->in[WEIGHT]->needs_grad;
    if (!s->fp8 || (!to_x && !to_weight))
        return true;
    return exo_fp8_take(tape, s->rows * s->out, to_x, to_weight, &g->fp8) &&
           exo_fp8_fill(tape, &g->fp8, EXO_E5M2, s->rows, s->out, op->in[INPUT]->dtype, g->dy,
                        NULL);
}

static exo_status
linear_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const exo_tensor *x = op->in[INPUT];
    exo_tensor *y = op->out;
    bool as_it_is = (!op->saved[BEFORE] || y->grad_is_before) && y->dtype == x->dtype;
    void *own = y->rounded_grad;
    y->rounded_grad = NULL;
    if (!as_it_is && !own) {
        own = exo_tape_buffer(tape, y->numel * exo_dtype_size(x->dtype));
        if (!own || prepare_gradient(tape, op, own) != EXO_OK)
            return exo_tape_error(tape, err);
    }
    struct gradient g = {.dy = own ? own : y->grad};
    if (!make_fp8_gradient(tape, op, &g))
        return exo_tape_error(tape, err);
    exo_status st = backward_to_weights(tape, op, &g, err);
    if (st == EXO_OK)
        st = backward_to_input(tape, op, &g, err);
    const struct state *s = op->state;
    exo_tape_buffer_done(tape, g.fp8.buffer);
    if (st == EXO_OK && s->sizes.parts > 0)
        st = exo_lora_backward(tape, op, s->sizes.part, s->lora, s->sizes.parts, g.dy, err);
    exo_tape_buffer_done(tape, own);
    return st == EXO_OK ? backward_to_residual(tape, op, err) : st;
}

/* --- Forward ---------------------------------------------------------------------------------- */

static const exo_op_class linear_class = {
    .name = "linear", .backward = linear_backward, .release = release_state};

static bool
check(exo_tape *tape, const exo_tensor *x, const exo_tensor *weight, const exo_tensor *bias,
      const exo_tensor *residual)
{
    char a[96], b[96], c[96];
    if (x->num_dims != 2 || weight->num_dims != 2 || x->dims[1] != weight->dims[1] ||
        x->numel == 0 || weight->numel == 0 ||
        (bias && (bias->num_dims != 1 || bias->dims[0] != weight->dims[0]))) {
        exo_tape_fail(tape, EXO_INVAL,
                      "linear: x %s and weight %s: expected (N, D) and (O, D), bias (O)",
                      exo_shape_text(x, a), exo_shape_text(weight, b));
        return false;
    }
    if (weight->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32)) {
        exo_tape_fail(tape, EXO_INVAL, "linear: weight is %s, bias %s: expected fp32",
                      exo_dtype_name(weight->dtype), bias ? exo_dtype_name(bias->dtype) : "none");
        return false;
    }
    if (residual && (residual->num_dims != 2 || residual->dims[0] != x->dims[0] ||
                     residual->dims[1] != weight->dims[0])) {
        exo_tape_fail(tape, EXO_INVAL, "linear: residual %s of x %s and weight %s: expected (N, O)",
                      exo_shape_text(residual, c), exo_shape_text(x, a), exo_shape_text(weight, b));
        return false;
    }
    return true;
}

/* The sizes of a call. False: the low-rank parts do not fit, recorded. */
static bool
measure(struct sizes *out, exo_tape *tape, const exo_tensor *x, const exo_tensor *weight,
        const exo_tensor *bias, const exo_lora_opts *with, exo_dtype dtype)
{
    memset(out, 0, sizeof *out);
    out->parts = with->count;
    out->shape = (exo_linear_shape){
        .rows = x->dims[0],
        .in = x->dims[1],
        .out = weight->dims[0],
        .dtype = (size_t)dtype,
        .out_dtype = with->residual ? EXO_F32 : (size_t)dtype,
        .residual = with->residual != NULL,
        .with_bias = bias != NULL,
        .backward = exo_tape_pass(tape)->grad,
        .input_grad = x->needs_grad,
        .invariant = exo_tape_pass(tape)->invariant,
        .fp8 = exo_tape_fp8(tape, x->dims[0], x->dims[1], weight->dims[0]),
    };
    return exo_lora_check(tape, with, weight, out->part);
}

static exo_status
make_plans(struct state *s, exo_device *device, exo_err *err)
{
    const exo_linear_shape *shape = &s->sizes.shape;
    exo_status st = exo_plan_new(&s->plan, device, EXO_SHAPE_LINEAR, shape, err);
    if (st == EXO_OK && shape->backward)
        st = exo_lora_plans_new(s->lora, device, s->sizes.part, s->sizes.parts, shape->rows,
                                shape->in, err);
    return st;
}

static bool
prepare_fp8_weights(exo_tape *tape, exo_op *op)
{
    const exo_linear_shape *s = &((const struct state *)op->state)->sizes.shape;
    exo_fp8_matrix m;
    if (!exo_fp8_take(tape, s->in * s->out, true, s->backward && s->input_grad, &m))
        return false;
    const void *from = compute_weights(op);
    op->saved[WEIGHTS_KEPT] = m.buffer;
    return exo_fp8_fill(tape, &m, EXO_E4M3, s->out, s->in, EXO_F32, from, NULL);
}

/* Merges low-rank parts, and under autocast makes the copy of the weights. False: recorded. */
static bool
prepare_weights(exo_tape *tape, exo_op *op, exo_dtype dtype)
{
    const struct state *s = op->state;
    size_t numel = op->in[WEIGHT]->numel;
    if (!merge(tape, op))
        return false;
    if (s->sizes.shape.fp8)
        return prepare_fp8_weights(tape, op);
    if (dtype == EXO_F32)
        return true;
    void *kept = exo_tape_buffer(tape, numel * exo_dtype_size(dtype));
    bool good = kept && exo_tape_run(tape, cast, .count = numel, .to = dtype, .from = EXO_F32,
                                     .y = kept, .x = compute_weights(op)) == EXO_OK;
    op->saved[WEIGHTS_KEPT] = kept;
    return good;
}

/* The operation with its plans and, under autocast, its copy of the weights. NULL: recorded in the
 * tape. */
static exo_op *
begin(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
      const exo_lora_opts *with, exo_dtype dtype)
{
    exo_tensor *in[EXO_MAX_INPUTS] = {x, weight, bias, with->residual};
    struct sizes sizes;
    if (!measure(&sizes, tape, x, weight, bias, with, dtype))
        return NULL;
    for (size_t i = 0; i < with->count; i++) {
        in[EXO_LORA_INPUTS + 2 * i] = with->parts[i].a;
        in[EXO_LORA_INPUTS + 2 * i + 1] = with->parts[i].b;
    }
    exo_op *op = exo_tape_op(tape, &linear_class, in, EXO_LORA_INPUTS + 2 * with->count);
    if (!op)
        return NULL;
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &sizes, sizeof sizes, sizeof *s, &fresh);
    exo_status st = EXO_OK;
    if (s)
        s->sizes = sizes;
    if (s && fresh)
        st = make_plans(s, exo_tape_device(tape), &err);
    if (st != EXO_OK) {
        exo_tape_plan_failed(tape, op, dtype, st, &err);
        return NULL;
    }
    op->factor = with->scale;
    op->number = (size_t)with->activation;
    return s && prepare_weights(tape, op, dtype) ? op : NULL;
}

/* x as fp8; its scale is kept for backward. False: recorded. */
static bool
make_fp8_x(exo_tape *tape, exo_op *op, exo_fp8_matrix *out)
{
    const exo_tensor *x = op->in[INPUT];
    op->saved[X_SCALE] = exo_tape_buffer(tape, sizeof(float));
    if (!op->saved[X_SCALE] || !exo_fp8_take(tape, x->numel, true, false, out))
        return false;
    out->scale = op->saved[X_SCALE];
    return exo_fp8_fill(tape, out, EXO_E4M3, x->dims[0], x->dims[1], x->dtype, x->data, NULL);
}

/* Asks for the kernel, with scratch for it. False: recorded. */
static bool
forward(exo_tape *tape, exo_op *op, exo_tensor *y)
{
    const exo_tensor *x = op->in[INPUT], *bias = op->in[BIAS], *residual = op->in[RESIDUAL];
    const struct state *s = op->state;
    const exo_linear_shape *shape = &s->sizes.shape;
    exo_fp8_matrix x8 = {0}, weights = {0};
    void *scratch = NULL;
    if (shape->fp8) {
        weights = fp8_weights(op);
        if (!make_fp8_x(tape, op, &x8))
            return false;
    }
    if (!exo_tape_scratch(tape, EXO_SHAPE_LINEAR, shape, EXO_SCRATCH_FORWARD, &scratch) ||
        exo_tape_run(
            tape, linear, .plan = s->plan, .activation = (exo_activation)op->number, .y = y->data,
            .before = op->saved[BEFORE], .x = shape->fp8 ? x8.codes : x->data,
            .weight = shape->fp8 ? weights.codes : compute_weights(op),
            .bias = bias ? bias->data : NULL, .residual = residual ? residual->data : NULL,
            .x_scale = x8.scale, .weight_scale = weights.scale, .scratch = scratch) != EXO_OK)
        return false;
    exo_tape_buffer_done(tape, scratch);
    exo_tape_buffer_done(tape, x8.buffer);
    return true;
}

/* `with`: what follows the product, and low-rank parts of the weight, if there are any. */
static exo_tensor *
linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
       const exo_lora_opts *given)
{
    exo_lora_opts with = *given;
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK ||
        !check(tape, x, weight, bias, with.residual))
        return NULL;
    exo_dtype dtype = exo_compute_dtype(tape);
    x = exo_to_dtype(tape, x, dtype);
    with.residual = exo_to_dtype(tape, with.residual, EXO_F32);
    exo_op *op = x ? begin(tape, x, weight, bias, &with, dtype) : NULL;
    if (!op)
        return NULL;
    const size_t dims[2] = {x->dims[0], weight->dims[0]};
    exo_tensor *y = exo_tape_tensor(tape, with.residual ? EXO_F32 : dtype, EXO_ROW_MAJOR, 2, dims);
    if (!y)
        return NULL;
    y->rounds_grad = with.residual && dtype == EXO_BF16; /* it has no activation */
    if (with.activation != EXO_LINEAR && exo_tape_pass(tape)->grad) {
        op->saved[BEFORE] = exo_tape_buffer(tape, y->numel * exo_dtype_size(dtype));
        if (!op->saved[BEFORE])
            return NULL;
        y->before = op->saved[BEFORE];
        y->activation = (uint32_t)with.activation;
    }
    bool idle = with.activation == EXO_LINEAR && exo_tape_result_idle(tape);
    bool good = idle || forward(tape, op, y);
    forget_merged(tape, op);
    return good ? exo_tape_finish(tape, op, y) : NULL;
}

exo_tensor *
exo_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias)
{
    return linear(tape, x, weight, bias, &(exo_lora_opts){.activation = EXO_LINEAR});
}

exo_tensor *
exo_linear_activation(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                      exo_activation activation)
{
    return linear(tape, x, weight, bias, &(exo_lora_opts){.activation = activation});
}

exo_tensor *
exo_linear_residual(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                    exo_tensor *residual)
{
    return residual ? linear(tape, x, weight, bias, &(exo_lora_opts){.residual = residual}) : NULL;
}

exo_tensor *
exo_lora_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
                const exo_lora_opts *lora)
{
    if (lora->residual && lora->activation != EXO_LINEAR)
        return exo_tape_fail(tape, EXO_INVAL, "lora: a residual and an activation: give one");
    return linear(tape, x, weight, bias, lora);
}
