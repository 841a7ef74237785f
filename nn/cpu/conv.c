/* Convolutions through oneDNN: see conv.h. An exo_conv has primitives for full pieces and for a
 * shorter last piece. Each piece owns its memory objects and partial gradients. Read next:
 * onednn.h. */
#include "nn/cpu/conv.h"

#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/onednn.h"

/* The primitives of pieces of one length. */
struct sized {
    exo_onednn_op forward, data, weights;
};

struct piece {
    const struct sized *ops;
    dnnl_memory_t src, dst, forward_weights, data_weights, grad_weights, bias, grad_bias;
    dnnl_memory_t scratch[3]; /* of ops->forward, ops->data, ops->weights */
    float *partial_weights;   /* in oneDNN's order */
    float *partial_bias;
};

struct exo_conv {
    exo_conv_shape shape;
    size_t pieces;
    struct sized full, last;
    struct piece *piece; /* (pieces) */
    void *forward_weights, *data_weights;
    size_t grad_weights_size; /* bytes of one partial gradient */
    float *plain_grads;       /* (O, I, R, S) */
    /* The reorders of weights, and their arguments. */
    dnnl_primitive_t pack_forward, pack_data, unpack;
    dnnl_memory_t plain, packed_forward, packed_data, packed_grad;
};

static size_t
weight_count(const exo_conv_shape *s)
{
    return s->out_channels * s->in_channels * s->kernel_height * s->kernel_width;
}

static exo_status
new_memory(dnnl_memory_t *out, const exo_onednn_layout *desc, exo_err *err)
{
    return exo_onednn_check(dnnl_memory_create(out, desc, exo_onednn_engine(), DNNL_MEMORY_NONE),
                            "conv2d", err);
}

/* The layouts of the arguments. The orders of weights are left to oneDNN. */
struct layouts {
    exo_onednn_layout *x, *y, *w, *grad_w, *bias;
};

static exo_status
make_layouts(struct layouts *l, const exo_conv_shape *s, size_t samples, exo_err *err)
{
    dnnl_data_type_t type = exo_onednn_type((exo_dtype)s->dtype);
    const dnnl_dims_t x_dims = {(dnnl_dim_t)samples, (dnnl_dim_t)s->in_channels,
                                (dnnl_dim_t)s->height, (dnnl_dim_t)s->width};
    const dnnl_dims_t y_dims = {(dnnl_dim_t)samples, (dnnl_dim_t)s->out_channels,
                                (dnnl_dim_t)s->out_height, (dnnl_dim_t)s->out_width};
    const dnnl_dims_t w_dims = {(dnnl_dim_t)s->out_channels, (dnnl_dim_t)s->in_channels,
                                (dnnl_dim_t)s->kernel_height, (dnnl_dim_t)s->kernel_width};
    const dnnl_dims_t b_dims = {(dnnl_dim_t)s->out_channels};
    exo_status st = exo_onednn_layout_new(&l->x, 4, x_dims, type, dnnl_nhwc, err);
    if (st == EXO_OK)
        st = exo_onednn_layout_new(&l->y, 4, y_dims, type, dnnl_nhwc, err);
    if (st == EXO_OK)
        st = exo_onednn_layout_new(&l->w, 4, w_dims, type, dnnl_format_tag_any, err);
    if (st == EXO_OK)
        st = exo_onednn_layout_new(&l->grad_w, 4, w_dims, dnnl_f32, dnnl_format_tag_any, err);
    if (st == EXO_OK && s->with_bias)
        st = exo_onednn_layout_new(&l->bias, 1, b_dims, dnnl_f32, dnnl_a, err);
    return st;
}

static void
release_layouts(struct layouts *l)
{
    exo_onednn_layout_free(&l->x);
    exo_onednn_layout_free(&l->y);
    exo_onednn_layout_free(&l->w);
    exo_onednn_layout_free(&l->grad_w);
    exo_onednn_layout_free(&l->bias);
}

