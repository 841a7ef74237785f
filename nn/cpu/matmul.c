/* Matrix products through oneDNN: see matmul.h. Each piece has memory objects and scratch of its own. */
#include "matmul.h"

#include <exogym/memory.h>

#include "onednn.h"

struct piece {
    const exo_onednn_op *op;
    dnnl_memory_t a, b, bias, c, scratch;
    void *scratch_memory;
};

struct exo_matmul {
    exo_matmul_shape shape;
    size_t pieces;
    exo_onednn_op full, last;
    struct piece *piece; /* (pieces) */
};

static exo_status
make_op(exo_onednn_op *op, const exo_matmul_shape *s, size_t rows, exo_err *err)
{
    dnnl_dim_t m = (dnnl_dim_t)rows, n = (dnnl_dim_t)s->cols, k = (dnnl_dim_t)s->inner;
    const dnnl_dims_t a_dims = {m, k}, b_dims = {k, n}, c_dims = {m, n}, bias_dims = {1, n};
    const dnnl_dims_t a_strides = {s->transpose_a ? 1 : k, s->transpose_a ? (dnnl_dim_t)s->rows : 1};
    const dnnl_dims_t b_strides = {s->transpose_b ? 1 : n, s->transpose_b ? k : 1};
    const dnnl_dims_t c_strides = {n, 1};
    dnnl_data_type_t in = exo_onednn_type((exo_dtype)s->in_dtype), out = exo_onednn_type((exo_dtype)s->out_dtype);

    dnnl_memory_desc_t a, b, c, bias;
    dnnl_memory_desc_init_by_strides(&a, 2, a_dims, in, a_strides);
    dnnl_memory_desc_init_by_strides(&b, 2, b_dims, in, b_strides);
    dnnl_memory_desc_init_by_strides(&c, 2, c_dims, out, c_strides);
    dnnl_memory_desc_init_by_strides(&bias, 2, bias_dims, dnnl_f32, c_strides);

    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_matmul_desc_t desc;
    exo_status st = exo_onednn_check(dnnl_primitive_attr_create(&attr), "linear", err);
    if (st != EXO_OK)
        return st;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (s->add) {
        st = exo_onednn_check(dnnl_post_ops_create(&post), "linear", err);
        if (st == EXO_OK) {
            dnnl_post_ops_append_sum(post, 1.0f);
            dnnl_primitive_attr_set_post_ops(attr, post);
        }
    }
    if (st == EXO_OK)
        st = exo_onednn_check(dnnl_matmul_desc_init(&desc, &a, &b, s->with_bias ? &bias : NULL, &c), "linear", err);
    if (st == EXO_OK)
        st = exo_onednn_op_init(op, &desc, attr, NULL, "linear", err);
    if (post)
        dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

static exo_status
make_memory(dnnl_memory_t *out, const exo_onednn_op *op, dnnl_query_t what, int index, exo_err *err)
{
    const dnnl_memory_desc_t *desc = dnnl_primitive_desc_query_md(op->desc, what, index);
    return exo_onednn_check(dnnl_memory_create(out, desc, exo_onednn_engine(), DNNL_MEMORY_NONE), "linear", err);
}

static exo_status
make_piece(struct piece *p, bool with_bias, exo_err *err)
{
    exo_status st = make_memory(&p->a, p->op, dnnl_query_src_md, 0, err);
    if (st == EXO_OK)
        st = make_memory(&p->b, p->op, dnnl_query_weights_md, 0, err);
    if (st == EXO_OK && with_bias)
        st = make_memory(&p->bias, p->op, dnnl_query_weights_md, 1, err);
    if (st == EXO_OK)
        st = make_memory(&p->c, p->op, dnnl_query_dst_md, 0, err);
    if (st == EXO_OK && p->op->scratch) {
        st = make_memory(&p->scratch, p->op, dnnl_query_scratchpad_md, 0, err);
        p->scratch_memory = exo_alloc_aligned(p->op->scratch);
        if (st == EXO_OK && !p->scratch_memory)
            st = exo_fail(err, EXO_NOMEM, "linear: no memory for scratch");
    }
    return st;
}

exo_status
exo_matmul_new(exo_matmul **out, const exo_matmul_shape *shape, exo_err *err)
{
    exo_matmul *m = exo_calloc(1, sizeof *m);
    if (!m)
        return exo_fail(err, EXO_NOMEM, "linear: no memory");
    m->shape = *shape;
    m->pieces = (shape->rows + EXO_MATMUL_PIECE - 1) / EXO_MATMUL_PIECE;
    m->piece = exo_calloc(m->pieces, sizeof *m->piece);
    size_t last = shape->rows % EXO_MATMUL_PIECE;
    size_t full = last && m->pieces == 1 ? last : EXO_MATMUL_PIECE;
    exo_status st = m->piece ? EXO_OK : exo_fail(err, EXO_NOMEM, "linear: no memory");
    if (st == EXO_OK)
        st = make_op(&m->full, shape, full, err);
    if (st == EXO_OK && last && last != full)
        st = make_op(&m->last, shape, last, err);
    for (size_t i = 0; st == EXO_OK && i < m->pieces; i++) {
        m->piece[i].op = i + 1 == m->pieces && m->last.desc ? &m->last : &m->full;
        st = make_piece(&m->piece[i], shape->with_bias, err);
    }
    if (st != EXO_OK) {
        exo_matmul_free(&m);
        return st;
    }
    *out = m;
    return EXO_OK;
}

void
exo_matmul_free(exo_matmul **matmul)
{
    exo_matmul *m = *matmul;
    if (!m)
        return;
    for (size_t i = 0; m->piece && i < m->pieces; i++) {
        struct piece *p = &m->piece[i];
        dnnl_memory_t all[] = {p->a, p->b, p->bias, p->c, p->scratch};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            if (all[k])
                dnnl_memory_destroy(all[k]);
        exo_free(p->scratch_memory);
    }
    exo_onednn_op_release(&m->full);
    exo_onednn_op_release(&m->last);
    exo_free(m->piece);
    exo_free(m);
    *matmul = NULL;
}

size_t
exo_matmul_pieces(const exo_matmul *matmul)
{
    return matmul->pieces;
}

exo_status
exo_matmul_run(exo_matmul *m, size_t piece, const void *a, const void *b, const float *bias, void *c, exo_err *err)
{
    const exo_matmul_shape *s = &m->shape;
    struct piece *p = &m->piece[piece];
    size_t first = piece * EXO_MATMUL_PIECE;
    size_t a_skip = first * (s->transpose_a ? 1 : s->inner) * exo_dtype_size((exo_dtype)s->in_dtype);
    size_t c_skip = first * s->cols * exo_dtype_size((exo_dtype)s->out_dtype);
    exo_onednn_arg args[5] = {
        {DNNL_ARG_SRC, p->a, (char *)(uintptr_t)a + a_skip},
        {DNNL_ARG_WEIGHTS, p->b, (void *)(uintptr_t)b},
        {DNNL_ARG_DST, p->c, (char *)c + c_skip},
    };
    size_t count = 3;
    if (s->with_bias)
        args[count++] = (exo_onednn_arg){DNNL_ARG_BIAS, p->bias, (void *)(uintptr_t)bias};
    if (p->scratch)
        args[count++] = (exo_onednn_arg){DNNL_ARG_SCRATCHPAD, p->scratch, p->scratch_memory};
    return exo_onednn_run(p->op, count, args, err);
}
