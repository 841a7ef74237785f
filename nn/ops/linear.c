/* Linear layers: y = x W^T + b. */
#include <exogym/tensor.h>

#include <string.h>

#include <exogym/memory.h>

#include "kernels.h"
#include "matmul.h"
#include "pieces.h"
#include "tape_impl.h"

enum {
    INPUT,
    WEIGHT,
    BIAS
};

struct signature {
    size_t rows, in, out, dtype, with_bias, backward, input_grad;
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
    exo_matmul_shape shape = {.rows = sig->rows,
                              .cols = sig->out,
                              .inner = sig->in,
                              .transpose_b = 1,
                              .in_dtype = sig->dtype,
                              .out_dtype = sig->dtype,
                              .with_bias = sig->with_bias};
    exo_status st = exo_matmul_new(&s->forward, &shape, err);
    if (st == EXO_OK && sig->backward && sig->input_grad) {
        shape = (exo_matmul_shape){
            .rows = sig->rows, .cols = sig->in, .inner = sig->out, .in_dtype = sig->dtype, .out_dtype = sig->dtype};
        st = exo_matmul_new(&s->grad_x, &shape, err);
    }
    if (st == EXO_OK && sig->backward) {
        shape = (exo_matmul_shape){.rows = sig->out,
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
    exo_failure_note(&l->failure, exo_matmul_run(l->matmul, piece, l->a, l->b, l->bias, l->c, &err), &err);
}

static exo_status
run_matmul(exo_matmul *matmul, const void *a, const void *b, const float *bias, void *c, exo_err *err)
{
    struct loop loop = {.matmul = matmul, .a = a, .b = b, .bias = bias, .c = c};
    exo_parallel_for(exo_matmul_pieces(matmul), run_piece, &loop);
    return exo_failure_result(&loop.failure, err);
}

/* The weights in the type that products are taken in: a copy in saved[0] under autocast. */
static const void *
compute_weights(const exo_op *op)
{
    return op->saved[0] ? op->saved[0] : op->in[WEIGHT]->data;
}

static exo_status
backward_to_input(exo_tape *tape, exo_op *op, exo_err *err)
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
    st = run_matmul(s->grad_x, op->out->grad, compute_weights(op), NULL, target, err);
    if (add && st == EXO_OK)
        exo_accumulate(x->dtype, target, dx, x->numel);
    if (add)
        exo_tape_buffer_done(tape, target);
    return st;
}

static exo_status
linear_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT], *bias = op->in[BIAS];
    struct state *s = op->state;
    size_t rows = x->dims[0], out = weight->dims[0];
    bool add = false;
    exo_status st = EXO_OK;

    float *dw = exo_tape_grad(tape, weight, &add, &st);
    if (dw && !add)
        memset(dw, 0, weight->numel * sizeof *dw); /* the product adds */
    if (st == EXO_OK && dw)
        st = run_matmul(s->grad_w, op->out->grad, x->data, NULL, dw, err);
    float *db = bias && st == EXO_OK ? exo_tape_grad(tape, bias, &add, &st) : NULL;
    if (db) {
        memset(s->bias_sum, 0, out * sizeof *s->bias_sum);
        exo_column_sums(op->out->dtype, op->out->grad, rows, out, s->bias_sum);
        for (size_t i = 0; i < out; i++)
            db[i] = (add ? db[i] : 0.0f) + (float)s->bias_sum[i];
    }
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return exo_tape_error(tape, err);
    return st == EXO_OK ? backward_to_input(tape, op, err) : st;
}

static const exo_op_class linear_class = {.name = "linear", .backward = linear_backward, .release = release_state};

exo_tensor *
exo_linear(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias)
{
    char a[96], b[96];
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || weight->num_dims != 2 || x->dims[1] != weight->dims[1] || x->numel == 0 ||
        weight->numel == 0 || (bias && (bias->num_dims != 1 || bias->dims[0] != weight->dims[0])))
        return exo_tape_fail(tape, EXO_INVAL, "linear: x %s and weight %s: expected (N, D) and (O, D), bias (O)",
                             exo_shape_text(x, a), exo_shape_text(weight, b));
    if (weight->dtype != EXO_F32 || (bias && bias->dtype != EXO_F32))
        return exo_tape_fail(tape, EXO_INVAL, "linear: weight is %s, bias %s: expected fp32",
                             exo_dtype_name(weight->dtype), bias ? exo_dtype_name(bias->dtype) : "none");
    exo_dtype dtype = exo_compute_dtype(tape);
    x = exo_to_dtype(tape, x, dtype);
    exo_op *op = x ? exo_tape_op(tape, &linear_class, (exo_tensor *[]){x, weight, bias}, 3) : NULL;
    if (!op)
        return NULL;
    const struct signature sig = {
        .rows = x->dims[0],
        .in = x->dims[1],
        .out = weight->dims[0],
        .dtype = (size_t)dtype,
        .with_bias = bias != NULL,
        .backward = exo_tape_pass(tape)->grad,
        .input_grad = x->needs_grad,
    };
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &sig, sizeof sig, sizeof *s, &fresh);
    if (!s)
        return NULL;
    exo_status st = fresh ? make_state(s, &sig, &err) : EXO_OK;
    if (st != EXO_OK)
        return exo_tape_plan_failed(tape, op, dtype, st, &err);
    if (dtype != EXO_F32) {
        op->saved[0] = exo_tape_buffer(tape, weight->numel * exo_dtype_size(dtype));
        if (!op->saved[0])
            return NULL;
        exo_cast(EXO_F32, weight->data, dtype, op->saved[0], weight->numel);
    }
    exo_tensor *y = exo_tape_tensor(tape, dtype, EXO_ROW_MAJOR, 2, (size_t[]){sig.rows, sig.out});
    if (!y)
        return NULL;
    st = run_matmul(s->forward, x->data, compute_weights(op), bias ? bias->data : NULL, y->data, &err);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "linear: %s", err.text);
    return exo_tape_finish(tape, op, y);
}
