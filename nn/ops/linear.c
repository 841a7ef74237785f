/* Linear layers: y = x W^T + b, then an activation, or added to a residual.
 *
 * A piece of rows is multiplied, activated and stored while it is in the cache. With an activation what it is taken of is kept for backward. */
#include <exogym/sequence.h>

#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/activations.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/matmul.h"
#include "nn/ops/pieces.h"
#include "nn/tape_impl.h"

enum {
    INPUT,
    WEIGHT,
    BIAS,
    RESIDUAL
};

enum {
    WEIGHTS_KEPT, /* saved: the weights as bf16, under autocast    */
    BEFORE        /* saved: what the activation was taken of       */
};

enum {
    SUM_COLUMNS = 64 /* of a piece of the bias' gradient */
};

struct signature {
    size_t rows, in, out, dtype, residual, out_dtype, with_bias, backward, input_grad;
};

struct state {
    exo_matmul *forward, *grad_x, *grad_w;
    double *bias_sum; /* (out) */
};

struct loop {
    exo_matmul *matmul;
    const void *a, *b;
    const float *bias;
    void *c;
    size_t rows, cols;     /* of c                                            */
    const float *residual; /* (rows, cols) that c is to have first; NULL: none */
    exo_activation activation;
    exo_dtype type;
    void *activated; /* where activation(c) goes; NULL: nowhere */
    exo_failure failure;
};

static void
release_state(void *state)
{
    struct state *s = state;
    exo_matmul_free(&s->forward);
    exo_matmul_free(&s->grad_x);
    exo_matmul_free(&s->grad_w);
    exo_free(s->bias_sum);
}

static exo_status
make_state(struct state *s, const struct signature *sig, exo_err *err)
{
    exo_gemm_shape shape = {.rows = sig->rows,
                            .cols = sig->out,
                            .inner = sig->in,
                            .transpose_b = 1,
                            .in_dtype = sig->dtype,
                            .out_dtype = sig->out_dtype,
                            .with_bias = sig->with_bias,
                            .add = sig->residual};
    exo_status st = exo_matmul_new(&s->forward, &shape, err);
    if (st == EXO_OK && sig->backward && sig->input_grad) {
        shape = (exo_gemm_shape){
            .rows = sig->rows, .cols = sig->in, .inner = sig->out, .in_dtype = sig->dtype, .out_dtype = sig->dtype};
        st = exo_matmul_new(&s->grad_x, &shape, err);
    }
    if (st == EXO_OK && sig->backward) {
        shape = (exo_gemm_shape){.rows = sig->out,
                                 .cols = sig->in,
                                 .inner = sig->rows,
                                 .transpose_a = 1,
                                 .in_dtype = sig->dtype,
                                 .out_dtype = EXO_F32,
                                 .add = 1};
        st = exo_matmul_new(&s->grad_w, &shape, err);
    }
    s->bias_sum = exo_calloc(sig->out, sizeof *s->bias_sum);
    if (st == EXO_OK && !s->bias_sum)
        st = exo_fail(err, EXO_NOMEM, "linear: no memory");
    return st;
}

static void
run_piece(void *context, size_t piece)
{
    struct loop *l = context;
    exo_err err = {0};
    size_t first = piece * EXO_MATMUL_PIECE, count = exo_piece_length(l->rows, EXO_MATMUL_PIECE, piece) * l->cols;
    if (l->residual)
        memcpy((float *)l->c + first * l->cols, l->residual + first * l->cols, count * sizeof(float));
    exo_failure_note(&l->failure, exo_matmul_run(l->matmul, piece, l->a, l->b, l->bias, l->c, &err), &err);
    if (l->activated) {
        size_t skip = first * l->cols * exo_dtype_size(l->type);
        exo_activate(l->activation, l->type, (char *)l->c + skip, (char *)l->activated + skip, count);
    }
}

static exo_status
run_loop(struct loop *loop, exo_err *err)
{
    exo_parallel_for(exo_matmul_pieces(loop->matmul), run_piece, loop);
    return exo_failure_result(&loop->failure, err);
}

static exo_status
run_matmul(exo_matmul *matmul, const void *a, const void *b, void *c, exo_err *err)
{
    struct loop loop = {.matmul = matmul, .a = a, .b = b, .c = c};
    return run_loop(&loop, err);
}

/* The weights in the type that products are taken in: a copy in saved[0] under autocast. */
static const void *
compute_weights(const exo_op *op)
{
    return op->saved[WEIGHTS_KEPT] ? op->saved[WEIGHTS_KEPT] : op->in[WEIGHT]->data;
}

/* --- Backward --------------------------------------------------------------------------------------------------------------------- */