static exo_onednn_conv
describe(const exo_conv_shape *s, const struct layouts *l)
{
    const dnnl_dim_t stride = (dnnl_dim_t)s->stride, padding = (dnnl_dim_t)s->padding;
    return (exo_onednn_conv){
        .x = l->x,
        .bias = l->bias,
        .y = l->y,
        .stride = {stride, stride},
        .padding = {padding, padding},
        /* The padding below and to the right ends with the last window. Its width may be negative. */
        .padding_end = {(dnnl_dim_t)((s->out_height - 1) * s->stride + s->kernel_height) -
                            (dnnl_dim_t)(s->height + s->padding),
                        (dnnl_dim_t)((s->out_width - 1) * s->stride + s->kernel_width) -
                            (dnnl_dim_t)(s->width + s->padding)},
    };
}

/* `like`: primitives whose orders of weights these must have; NULL: oneDNN chooses the orders. */
static exo_status
make_primitives(struct sized *ops, const exo_conv_shape *s, size_t samples,
                const struct sized *like, exo_err *err)
{
    struct layouts l = {0};
    dnnl_primitive_attr_t attr = NULL;
    exo_status st = make_layouts(&l, s, samples, err);
    if (st == EXO_OK)
        st = exo_onednn_attributes(&attr, false, err);
    if (st != EXO_OK)
        goto done;

    exo_onednn_conv conv = describe(s, &l);
    conv.attr = attr;
    conv.weights = like ? exo_onednn_query(&like->forward, dnnl_query_weights_md, 0) : l.w;
    st = exo_onednn_conv_forward(&ops->forward, &conv, s->backward, err);
    if (st == EXO_OK && s->backward && s->input_grad) {
        conv.weights = like ? exo_onednn_query(&like->data, dnnl_query_weights_md, 0) : l.w;
        st = exo_onednn_conv_data(&ops->data, &conv, &ops->forward, err);
    }
    if (st == EXO_OK && s->backward) {
        conv.weights =
            like ? exo_onednn_query(&like->weights, dnnl_query_diff_weights_md, 0) : l.grad_w;
        st = exo_onednn_conv_weights(&ops->weights, &conv, &ops->forward, err);
    }
done:
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    release_layouts(&l);
    return st;
}

static void
release_primitives(struct sized *ops)
{
    exo_onednn_op_release(&ops->forward);
    exo_onednn_op_release(&ops->data);
    exo_onednn_op_release(&ops->weights);
}

/* The memory object of a primitive's scratchpad, if it has one. */
static exo_status
make_scratch(struct piece *p, int which, const exo_onednn_op *op, exo_err *err)
{
    return op->scratch ? new_memory(&p->scratch[which],
                                    exo_onednn_query(op, dnnl_query_scratchpad_md, 0), err)
                       : EXO_OK;
}

static exo_status
make_piece(const exo_conv *c, struct piece *p, exo_err *err)
{
    const struct sized *ops = p->ops;
    exo_status st = new_memory(&p->src, exo_onednn_query(&ops->forward, dnnl_query_src_md, 0), err);
    if (st == EXO_OK)
        st = new_memory(&p->dst, exo_onednn_query(&ops->forward, dnnl_query_dst_md, 0), err);
    if (st == EXO_OK)
        st = new_memory(&p->forward_weights,
                        exo_onednn_query(&ops->forward, dnnl_query_weights_md, 0), err);
    if (st == EXO_OK && c->shape.with_bias)
        st = new_memory(&p->bias, exo_onednn_query(&ops->forward, dnnl_query_weights_md, 1), err);
    if (st == EXO_OK)
        st = make_scratch(p, 0, &ops->forward, err);
    if (st == EXO_OK && ops->data.desc) {
        st = new_memory(&p->data_weights, exo_onednn_query(&ops->data, dnnl_query_weights_md, 0),
                        err);
        if (st == EXO_OK)
            st = make_scratch(p, 1, &ops->data, err);
    }
    if (st == EXO_OK && ops->weights.desc) {
        st = new_memory(&p->grad_weights,
                        exo_onednn_query(&ops->weights, dnnl_query_diff_weights_md, 0), err);
        if (st == EXO_OK && c->shape.with_bias)
            st = new_memory(&p->grad_bias,
                            exo_onednn_query(&ops->weights, dnnl_query_diff_weights_md, 1), err);
        if (st == EXO_OK)
            st = make_scratch(p, 2, &ops->weights, err);
        p->partial_weights = exo_alloc_aligned(c->grad_weights_size);
        p->partial_bias = exo_alloc_aligned(c->shape.out_channels * sizeof(float));
        if (st == EXO_OK && (!p->partial_weights || !p->partial_bias))
            st = exo_fail(err, EXO_NOMEM, "conv2d: no memory for gradients");
    }
    return st;
}

