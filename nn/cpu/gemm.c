/* A matrix product through oneDNN: see gemm.h. A slot has the memory objects of one call at a
 * time. There are a few more slots than threads. Read next: onednn.h. */
#include "nn/cpu/gemm.h"

#include <sched.h>
#include <stdatomic.h>

#include <exogym/memory.h>

#include "nn/cpu/onednn.h"

struct slot {
    atomic_bool taken;
    dnnl_memory_t a, b, bias, c, scratch;
};

struct exo_gemm {
    exo_onednn_op op;
    bool with_bias;
    size_t num_slots;
    struct slot *slots;
};

enum {
    SPARE = 2
};

static dnnl_dim_t
stride(size_t given, size_t tight)
{
    return (dnnl_dim_t)(given ? given : tight);
}

static exo_status
make_op(exo_onednn_op *op, const exo_gemm_shape *s, exo_err *err)
{
    dnnl_dim_t m = (dnnl_dim_t)s->rows, n = (dnnl_dim_t)s->cols, k = (dnnl_dim_t)s->inner;
    const dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, c_dims = {m, n}, bias_dims = {1, n},
                      bias_strides = {n, 1};
    const dnnl_dim_t a_row = stride(s->a_stride, s->transpose_a ? s->rows : s->inner);
    const dnnl_dim_t b_row = stride(s->b_stride, s->transpose_b ? s->inner : s->cols);
    const dnnl_dims_t a_strides = {s->transpose_a ? 1 : a_row, s->transpose_a ? a_row : 1};
    const dnnl_dims_t b_strides = {s->transpose_b ? 1 : b_row, s->transpose_b ? b_row : 1};
    const dnnl_dims_t c_strides = {stride(s->c_stride, s->cols), 1};
    dnnl_data_type_t in = exo_onednn_type((exo_dtype)s->in_dtype),
                     out = exo_onednn_type((exo_dtype)s->out_dtype);

    exo_onednn_layout *a = NULL, *b = NULL, *c = NULL, *bias = NULL;
    dnnl_primitive_attr_t attr = NULL;
    exo_status st = exo_onednn_layout_strided(&a, a_dims, in, a_strides, err);
    if (st == EXO_OK)
        st = exo_onednn_layout_strided(&b, b_dims, in, b_strides, err);
    if (st == EXO_OK)
        st = exo_onednn_layout_strided(&c, c_dims, out, c_strides, err);
    if (st == EXO_OK && s->with_bias)
        st = exo_onednn_layout_strided(&bias, bias_dims, dnnl_f32, bias_strides, err);
    if (st == EXO_OK)
        st = exo_onednn_attributes(&attr, s->add, err);
    if (st == EXO_OK)
        st = exo_onednn_matmul(op, a, b, bias, c, attr, err);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    exo_onednn_layout_free(&a);
    exo_onednn_layout_free(&b);
    exo_onednn_layout_free(&c);
    exo_onednn_layout_free(&bias);
    return st;
}

static exo_status
make_memory(dnnl_memory_t *out, const exo_onednn_op *op, dnnl_query_t what, int index, exo_err *err)
{
    const exo_onednn_layout *desc = exo_onednn_query(op, what, index);
    return exo_onednn_check(dnnl_memory_create(out, desc, exo_onednn_engine(), DNNL_MEMORY_NONE),
                            "matrix product", err);
}

static exo_status
make_slot(struct slot *p, const exo_onednn_op *op, bool with_bias, exo_err *err)
{
    exo_status st = make_memory(&p->a, op, dnnl_query_src_md, 0, err);
    if (st == EXO_OK)
        st = make_memory(&p->b, op, dnnl_query_weights_md, 0, err);
    if (st == EXO_OK && with_bias)
        st = make_memory(&p->bias, op, dnnl_query_weights_md, 1, err);
    if (st == EXO_OK)
        st = make_memory(&p->c, op, dnnl_query_dst_md, 0, err);
    if (st == EXO_OK && op->scratch)
        st = make_memory(&p->scratch, op, dnnl_query_scratchpad_md, 0, err);
    return st;
}

exo_status
exo_gemm_new(exo_gemm **out, const exo_gemm_shape *shape, size_t calls, exo_err *err)
{
    size_t enough = exo_num_threads() + SPARE, slots = calls < enough ? calls : enough;
    exo_gemm *g = exo_calloc(1, sizeof *g);
    if (!g)
        return exo_fail(err, EXO_NOMEM, "matrix product: no memory");
    g->with_bias = shape->with_bias != 0;
    g->slots = exo_calloc(slots, sizeof *g->slots);
    exo_status st = g->slots ? EXO_OK : exo_fail(err, EXO_NOMEM, "matrix product: no memory");
    if (st == EXO_OK)
        st = make_op(&g->op, shape, err);
    while (st == EXO_OK && g->num_slots < slots)
        st = make_slot(&g->slots[g->num_slots++], &g->op, g->with_bias, err);
    if (st != EXO_OK) {
        exo_gemm_free(&g);
        return st;
    }
    *out = g;
    return EXO_OK;
}

void
exo_gemm_free(exo_gemm **gemm)
{
    exo_gemm *g = *gemm;
    if (!g)
        return;
    for (size_t i = 0; g->slots && i < g->num_slots; i++) {
        struct slot *p = &g->slots[i];
        dnnl_memory_t all[] = {p->a, p->b, p->bias, p->c, p->scratch};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            if (all[k])
                dnnl_memory_destroy(all[k]);
    }
    exo_onednn_op_release(&g->op);
    exo_free(g->slots);
    exo_free(g);
    *gemm = NULL;
}

/* Takes a free slot, beginning with slot `hint`. If more calls run than there are slots, it waits
 * until a call is done. */
static struct slot *
take_slot(exo_gemm *g, size_t hint)
{
    for (size_t i = hint;; i++) {
        struct slot *p = &g->slots[i % g->num_slots];
        if (!atomic_exchange_explicit(&p->taken, true, memory_order_acquire))
            return p;
        if ((i + 1 - hint) % g->num_slots == 0)
            sched_yield();
    }
}

exo_status
exo_gemm_run(exo_gemm *g, size_t call, const void *a, const void *b, const float *bias, void *c,
             exo_err *err)
{
    struct slot *p = take_slot(g, call);
    exo_onednn_arg args[5] = {
        {DNNL_ARG_SRC, p->a, (void *)(uintptr_t)a},
        {DNNL_ARG_WEIGHTS, p->b, (void *)(uintptr_t)b},
        {DNNL_ARG_DST, p->c, c},
    };
    size_t count = 3;
    if (g->with_bias)
        args[count++] = (exo_onednn_arg){DNNL_ARG_BIAS, p->bias, (void *)(uintptr_t)bias};
    if (p->scratch)
        args[count++] = (exo_onednn_arg){DNNL_ARG_SCRATCHPAD, p->scratch, NULL};
    exo_status st = exo_onednn_run(&g->op, count, args, err);
    atomic_store_explicit(&p->taken, false, memory_order_release);
    return st;
}