static exo_status
backward_to_input(exo_tape *tape, exo_op *op, const void *dy, exo_err *err)
{
    exo_tensor *x = op->in[INPUT];
    struct state *s = op->state;
    bool add = false;
    exo_status st = EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (!dx)
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    void *target = add ? exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype)) : dx;
    if (!target)
        return exo_tape_error(tape, err);
    st = run_matmul(s->grad_x, dy, compute_weights(op), target, err);
    if (add && st == EXO_OK)
        exo_accumulate_all(x->dtype, target, dx, x->numel);
    if (add)
        exo_tape_buffer_done(tape, target);
    return st;
}

struct bias_loop {
    exo_dtype type;
    const void *dy;
    size_t rows, cols;
    double *sum;
    float *gradient;
    bool add;
};

static void
bias_piece(void *context, size_t piece)
{
    const struct bias_loop *l = context;
    size_t first = piece * SUM_COLUMNS, count = exo_piece_length(l->cols, SUM_COLUMNS, piece);
    memset(l->sum + first, 0, count * sizeof *l->sum);
    exo_column_sums(l->type, (const char *)l->dy + first * exo_dtype_size(l->type), l->rows, l->cols, count,
                    l->sum + first);
    for (size_t i = first; i < first + count; i++)
        l->gradient[i] = (l->add ? l->gradient[i] : 0.0f) + (float)l->sum[i];
}

static exo_status
backward_to_weights(exo_tape *tape, exo_op *op, const void *dy, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    struct state *s = op->state;
    bool add = false;
    exo_status st = EXO_OK;
    float *dw = exo_tape_grad(tape, weight, &add, &st);
    if (dw && !add)
        memset(dw, 0, weight->numel * sizeof *dw); /* the product adds */
    if (st == EXO_OK && dw)
        st = run_matmul(s->grad_w, dy, x->data, dw, err);
    struct bias_loop l = {.type = x->dtype, .dy = dy, .rows = x->dims[0], .cols = weight->dims[0], .sum = s->bias_sum};
    l.gradient = bias && st == EXO_OK ? exo_tape_grad(tape, bias, &l.add, &st) : NULL;
    if (l.gradient)
        exo_parallel_for(exo_pieces(l.cols, SUM_COLUMNS), bias_piece, &l);
    return exo_tape_error(tape, NULL) != EXO_OK ? exo_tape_error(tape, err) : st;
}

struct sweep {
    exo_activation activation;
    exo_dtype from, type;
    const char *before, *dy;
    char *out;
    size_t count;
};

/* The gradient of what the activation is taken of, or the output's gradient as the products take it. */
static void
sweep_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first = piece * EXO_PIECE_ELEMENTS, count = exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
    char *out = s->out + first * exo_dtype_size(s->type);
    const char *dy = s->dy + first * exo_dtype_size(s->from);
    if (s->before)
        exo_activate_backward(s->activation, s->type, s->before + first * exo_dtype_size(s->type), dy, out, count);
    else
        exo_cast(s->from, dy, s->type, out, count);
}

/* A residual's gradient is the output's. */
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
        exo_accumulate_all(EXO_F32, op->out->grad, gradient, residual->numel);
    else if (gradient)
        memcpy(gradient, op->out->grad, residual->numel * sizeof *gradient);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static exo_status
linear_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const exo_tensor *x = op->in[INPUT], *y = op->out;
    struct sweep s = {.activation = (exo_activation)op->number,
                      .from = y->dtype,
                      .type = x->dtype,
                      .before = op->saved[BEFORE],
                      .dy = y->grad,
                      .count = y->numel};
    bool as_it_is = !s.before && s.from == s.type;
    void *own = as_it_is ? NULL : exo_tape_buffer(tape, y->numel * exo_dtype_size(s.type));
    if (!as_it_is && !own)
        return exo_tape_error(tape, err);
    if (own) {
        s.out = own;
        exo_parallel_for(exo_pieces(s.count, EXO_PIECE_ELEMENTS), sweep_piece, &s);
    }
    const void *dy = own ? own : y->grad;
    exo_status st = backward_to_weights(tape, op, dy, err);
    if (st == EXO_OK)
        st = backward_to_input(tape, op, dy, err);
    exo_tape_buffer_done(tape, own);
    return st == EXO_OK ? backward_to_residual(tape, op, err) : st;
}

/* --- Forward ---------------------------------------------------------------------------------------------------------------------- */

static const exo_op_class linear_class = {.name = "linear", .backward = linear_backward, .release = release_state};

