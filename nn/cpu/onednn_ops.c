/* Layouts of memory and descriptors of operations, as oneDNN 2 and oneDNN 3 have them: see onednn.h.
 * Version 2 fills a struct for each operation, from which any primitive descriptor is made; version
 * 3 has a function for each kind of primitive descriptor. No state. */
#include "nn/cpu/onednn.h"

#include <sys/resource.h>

#include <exogym/memory.h>

#include "base/pages.h"
#include "base/parallel.h"

static const dnnl_dims_t no_dilation = {0, 0};

#if DNNL_VERSION_MAJOR < 3

exo_status
exo_onednn_layout_new(exo_onednn_layout **out, int axes, const dnnl_dims_t dims,
                      dnnl_data_type_t type, dnnl_format_tag_t tag, exo_err *err)
{
    *out = exo_calloc(1, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "layout: no memory");
    return exo_onednn_check(dnnl_memory_desc_init_by_tag(*out, axes, dims, type, tag), "layout",
                            err);
}

exo_status
exo_onednn_layout_strided(exo_onednn_layout **out, const dnnl_dims_t dims, dnnl_data_type_t type,
                          const dnnl_dims_t strides, exo_err *err)
{
    *out = exo_calloc(1, sizeof **out);
    if (!*out)
        return exo_fail(err, EXO_NOMEM, "layout: no memory");
    return exo_onednn_check(dnnl_memory_desc_init_by_strides(*out, 2, dims, type, strides),
                            "layout", err);
}

void
exo_onednn_layout_free(exo_onednn_layout **layout)
{
    exo_free(*layout);
    *layout = NULL;
}

static dnnl_status_t
append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0f);
}

static dnnl_status_t
describe(exo_onednn_op *op, dnnl_status_t status, const void *desc,
         const_dnnl_primitive_attr_t attr, const exo_onednn_op *forward)
{
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(&op->desc, desc, attr, exo_onednn_engine(),
                                      forward ? forward->desc : NULL);
}

static dnnl_status_t
describe_matmul(exo_onednn_op *op, const exo_onednn_layout *a, const exo_onednn_layout *b,
                const exo_onednn_layout *bias, const exo_onednn_layout *c,
                const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, bias, c);
    return describe(op, status, &desc, attr, NULL);
}

static dnnl_status_t
describe_forward(exo_onednn_op *op, const exo_onednn_conv *v, dnnl_prop_kind_t kind)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &desc, kind, dnnl_convolution_direct, v->x, v->weights, v->bias, v->y, v->stride,
        no_dilation, v->padding, v->padding_end);
    return describe(op, status, &desc, v->attr, NULL);
}

static dnnl_status_t
describe_data(exo_onednn_op *op, const exo_onednn_conv *v, const exo_onednn_op *forward)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &desc, dnnl_convolution_direct, v->x, v->weights, v->y, v->stride, no_dilation, v->padding,
        v->padding_end);
    return describe(op, status, &desc, v->attr, forward);
}

static dnnl_status_t
describe_weights(exo_onednn_op *op, const exo_onednn_conv *v, const exo_onednn_op *forward)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &desc, dnnl_convolution_direct, v->x, v->weights, v->bias, v->y, v->stride, no_dilation,
        v->padding, v->padding_end);
    return describe(op, status, &desc, v->attr, forward);
}

#else

exo_status
exo_onednn_layout_new(exo_onednn_layout **out, int axes, const dnnl_dims_t dims,
                      dnnl_data_type_t type, dnnl_format_tag_t tag, exo_err *err)
{
    return exo_onednn_check(dnnl_memory_desc_create_with_tag(out, axes, dims, type, tag), "layout",
                            err);
}

exo_status
exo_onednn_layout_strided(exo_onednn_layout **out, const dnnl_dims_t dims, dnnl_data_type_t type,
                          const dnnl_dims_t strides, exo_err *err)
{
    return exo_onednn_check(dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides),
                            "layout", err);
}

void
exo_onednn_layout_free(exo_onednn_layout **layout)
{
    if (*layout)
        dnnl_memory_desc_destroy(*layout);
    *layout = NULL;
}