static void
release_piece(struct piece *p)
{
    dnnl_memory_t all[] = {p->src,          p->dst,       p->forward_weights, p->data_weights,
                           p->grad_weights, p->bias,      p->grad_bias,       p->scratch[0],
                           p->scratch[1],   p->scratch[2]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i])
            dnnl_memory_destroy(all[i]);
    exo_free(p->partial_weights);
    exo_free(p->partial_bias);
}

static exo_status
make_reorder(dnnl_primitive_t *out, const exo_onednn_layout *from, const exo_onednn_layout *to,
             exo_err *err)
{
    dnnl_primitive_desc_t desc = NULL;
    dnnl_engine_t engine = exo_onednn_engine();
    exo_status st =
        exo_onednn_check(dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL),
                         "conv2d weight order", err);
    if (st == EXO_OK)
        st = exo_onednn_check(dnnl_primitive_create(out, desc), "conv2d weight order", err);
    if (desc)
        dnnl_primitive_desc_destroy(desc);
    return st;
}

/* The reorders between plain weights and the primitives' orders, with memory for their results. */
static exo_status
make_weight_orders(exo_conv *c, exo_err *err)
{
    const exo_conv_shape *s = &c->shape;
    const dnnl_dims_t dims = {(dnnl_dim_t)s->out_channels, (dnnl_dim_t)s->in_channels,
                              (dnnl_dim_t)s->kernel_height, (dnnl_dim_t)s->kernel_width};
    exo_onednn_layout *plain = NULL;
    exo_status st = exo_onednn_layout_new(&plain, 4, dims, dnnl_f32, dnnl_oihw, err);
    if (st == EXO_OK)
        st = new_memory(&c->plain, plain, err);

    const exo_onednn_layout *packed = exo_onednn_query(&c->full.forward, dnnl_query_weights_md, 0);
    if (st == EXO_OK)
        st = make_reorder(&c->pack_forward, plain, packed, err);
    if (st == EXO_OK)
        st = new_memory(&c->packed_forward, packed, err);
    c->forward_weights = exo_alloc_aligned(dnnl_memory_desc_get_size(packed));
    bool memory = c->forward_weights != NULL;

    if (st == EXO_OK && c->full.data.desc) {
        packed = exo_onednn_query(&c->full.data, dnnl_query_weights_md, 0);
        st = make_reorder(&c->pack_data, plain, packed, err);
        if (st == EXO_OK)
            st = new_memory(&c->packed_data, packed, err);
        c->data_weights = exo_alloc_aligned(dnnl_memory_desc_get_size(packed));
        memory = memory && c->data_weights;
    }
    if (st == EXO_OK && c->full.weights.desc) {
        packed = exo_onednn_query(&c->full.weights, dnnl_query_diff_weights_md, 0);
        st = make_reorder(&c->unpack, packed, plain, err);
        if (st == EXO_OK)
            st = new_memory(&c->packed_grad, packed, err);
        c->grad_weights_size = dnnl_memory_desc_get_size(packed);
        c->plain_grads = exo_alloc_aligned(weight_count(s) * sizeof(float));
        memory = memory && c->plain_grads;
    }
    if (st == EXO_OK && !memory)
        st = exo_fail(err, EXO_NOMEM, "conv2d: no memory for weights");
    exo_onednn_layout_free(&plain);
    return st;
}

