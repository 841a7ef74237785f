/* Convolutions of whole batches: the pieces of conv.h, with all threads. Owner of a plan: its
 * operation. */
#include "nn/cpu/cpu_device.h"

#include <exogym/memory.h>

#include "nn/cpu/conv.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"

struct conv_plan {
    exo_plan plan;
    exo_conv *conv;
};

static exo_conv *
conv_of(exo_plan *plan)
{
    return ((struct conv_plan *)(void *)plan)->conv;
}

exo_status
exo_cpu_conv_plan(exo_plan **out, const exo_conv_shape *shape, exo_err *err)
{
    struct conv_plan *p = exo_calloc(1, sizeof *p);
    if (!p)
        return exo_fail(err, EXO_NOMEM, "conv2d: no memory");
    exo_status st = exo_conv_new(&p->conv, shape, err);
    if (st == EXO_OK)
        *out = &p->plan;
    else
        exo_cpu_conv_plan_free(&p->plan);
    return st;
}

void
exo_cpu_conv_plan_free(exo_plan *plan)
{
    struct conv_plan *p = (struct conv_plan *)(void *)plan;
    exo_conv_free(&p->conv);
    exo_free(p);
}

struct forward {
    const exo_conv_args *args;
    exo_failure failure;
};

static void
forward_piece(void *context, size_t piece)
{
    struct forward *f = context;
    const exo_conv_args *k = f->args;
    exo_err err = {0};
    exo_failure_note(&f->failure,
                     exo_conv_forward(conv_of(k->plan), piece, k->x, k->bias, k->y, &err), &err);
}

exo_status
exo_cpu_conv(exo_device *device, const exo_conv_args *k, exo_err *err)
{
    struct forward f = {.args = k};
    (void)device;
    exo_status st = exo_conv_set_weights(conv_of(k->plan), k->weight, err);
    if (st != EXO_OK)
        return st;
    exo_parallel_for(exo_conv_pieces(conv_of(k->plan)), forward_piece, &f);
    return exo_failure_result(&f.failure, err);
}

struct backward {
    const exo_conv_backward_args *args;
    exo_failure failure;
};

static void
backward_piece(void *context, size_t piece)
{
    struct backward *b = context;
    const exo_conv_backward_args *k = b->args;
    exo_err err = {0};
    exo_status st = EXO_OK;
    if (k->dweight || k->dbias)
        st = exo_conv_backward_weights(conv_of(k->plan), piece, k->x, k->dy, &err);
    if (st == EXO_OK && k->dx)
        st = exo_conv_backward_data(conv_of(k->plan), piece, k->dy, k->dx, &err);
    exo_failure_note(&b->failure, st, &err);
}

exo_status
exo_cpu_conv_backward(exo_device *device, const exo_conv_backward_args *k, exo_err *err)
{
    struct backward b = {.args = k};
    (void)device;
    exo_parallel_for(exo_conv_pieces(conv_of(k->plan)), backward_piece, &b);
    exo_status st = exo_failure_result(&b.failure, err);
    if (st == EXO_OK && (k->dweight || k->dbias))
        st = exo_conv_add_weight_grads(conv_of(k->plan), k->dweight, k->dbias, err);
    return st;
}