static dnnl_status_t
append_sum(dnnl_post_ops_t post)
{
    return dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t
describe_matmul(exo_onednn_op *op, const exo_onednn_layout *a, const exo_onednn_layout *b,
                const exo_onednn_layout *bias, const exo_onednn_layout *c,
                const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(&op->desc, exo_onednn_engine(), a, b, bias, c, attr);
}

static dnnl_status_t
describe_forward(exo_onednn_op *op, const exo_onednn_conv *v, dnnl_prop_kind_t kind)
{
    return dnnl_convolution_forward_primitive_desc_create(
        &op->desc, exo_onednn_engine(), kind, dnnl_convolution_direct, v->x, v->weights, v->bias,
        v->y, v->stride, no_dilation, v->padding, v->padding_end, v->attr);
}

static dnnl_status_t
describe_data(exo_onednn_op *op, const exo_onednn_conv *v, const exo_onednn_op *forward)
{
    return dnnl_convolution_backward_data_primitive_desc_create(
        &op->desc, exo_onednn_engine(), dnnl_convolution_direct, v->x, v->weights, v->y, v->stride,
        no_dilation, v->padding, v->padding_end, forward->desc, v->attr);
}

static dnnl_status_t
describe_weights(exo_onednn_op *op, const exo_onednn_conv *v, const exo_onednn_op *forward)
{
    return dnnl_convolution_backward_weights_primitive_desc_create(
        &op->desc, exo_onednn_engine(), dnnl_convolution_direct, v->x, v->weights, v->bias, v->y,
        v->stride, no_dilation, v->padding, v->padding_end, forward->desc, v->attr);
}

#endif

exo_status
exo_onednn_attributes(dnnl_primitive_attr_t *out, bool add, exo_err *err)
{
    exo_status st = exo_onednn_check(dnnl_primitive_attr_create(out), "attributes", err);
    if (st != EXO_OK)
        return st;
    dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (!add)
        return EXO_OK;
    dnnl_post_ops_t post = NULL;
    st = exo_onednn_check(dnnl_post_ops_create(&post), "attributes", err);
    if (st != EXO_OK)
        return st;
    st = exo_onednn_check(append_sum(post), "attributes", err);
    if (st == EXO_OK)
        st = exo_onednn_check(dnnl_primitive_attr_set_post_ops(*out, post), "attributes", err);
    dnnl_post_ops_destroy(post);
    return st;
}

const exo_onednn_layout *
exo_onednn_query(const exo_onednn_op *op, dnnl_query_t what, int index)
{
    return dnnl_primitive_desc_query_md(op->desc, what, index);
}

/* The primitive of the descriptor, which was made with `status`. */
static exo_status
make_primitive(exo_onednn_op *op, dnnl_status_t status, const char *what, exo_err *err)
{
    exo_status st = exo_onednn_check(status, what, err);
    if (st == EXO_OK)
        st = exo_onednn_check(dnnl_primitive_create(&op->primitive, op->desc), what, err);
    if (st == EXO_OK)
        op->scratch = dnnl_memory_desc_get_size(exo_onednn_query(op, dnnl_query_scratchpad_md, 0));
    exo_parallel_need_scratch(op->scratch);
    return st;
}

/* Under a limit of addresses oneDNN crashes where it gets none for a kernel's code. */
static bool
has_addresses(void)
{
    enum {
        ENOUGH = 32 << 20
    };
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    void *pages = exo_pages_reserve(ENOUGH);
    exo_pages_free(pages, ENOUGH);
    return pages != NULL;
}

static exo_status
start(const char *what, exo_err *err)
{
    if (!has_addresses())
        return exo_fail(err, EXO_NOMEM,
                        "%s: oneDNN gets no addresses for its code: raise the limit of addresses "
                        "(ulimit -v unlimited)",
                        what);
    return exo_onednn_stream() ? EXO_OK
                               : exo_fail(err, EXO_FAILED, "%s: oneDNN does not start", what);
}

exo_status
exo_onednn_matmul(exo_onednn_op *op, const exo_onednn_layout *a, const exo_onednn_layout *b,
                  const exo_onednn_layout *bias, const exo_onednn_layout *c,
                  const_dnnl_primitive_attr_t attr, exo_err *err)
{
    const char *what = "matrix product";
    exo_status st = start(what, err);
    return st == EXO_OK ? make_primitive(op, describe_matmul(op, a, b, bias, c, attr), what, err)
                        : st;
}

exo_status
exo_onednn_conv_forward(exo_onednn_op *op, const exo_onednn_conv *conv, bool training, exo_err *err)
{
    const char *what = "conv2d";
    dnnl_prop_kind_t kind = training ? dnnl_forward_training : dnnl_forward_inference;
    exo_status st = start(what, err);
    return st == EXO_OK ? make_primitive(op, describe_forward(op, conv, kind), what, err) : st;
}

exo_status
exo_onednn_conv_data(exo_onednn_op *op, const exo_onednn_conv *conv, const exo_onednn_op *forward,
                     exo_err *err)
{
    return make_primitive(op, describe_data(op, conv, forward), "conv2d backward", err);
}

exo_status
exo_onednn_conv_weights(exo_onednn_op *op, const exo_onednn_conv *conv,
                        const exo_onednn_op *forward, exo_err *err)
{
    return make_primitive(op, describe_weights(op, conv, forward), "conv2d weight gradient", err);
}