static bool
check(exo_tape *tape, const exo_tensor *x, const exo_tensor *weight, const exo_tensor *bias, const exo_tensor *residual)
{
    char a[96], b[96], c[96];
    if (x->num_dims != 2 || weight->num_dims != 2 || x->dims[1] != weight->dims[1] || x->numel == 0 ||
        weight->numel == 0 || (bias && (bias->num_dims != 1 || bias->dims[0] != weight->dims[0]))) {
        exo_tape_fail(tape, EXO_INVAL, "linear: x %s and weight %s: expected (N, D) and (O, D), bias (O)",
                      exo_shape_text(x, a), exo_shape_text(weight, b));
        return false;
    }
    if (weight->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32)) {
        exo_tape_fail(tape, EXO_INVAL, "linear: weight is %s, bias %s: expected fp32", exo_dtype_name(weight->dtype),
                      bias ? exo_dtype_name(bias->dtype) : "none");
        return false;
    }
    if (residual &&
        (residual->num_dims != 2 || residual->dims[0] != x->dims[0] || residual->dims[1] != weight->dims[0])) {
        exo_tape_fail(tape, EXO_INVAL, "linear: residual %s of x %s and weight %s: expected (N, O)",
                      exo_shape_text(residual, c), exo_shape_text(x, a), exo_shape_text(weight, b));
        return false;
    }
    return true;
}

/* The operation with its plan. NULL: recorded in the tape. */
static exo_op *
begin(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, exo_tensor *residual, exo_dtype dtype)
{
    exo_op *op = exo_tape_op(tape, &linear_class, (exo_tensor *[]){x, weight, bias, residual}, 4);
    if (!op)
        return NULL;
    const struct signature sig = {
        .rows = x->dims[0],
        .in = x->dims[1],
        .out = weight->dims[0],
        .dtype = (size_t)dtype,
        .out_dtype = residual ? EXO_F32 : (size_t)dtype,
        .residual = residual != NULL,
        .with_bias = bias != NULL,
        .backward = exo_tape_pass(tape)->grad,
        .input_grad = x->needs_grad,
    };
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &sig, sizeof sig, sizeof *s, &fresh);
    exo_status st = s && fresh ? make_state(s, &sig, &err) : EXO_OK;
    if (st != EXO_OK) {
        exo_tape_plan_failed(tape, op, dtype, st, &err);
        return NULL;
    }
    if (s && dtype != EXO_F32) {
        op->saved[WEIGHTS_KEPT] = exo_tape_buffer(tape, weight->numel * exo_dtype_size(dtype));
        if (!op->saved[WEIGHTS_KEPT])
            return NULL;
        exo_cast_all(EXO_F32, weight->data, dtype, op->saved[WEIGHTS_KEPT], weight->numel);
    }
    return s ? op : NULL;
}

static exo_tensor *
linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, exo_tensor *residual,
       exo_activation activation)
{
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK || !check(tape, x, weight, bias, residual))
        return NULL;
    exo_dtype dtype = exo_compute_dtype(tape);
    x = exo_to_dtype(tape, x, dtype);
    residual = exo_to_dtype(tape, residual, EXO_F32);
    exo_op *op = x ? begin(tape, x, weight, bias, residual, dtype) : NULL;
    if (!op)
        return NULL;
    const size_t dims[2] = {x->dims[0], weight->dims[0]};
    exo_tensor *y = exo_tape_tensor(tape, residual ? EXO_F32 : dtype, EXO_ROW_MAJOR, 2, dims);
    if (!y)
        return NULL;
    op->number = (size_t)activation;
    struct loop loop = {.matmul = ((struct state *)op->state)->forward,
                        .a = x->data,
                        .b = compute_weights(op),
                        .bias = bias ? bias->data : NULL,
                        .c = y->data,
                        .rows = dims[0],
                        .cols = dims[1],
                        .residual = residual ? residual->data : NULL,
                        .activation = activation,
                        .type = dtype};
    if (activation != EXO_LINEAR) {
        loop.activated = y->data;
        if (exo_tape_pass(tape)->grad) {
            loop.c = op->saved[BEFORE] = exo_tape_buffer(tape, y->numel * exo_dtype_size(dtype));
            if (!loop.c)
                return NULL;
        }
    }
    exo_err err = {0};
    bool idle = activation == EXO_LINEAR && exo_tape_result_idle(tape);
    exo_status st = idle ? EXO_OK : run_loop(&loop, &err);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "linear: %s", err.text);
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias)
{
    return linear(tape, x, weight, bias, NULL, EXO_LINEAR);
}

exo_tensor *
exo_linear_activation(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, exo_activation activation)
{
    return linear(tape, x, weight, bias, NULL, activation);
}

exo_tensor *
exo_linear_residual(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, exo_tensor *residual)
{
    return residual ? linear(tape, x, weight, bias, residual, EXO_LINEAR) : NULL;
}