exo_status
exo_conv_new(exo_conv **out, const exo_conv_shape *shape, exo_err *err)
{
    exo_status st = EXO_OK;
    exo_conv *c = exo_calloc(1, sizeof *c);
    if (!c)
        return exo_fail(err, EXO_NOMEM, "conv2d: no memory");
    c->shape = *shape;
    size_t last = shape->batch % EXO_CONV_PIECE;
    size_t full = last && shape->batch < EXO_CONV_PIECE ? last : EXO_CONV_PIECE;
    c->pieces = (shape->batch + EXO_CONV_PIECE - 1) / EXO_CONV_PIECE;
    c->piece = exo_calloc(c->pieces, sizeof *c->piece);
    if (!c->piece)
        st = exo_fail(err, EXO_NOMEM, "conv2d: no memory");
    if (st == EXO_OK)
        st = make_primitives(&c->full, shape, full, NULL, err);
    if (st == EXO_OK && last && last != full)
        st = make_primitives(&c->last, shape, last, &c->full, err);
    if (st == EXO_OK)
        st = make_weight_orders(c, err);
    for (size_t i = 0; st == EXO_OK && i < c->pieces; i++) {
        c->piece[i].ops = i + 1 == c->pieces && c->last.forward.desc ? &c->last : &c->full;
        st = make_piece(c, &c->piece[i], err);
    }
    if (st != EXO_OK) {
        exo_conv_free(&c);
        return st;
    }
    *out = c;
    return EXO_OK;
}

