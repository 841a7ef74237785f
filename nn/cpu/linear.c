/* Linear layers: y = x W^T + b, then an activation, or added to a residual. A piece of rows is
 * multiplied, activated (backward: times the activation's slope) and stored while it is in the cache. Owner of a plan: its operation. */
#include "nn/cpu/cpu_device.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/activations.h"
#include "nn/cpu/invariant.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/matmul.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"

enum {
    SUM_COLUMNS = 64 /* of a piece of column sums */
};

struct linear_plan {
    exo_plan plan;
    exo_linear_shape shape;
    exo_matmul *forward, *grad_x, *grad_w;
};

static struct linear_plan *
plan_of(exo_plan *plan)
{
    return (struct linear_plan *)(void *)plan;
}

void
exo_cpu_linear_plan_free(exo_plan *plan)
{
    struct linear_plan *p = plan_of(plan);
    exo_matmul_free(&p->forward);
    exo_matmul_free(&p->grad_x);
    exo_matmul_free(&p->grad_w);
    exo_free(p);
}

static exo_status
make_products(struct linear_plan *p, exo_err *err)
{
    const exo_linear_shape *s = &p->shape;
    exo_gemm_shape shape = {.rows = s->rows,
                            .cols = s->out,
                            .inner = s->in,
                            .transpose_b = 1,
                            .in_dtype = s->dtype,
                            .out_dtype = s->out_dtype,
                            .with_bias = s->with_bias,
                            .add = s->residual};
    exo_status st = s->invariant ? EXO_OK : exo_matmul_new(&p->forward, &shape, err);
    if (st == EXO_OK && s->backward && s->input_grad) {
        shape = (exo_gemm_shape){.rows = s->rows,
                                 .cols = s->in,
                                 .inner = s->out,
                                 .in_dtype = s->dtype,
                                 .out_dtype = s->dtype};
        st = exo_matmul_new(&p->grad_x, &shape, err);
    }
    if (st == EXO_OK && s->backward) {
        shape = (exo_gemm_shape){.rows = s->out,
                                 .cols = s->in,
                                 .inner = s->rows,
                                 .transpose_a = 1,
                                 .in_dtype = s->dtype,
                                 .out_dtype = EXO_F32,
                                 .add = 1};
        st = exo_matmul_new(&p->grad_w, &shape, err);
    }
    return st;
}

exo_status
exo_cpu_linear_plan(exo_plan **out, const exo_linear_shape *shape, exo_err *err)
{
    struct linear_plan *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "linear: no memory");
    p->shape = *shape;
    exo_status st = make_products(p, err);
    if (st == EXO_OK)
        *out = &p->plan;
    else
        exo_cpu_linear_plan_free(&p->plan);
    return st;
}

size_t
exo_cpu_linear_scratch(const exo_linear_shape *shape, exo_scratch_use use)
{
    return shape->invariant && use == EXO_SCRATCH_FORWARD ? exo_linear_rows_scratch(shape) : 0;
}

/* --- Products --------------------------------------------------------------------------------- */

struct loop {
    exo_matmul *matmul;
    const void *a, *b;
    const float *bias;
    void *c;
    size_t cols;           /* of c                                            */
    const float *residual; /* (rows, cols) that c is to have first; NULL: none */
    exo_activation activation;
    exo_dtype type;
    void *activated;    /* where activation(c) goes; NULL: nowhere */
    const void *before; /* c is multiplied with activation'(before); NULL: it is not */
    exo_failure failure;
};

static void
product_piece(void *context, size_t piece)
{
    struct loop *l = context;
    exo_err err = {0};
    size_t first, rows;
    exo_matmul_rows(l->matmul, piece, &first, &rows);
    const size_t count = rows * l->cols;
    if (l->residual)
        memcpy((float *)l->c + first * l->cols, l->residual + first * l->cols,
               count * sizeof(float));
    exo_failure_note(&l->failure, exo_matmul_run(l->matmul, piece, l->a, l->b, l->bias, l->c, &err),
                     &err);
    size_t skip = first * l->cols * exo_dtype_size(l->type);
    char *c = (char *)l->c + skip;
    if (l->activated)
        exo_activate(l->activation, l->type, c, (char *)l->activated + skip, count);
    if (l->before)
        exo_activate_backward(l->activation, l->type, (const char *)l->before + skip, c, c, count);
}

