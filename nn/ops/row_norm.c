/* Layer norm and RMS norm. Saves a mean (layer norm only) and a factor of each row for backward. No
 * other state. Read next: nn/cpu/row_norm.h. */
#include <exogym/sequence.h>

#include "nn/tape_run.h"

enum {
    INPUT,
    WEIGHT,
    BIAS
};

enum {
    INVERSE, /* indices into op->saved */
    MEAN
};

/* The gradient of a weight or a bias, zeroed if it is new; the kernel adds to it. NULL with *st OK:
 * none is needed. */
static float *
sum_gradient(exo_tape *tape, exo_tensor *of, exo_status *st)
{
    bool add = false;
    float *gradient = of && *st == EXO_OK ? exo_tape_grad(tape, of, &add, st) : NULL;
    if (gradient && !add)
        *st = exo_tape_run(tape, fill, .count = of->numel, .y = gradient);
    return gradient;
}

static exo_status
row_norm_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    const exo_row_norm_shape shape = {.rows = x->dims[0], .width = x->dims[1]};
    exo_status st = EXO_OK;
    bool add = false;
    void *scratch = NULL, *rounded = NULL;
    float *unused = NULL, *dx = exo_tape_grad(tape, x, &add, &st);
    if (st == EXO_OK && !dx) /* x needs no gradient, but the kernel writes one */
        dx = unused = exo_tape_buffer(tape, x->numel * sizeof(float));
    if (st == EXO_OK && x->needs_grad && x->rounds_grad)
        rounded = exo_tape_buffer(tape, x->numel * exo_dtype_size(EXO_BF16));
    if (weight->needs_grad || (bias && bias->needs_grad))
        exo_tape_scratch(tape, EXO_SHAPE_ROW_NORM, &shape, EXO_SCRATCH_BACKWARD, &scratch);
    float *dweight = sum_gradient(tape, weight, &st), *dbias = sum_gradient(tape, bias, &st);
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, row_norm_backward, .shape = shape, .centered = op->number != 0,
                      .add = add, .eps = op->factor, .dtype = op->out->dtype, .dx = dx,
                      .rounded = rounded, .dweight = dweight, .dbias = dbias, .x = x->data,
                      .weight = weight->data, .mean = op->saved[MEAN],
                      .inverse = op->saved[INVERSE], .dy = op->out->grad, .scratch = scratch);
    exo_tape_buffer_done(tape, scratch);
    exo_tape_buffer_done(tape, unused);
    x->rounded_grad = rounded;
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class layer_norm_class = {.name = "layer_norm", .backward = row_norm_backward};
static const exo_op_class rms_norm_class = {.name = "rms_norm", .backward = row_norm_backward};

static exo_tensor *
row_norm(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_tensor *weight,
         exo_tensor *bias, float eps)
{
    char a[96], b[96];
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || x->numel == 0 || weight->num_dims != 1 ||
        weight->dims[0] != x->dims[1] || (bias && !exo_same_shape(weight, bias)))
        return exo_tape_fail(tape, EXO_INVAL,
                             "%s: x %s and weight %s: expected (R, W) and (W), bias (W)",
                             op_class->name, exo_shape_text(x, a), exo_shape_text(weight, b));
    if (weight->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32))
        return exo_tape_fail(tape, EXO_INVAL, "%s: weight and bias must be fp32", op_class->name);
    x = exo_to_dtype(tape, x, EXO_F32);
    exo_op *op = x ? exo_tape_op(tape, op_class, (exo_tensor *[]){x, weight, bias}, 3) : NULL;
    exo_tensor *y =
        op ? exo_tape_tensor(tape, exo_compute_dtype(tape), EXO_ROW_MAJOR, 2, x->dims) : NULL;
    if (!y)
        return NULL;
    bool centered = op_class == &layer_norm_class;
    op->number = centered;
    op->factor = eps;
    op->saved[INVERSE] = exo_tape_buffer(tape, x->dims[0] * sizeof(float));
    op->saved[MEAN] = centered ? exo_tape_buffer(tape, x->dims[0] * sizeof(float)) : NULL;
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (exo_tape_run(tape, row_norm, .shape = {.rows = x->dims[0], .width = x->dims[1]},
                     .centered = centered, .eps = eps, .dtype = y->dtype, .y = y->data,
                     .mean = op->saved[MEAN], .inverse = op->saved[INVERSE], .x = x->data,
                     .weight = weight->data, .bias = bias ? bias->data : NULL) != EXO_OK)
        return NULL;
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