void
exo_conv_free(exo_conv **conv)
{
    exo_conv *c = *conv;
    if (!c)
        return;
    for (size_t i = 0; c->piece && i < c->pieces; i++)
        release_piece(&c->piece[i]);
    dnnl_memory_t memories[] = {c->plain, c->packed_forward, c->packed_data, c->packed_grad};
    for (size_t i = 0; i < 4; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    dnnl_primitive_t reorders[] = {c->pack_forward, c->pack_data, c->unpack};
    for (size_t i = 0; i < 3; i++)
        if (reorders[i])
            dnnl_primitive_destroy(reorders[i]);
    release_primitives(&c->full);
    release_primitives(&c->last);
    exo_free(c->forward_weights);
    exo_free(c->data_weights);
    exo_free(c->plain_grads);
    exo_free(c->piece);
    exo_free(c);
    *conv = NULL;
}

size_t
exo_conv_pieces(const exo_conv *conv)
{
    return conv->pieces;
}

static exo_status
reorder(dnnl_primitive_t primitive, dnnl_memory_t from, const void *from_data, dnnl_memory_t to,
        void *to_data, exo_err *err)
{
    const exo_onednn_op op = {.primitive = primitive};
    const exo_onednn_arg args[] = {{DNNL_ARG_FROM, from, (void *)(uintptr_t)from_data},
                                   {DNNL_ARG_TO, to, to_data}};
    return exo_onednn_run(&op, 2, args, err);
}

exo_status
exo_conv_set_weights(exo_conv *c, const float *weights, exo_err *err)
{
    exo_status st =
        reorder(c->pack_forward, c->plain, weights, c->packed_forward, c->forward_weights, err);
    if (st == EXO_OK && c->pack_data)
        st = reorder(c->pack_data, c->plain, weights, c->packed_data, c->data_weights, err);
    return st;
}

/* A piece's part of a buffer of images that have `elements` elements each. */
static void *
part(const exo_conv *c, size_t piece, const void *images, size_t elements)
{
    size_t bytes = EXO_CONV_PIECE * elements * exo_dtype_size((exo_dtype)c->shape.dtype);
    return (char *)(uintptr_t)images + piece * bytes;
}

static void *
part_of_input(const exo_conv *c, size_t piece, const void *x)
{
    return part(c, piece, x, c->shape.height * c->shape.width * c->shape.in_channels);
}

static void *
part_of_output(const exo_conv *c, size_t piece, const void *y)
{
    return part(c, piece, y, c->shape.out_height * c->shape.out_width * c->shape.out_channels);
}

exo_status
exo_conv_forward(exo_conv *c, size_t piece, const void *x, const float *bias, void *y, exo_err *err)
{
    struct piece *p = &c->piece[piece];
    exo_onednn_arg args[5] = {
        {DNNL_ARG_SRC, p->src, part_of_input(c, piece, x)},
        {DNNL_ARG_WEIGHTS, p->forward_weights, c->forward_weights},
        {DNNL_ARG_DST, p->dst, part_of_output(c, piece, y)},
    };
    size_t count = 3;
    if (c->shape.with_bias)
        args[count++] = (exo_onednn_arg){DNNL_ARG_BIAS, p->bias, (void *)(uintptr_t)bias};
    if (p->scratch[0])
        args[count++] = (exo_onednn_arg){DNNL_ARG_SCRATCHPAD, p->scratch[0], NULL};
    return exo_onednn_run(&p->ops->forward, count, args, err);
}

exo_status
exo_conv_backward_data(exo_conv *c, size_t piece, const void *dy, void *dx, exo_err *err)
{
    struct piece *p = &c->piece[piece];
    exo_onednn_arg args[4] = {
        {DNNL_ARG_DIFF_DST, p->dst, part_of_output(c, piece, dy)},
        {DNNL_ARG_WEIGHTS, p->data_weights, c->data_weights},
        {DNNL_ARG_DIFF_SRC, p->src, part_of_input(c, piece, dx)},
    };
    size_t count = 3;
    if (p->scratch[1])
        args[count++] = (exo_onednn_arg){DNNL_ARG_SCRATCHPAD, p->scratch[1], NULL};
    return exo_onednn_run(&p->ops->data, count, args, err);
}

exo_status
exo_conv_backward_weights(exo_conv *c, size_t piece, const void *x, const void *dy, exo_err *err)
{
    struct piece *p = &c->piece[piece];
    exo_onednn_arg args[5] = {
        {DNNL_ARG_SRC, p->src, part_of_input(c, piece, x)},
        {DNNL_ARG_DIFF_DST, p->dst, part_of_output(c, piece, dy)},
        {DNNL_ARG_DIFF_WEIGHTS, p->grad_weights, p->partial_weights},
    };
    size_t count = 3;
    if (c->shape.with_bias)
        args[count++] = (exo_onednn_arg){DNNL_ARG_DIFF_BIAS, p->grad_bias, p->partial_bias};
    if (p->scratch[2])
        args[count++] = (exo_onednn_arg){DNNL_ARG_SCRATCHPAD, p->scratch[2], NULL};
    return exo_onednn_run(&p->ops->weights, count, args, err);
}

static void
add_to(float *restrict sum, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += x[i];
}

exo_status
exo_conv_add_weight_grads(exo_conv *c, float *weight_grad, float *bias_grad, exo_err *err)
{
    float *sum = c->piece[0].partial_weights;
    for (size_t i = 1; i < c->pieces; i++) {
        add_to(sum, c->piece[i].partial_weights, c->grad_weights_size / sizeof *sum);
        if (c->shape.with_bias)
            add_to(c->piece[0].partial_bias, c->piece[i].partial_bias, c->shape.out_channels);
    }
    if (bias_grad)
        add_to(bias_grad, c->piece[0].partial_bias, c->shape.out_channels);
    if (!weight_grad)
        return EXO_OK;
    exo_status st = reorder(c->unpack, c->packed_grad, sum, c->plain, c->plain_grads, err);
    if (st == EXO_OK)
        add_to(weight_grad, c->plain_grads, weight_count(&c->shape));
    return st;
}
