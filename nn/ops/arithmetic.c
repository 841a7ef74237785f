/* Elementwise sums and products, scaling, and the mean, in fp32. Operands of another type are cast.
 * No state. Read next: nn/tape_run.h. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

/* Casts both operands to fp32 and b to a's layout. False: an operand is NULL, or the shapes differ,
 * recorded. */
static bool
operands(exo_tape *tape, const char *name, exo_tensor **a, exo_tensor **b)
{
    char x[96], y[96];
    if (!*a || !*b || exo_tape_error(tape, NULL) != EXO_OK)
        return false;
    if (!exo_same_shape(*a, *b)) {
        exo_tape_fail(tape, EXO_INVAL, "%s: shapes %s and %s differ", name, exo_shape_text(*a, x),
                      exo_shape_text(*b, y));
        return false;
    }
    *a = exo_to_dtype(tape, *a, EXO_F32);
    *b = exo_to_layout(tape, exo_to_dtype(tape, *b, EXO_F32), *a ? (*a)->layout : EXO_ROW_MAJOR);
    return *a && *b;
}

static exo_tensor *
like(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in, size_t num_in,
     exo_op **op)
{
    *op = exo_tape_op(tape, op_class, in, num_in);
    return *op ? exo_tape_tensor(tape, EXO_F32, in[0]->layout, in[0]->num_dims, in[0]->dims) : NULL;
}

/* dx (+)= factor dy; with `other`, dx (+)= dy other. */
static exo_status
give_gradient(exo_tape *tape, const exo_op *op, exo_tensor *x, const float *other, float factor,
              exo_err *err)
{
    bool add = false;
    exo_status st = EXO_OK;
    const float *dy = op->out->grad;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx && other)
        st = exo_tape_run(tape, mul, .count = x->numel, .y = dx, .a = dy, .b = other, .add = add);
    else if (dx && add)
        st = exo_tape_run(tape, axpy, .count = x->numel, .y = dx, .a = factor, .x = dy);
    else if (dx)
        st = exo_tape_run(tape, scale, .count = x->numel, .y = dx, .a = factor, .x = dy);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static exo_status
add_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_status st = give_gradient(tape, op, op->in[0], NULL, 1.0f, err);
    return st == EXO_OK ? give_gradient(tape, op, op->in[1], NULL, 1.0f, err) : st;
}

static const exo_op_class add_class = {.name = "add", .backward = add_backward};

exo_tensor *
exo_add(exo_tape *tape, exo_tensor *a, exo_tensor *b)
{
    exo_op *op;
    if (!operands(tape, "add", &a, &b))
        return NULL;
    exo_tensor *y = like(tape, &add_class, (exo_tensor *[]){a, b}, 2, &op);
    if (!y)
        return NULL;
    if (exo_tape_run(tape, add, .count = y->numel, .dtype = EXO_F32, .y = y->data, .a = a->data,
                     .b = b->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

static exo_status
mul_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_status st = give_gradient(tape, op, op->in[0], op->in[1]->data, 1.0f, err);
    return st == EXO_OK ? give_gradient(tape, op, op->in[1], op->in[0]->data, 1.0f, err) : st;
}

static const exo_op_class mul_class = {.name = "mul", .backward = mul_backward};

exo_tensor *
exo_mul(exo_tape *tape, exo_tensor *a, exo_tensor *b)
{
    exo_op *op;
    if (!operands(tape, "mul", &a, &b))
        return NULL;
    exo_tensor *y = like(tape, &mul_class, (exo_tensor *[]){a, b}, 2, &op);
    if (!y)
        return NULL;
    if (exo_tape_run(tape, mul, .count = y->numel, .y = y->data, .a = a->data, .b = b->data) !=
        EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

static exo_status
scale_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    return give_gradient(tape, op, op->in[0], NULL, op->factor, err);
}

static const exo_op_class scale_class = {.name = "scale", .backward = scale_backward};

exo_tensor *
exo_scale(exo_tape *tape, exo_tensor *x, float factor)
{
    exo_op *op;
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    exo_tensor *y = x ? like(tape, &scale_class, &x, 1, &op) : NULL;
    if (!y)
        return NULL;
    op->factor = factor;
    if (exo_tape_run(tape, scale, .count = y->numel, .y = y->data, .a = factor, .x = x->data) !=
        EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

static exo_status
mean_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    bool add = false;
    exo_status st = EXO_OK;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, mean_backward, .count = x->numel, .dx = dx, .dy = op->out->grad,
                          .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class mean_class = {.name = "mean", .backward = mean_backward};

exo_tensor *
exo_mean(exo_tape *tape, exo_tensor *x)
{
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    if (!x)
        return NULL;
    if (x->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL, "mean: x has no elements");
    exo_op *op = exo_tape_op(tape, &mean_class, &x, 1);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    if (!y)
        return NULL;
    if (exo_tape_run(tape, mean, .count = x->numel, .y = y->data, .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
