/* Matrices as products of two narrow ones: see exogym/compress.h. The three products are those of a
 * linear layer whose weight is Q. State: plans and scratch, owned by the caller. */
#include <exogym/compress.h>

#include <assert.h>

#include <exogym/memory.h>

#include "nn/device/device_impl.h"

struct exo_low_rank {
    exo_device *device;
    size_t rows, cols, rank;
    exo_plan *plan;
    exo_array scratch; /* of orthonormalize, in bytes */
};

exo_status
exo_low_rank_new(exo_low_rank **out, exo_device *device, size_t rows, size_t cols, size_t rank,
                 exo_err *err)
{
    assert(rank > 0 && rank <= rows && rank <= cols);
    const exo_linear_shape shape = {.rows = rows,
                                    .in = cols,
                                    .out = rank,
                                    .dtype = EXO_F32,
                                    .out_dtype = EXO_F32,
                                    .backward = 1,
                                    .input_grad = 1};
    const size_t longest = rows > cols ? rows : cols;
    exo_low_rank *l = exo_calloc(1, sizeof *l);
    if (!l)
        return exo_fail(err, EXO_NOMEM, "no memory for a matrix of rank %zu", rank);
    *l = (exo_low_rank){.device = device, .rows = rows, .cols = cols, .rank = rank};
    exo_status st = exo_plan_new(&l->plan, device, EXO_SHAPE_LINEAR, &shape, err);
    if (st == EXO_OK)
        st = exo_array_init(&l->scratch, device, EXO_U8,
                            ((rank + 1) * longest + rank) * sizeof(double), err);
    if (st == EXO_OK)
        *out = l;
    else
        exo_low_rank_free(&l);
    return st;
}

void
exo_low_rank_free(exo_low_rank **low_rank)
{
    exo_low_rank *l = *low_rank;
    if (!l)
        return;
    exo_plan_free(&l->plan);
    exo_array_release(&l->scratch);
    exo_free(l);
    *low_rank = NULL;
}

exo_status
exo_low_rank_draw(exo_low_rank *l, exo_array q, exo_rng *rng, exo_err *err)
{
    float *numbers = exo_calloc(q.count, sizeof *numbers);
    if (!numbers)
        return exo_fail(err, EXO_NOMEM, "no memory for %zu numbers", q.count);
    assert(q.count == l->rank * l->cols && q.device == l->device);
    (void)l;
    for (size_t i = 0; i < q.count; i++)
        numbers[i] = exo_rng_normal(rng);
    exo_status st = exo_array_write(q, numbers, err);
    exo_free(numbers);
    return st;
}

static void
check(const exo_low_rank *l, exo_array p, exo_array q, exo_array m)
{
    assert(p.count == l->rows * l->rank && q.count == l->rank * l->cols);
    assert(m.count == l->rows * l->cols && m.device == l->device);
    (void)l;
    (void)p;
    (void)q;
    (void)m;
}

exo_status
exo_low_rank_left(exo_low_rank *l, exo_array p, exo_array m, exo_array q, exo_err *err)
{
    check(l, p, q, m);
    return l->device->device_class->kernels->linear(
        l->device,
        &(exo_linear_args){
            .plan = l->plan, .activation = EXO_LINEAR, .y = p.data, .x = m.data, .weight = q.data},
        err);
}

exo_status
exo_low_rank_right(exo_low_rank *l, exo_array q, exo_array p, exo_array m, exo_err *err)
{
    check(l, p, q, m);
    exo_vec_fill(q, 0); /* the kernel adds */
    return l->device->device_class->kernels->linear_grad_w(
        l->device,
        &(exo_linear_grad_w_args){.plan = l->plan, .dw = q.data, .dy = p.data, .x = m.data}, err);
}

exo_status
exo_low_rank_product(exo_low_rank *l, exo_array m, exo_array p, exo_array q, exo_err *err)
{
    check(l, p, q, m);
    return l->device->device_class->kernels->linear_grad_x(
        l->device,
        &(exo_linear_grad_x_args){.plan = l->plan, .dx = m.data, .dy = p.data, .weight = q.data},
        err);
}

void
exo_low_rank_orthonormalize_p(exo_low_rank *l, exo_array p)
{
    assert(p.count == l->rows * l->rank);
    exo_device_run(l->device, orthonormalize, .vectors = l->rank, .length = l->rows,
                   .vector_step = 1, .element_step = l->rank, .x = p.data,
                   .scratch = l->scratch.data);
}

void
exo_low_rank_orthonormalize_q(exo_low_rank *l, exo_array q)
{
    assert(q.count == l->rank * l->cols);
    exo_device_run(l->device, orthonormalize, .vectors = l->rank, .length = l->cols,
                   .vector_step = l->cols, .element_step = 1, .x = q.data,
                   .scratch = l->scratch.data);
}
