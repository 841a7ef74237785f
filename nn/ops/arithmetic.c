/* Element-by-element sums and products, scaling, the mean. In fp32: operands of another type are cast. */
#include <exogym/tensor.h>

#include "pieces.h"
#include "tape_impl.h"

/* Both operands as fp32 and in one layout; false: NULL, or shapes differ. */
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
like(exo_tape *tape, const exo_op_class *op_class, exo_tensor *const *in, size_t num_in, exo_op **op)
{
    *op = exo_tape_op(tape, op_class, in, num_in);
    return *op ? exo_tape_tensor(tape, EXO_F32, in[0]->layout, in[0]->num_dims, in[0]->dims) : NULL;
}

/* out = a + b, out (+)= a b, out (+)= a factor. */
struct sweep {
    const float *a, *b;
    float *out, factor;
    size_t count;
    bool add; /* to what `out` holds */
};

static void
sum_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first = piece * EXO_PIECE_ELEMENTS, end = first + exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
    for (size_t i = first; i < end; i++)
        s->out[i] = s->a[i] + s->b[i];
}

static void
product_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first = piece * EXO_PIECE_ELEMENTS, end = first + exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
    for (size_t i = first; i < end; i++)
        s->out[i] = s->add ? s->out[i] + s->a[i] * s->b[i] : s->a[i] * s->b[i];
}

static void
scale_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first = piece * EXO_PIECE_ELEMENTS, end = first + exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
    for (size_t i = first; i < end; i++)
        s->out[i] = s->add ? s->out[i] + s->a[i] * s->factor : s->a[i] * s->factor;
}

static void
run_sweep(struct sweep *s, void (*piece)(void *context, size_t index))
{
    exo_parallel_for(exo_pieces(s->count, EXO_PIECE_ELEMENTS), piece, s);
}

/* dx (+)= factor dy, or with `other` dx (+)= dy other. */
static exo_status
give_gradient(exo_tape *tape, const exo_op *op, exo_tensor *x, const float *other, float factor, exo_err *err)
{
    struct sweep s = {.a = op->out->grad, .b = other, .factor = factor, .count = x->numel};
    exo_status st = EXO_OK;
    s.out = exo_tape_grad(tape, x, &s.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    if (s.out)
        run_sweep(&s, other ? product_piece : scale_piece);
    return EXO_OK;
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
    struct sweep s = {.a = a->data, .b = b->data, .out = y->data, .count = y->numel};
    run_sweep(&s, sum_piece);
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
    struct sweep s = {.a = a->data, .b = b->data, .out = y->data, .count = y->numel};
    run_sweep(&s, product_piece);
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
    struct sweep s = {.a = x->data, .out = y->data, .factor = factor, .count = y->numel};
    run_sweep(&s, scale_piece);
    return exo_tape_finish(tape, op, y);
}

static exo_status
mean_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    bool add = false;
    exo_status st = EXO_OK;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    float dy = *(const float *)op->out->grad / (float)x->numel;
    for (size_t i = 0; i < x->numel; i++)
        dx[i] = (add ? dx[i] : 0.0f) + dy;
    return EXO_OK;
}

static const exo_op_class mean_class = {.name = "mean", .backward = mean_backward};

exo_tensor *
exo_mean(exo_tape *tape, exo_tensor *x)
{
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    if (!x)
        return NULL;
    if (x->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL, "mean: of no elements");
    exo_op *op = exo_tape_op(tape, &mean_class, &x, 1);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    if (!y)
        return NULL;
    const float *in = x->data;
    double sum = 0;
    for (size_t i = 0; i < x->numel; i++)
        sum += (double)in[i];
    *(float *)y->data = (float)(sum / (double)x->numel);
    return exo_tape_finish(tape, op, y);
}