static exo_status
run_loop(struct loop *loop, exo_err *err)
{
    exo_parallel_for(exo_matmul_pieces(loop->matmul), product_piece, loop);
    return exo_failure_result(&loop->failure, err);
}

exo_status
exo_cpu_linear(exo_device *device, const exo_linear_args *k, exo_err *err)
{
    struct linear_plan *p = plan_of(k->plan);
    struct loop loop = {.matmul = p->forward,
                        .a = k->x,
                        .b = k->weight,
                        .bias = k->bias,
                        .c = k->before ? k->before : k->y,
                        .cols = p->shape.out,
                        .residual = k->residual,
                        .activation = k->activation,
                        .type = (exo_dtype)p->shape.dtype,
                        .activated = k->activation != EXO_LINEAR ? k->y : NULL};
    (void)device;
    if (!p->shape.invariant)
        return run_loop(&loop, err);
    exo_linear_rows(&p->shape, k);
    return EXO_OK;
}

exo_status
exo_cpu_linear_grad_x(exo_device *device, const exo_linear_grad_x_args *k, exo_err *err)
{
    struct linear_plan *p = plan_of(k->plan);
    struct loop loop = {.matmul = p->grad_x,
                        .a = k->dy,
                        .b = k->weight,
                        .c = k->dx,
                        .cols = p->shape.in,
                        .activation = k->activation,
                        .type = (exo_dtype)p->shape.dtype,
                        .before = k->before};
    (void)device;
    return run_loop(&loop, err);
}

exo_status
exo_cpu_linear_grad_w(exo_device *device, const exo_linear_grad_w_args *k, exo_err *err)
{
    const struct linear_plan *p = plan_of(k->plan);
    struct loop loop = {.matmul = p->grad_w, .a = k->dy, .b = k->x, .c = k->dw};
    const exo_status st = run_loop(&loop, err);
    if (st != EXO_OK || !k->db)
        return st;
    return exo_cpu_column_sums(device,
                               &(exo_column_sums_args){.rows = p->shape.rows,
                                                       .columns = p->shape.out,
                                                       .dtype = (exo_dtype)p->shape.dtype,
                                                       .y = k->db,
                                                       .x = k->dy,
                                                       .add = true},
                               err);
}

/* --- Sweeps ----------------------------------------------------------------------------------- */

static void
sums_piece(void *context, size_t piece)
{
    const exo_column_sums_args *k = context;
    size_t first = piece * SUM_COLUMNS, count = exo_piece_length(k->columns, SUM_COLUMNS, piece);
    double sum[SUM_COLUMNS] = {0};
    exo_column_sums(k->dtype, (const char *)k->x + first * exo_dtype_size(k->dtype), k->rows,
                    k->columns, count, sum);
    for (size_t i = 0; i < count; i++)
        k->y[first + i] = (k->add ? k->y[first + i] : 0.0f) + (float)sum[i];
}

exo_status
exo_cpu_column_sums(exo_device *device, const exo_column_sums_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(exo_pieces(args->columns, SUM_COLUMNS), sums_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

static void
activation_piece(void *context, size_t piece)
{
    const exo_activation_backward_args *k = context;
    size_t first, end, size = exo_dtype_size(k->dtype);
    exo_cpu_piece(k->count, piece, &first, &end);
    exo_activate_backward(k->activation, k->dtype, (const char *)k->x + first * size,
                          (const char *)k->dy + first * size, (char *)k->dx + first * size,
                          end - first);
}

exo_status
exo_cpu_activation_backward(exo_device *device, const exo_activation_backward_args *args,
                            exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, activation_piece, args);
}
