/* Convolutions by cuDNN: see cudnn.h. */
#include "nn/cuda/cudnn.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "nn/cuda/cudnn_graph.h"
#include "nn/cuda/quiet.h"

enum {
    MOST_WORKSPACE = 256 << 20 /* bytes. What is free does not count: it would change bits */
};

struct exo_cuda_cudnn_conv {
    exo_cuda_device *cuda;
    exo_conv_shape shape;
    exo_cudnn_pass forward, data, filter;
};

/* --- Life ------------------------------------------------------------------------------------- */

/* The properties of the GPU that a test names. */
static int
make_machine(exo_cuda_cudnn *c, const char *json)
{
    exo_cudnn_maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    c->machine = exo_cudnn_make(&m, EXO_CUDNN_MACHINE);
    exo_cudnn_set_many(&m, c->machine, EXO_CUDNN_MACHINE_JSON, EXO_CUDNN_OF_CHAR,
                       static_cast<int64_t>(strlen(json)), json);
    (void)exo_cudnn_finish(&m, c->machine);
    return m.status;
}

static exo_status
open_cudnn(exo_cuda_cudnn *c, const exo_cuda_device *cuda, exo_err *err)
{
    const char *json = exo_cudnn_planned_for();
    exo_status st = exo_cudnn_load(&c->call, NULL, err);
    if (st == EXO_OK && json)
        return exo_cudnn_check(c, make_machine(c, json), "the properties of a GPU", err);
    if (st == EXO_OK)
        st = exo_cudnn_check(c, c->call->Create(&c->handle), "the start", err);
    if (st == EXO_OK)
        st = exo_cudnn_check(c, c->call->SetStream(c->handle, cuda->stream), "the stream", err);
    return st;
}

exo_status
exo_cuda_cudnn_new(exo_cuda_cudnn **out, exo_cuda_device *cuda, exo_err *err)
{
    const char *asked = getenv("EXOGYM_CUDNN");
    *out = NULL;
    if (!asked || !*asked || strcmp(asked, "off") == 0)
        return EXO_OK;
    if (strcmp(asked, "on") != 0 && strcmp(asked, "tf32") != 0)
        return exo_fail(err, EXO_INVAL, "EXOGYM_CUDNN: expected off, on or tf32, got '%.60s'",
                        asked);
    exo_cuda_cudnn *c = static_cast<exo_cuda_cudnn *>(exo_calloc(1, sizeof *c));
    if (!c)
        return exo_fail(err, EXO_NOMEM, "no memory for cuDNN");
    c->ordinal = cuda->ordinal;
    c->tf32 = strcmp(asked, "tf32") == 0;
    const exo_status st = open_cudnn(c, cuda, err);
    if (st == EXO_OK)
        *out = c;
    else
        exo_cuda_cudnn_free(c);
    return st;
}

static void
destroy_handle(void *cudnn)
{
    const exo_cuda_cudnn *c = static_cast<exo_cuda_cudnn *>(cudnn);
    (void)c->call->Destroy(c->handle);
    exo_free(cudnn);
}

/* cuDNN waits for the GPU at its end. */
void
exo_cuda_cudnn_free(exo_cuda_cudnn *cudnn)
{
    if (cudnn && cudnn->machine)
        (void)cudnn->call->BackendDestroyDescriptor(cudnn->machine);
    if (cudnn && cudnn->handle)
        exo_cuda_when_quiet(cudnn->ordinal, destroy_handle, cudnn);
    else
        exo_free(cudnn);
}

/* --- Shapes ----------------------------------------------------------------------------------- */

/* cuDNN knows no empty tensors, and its kernels count in ints. */
static bool
fits(const exo_conv_shape *s)
{
    const size_t counts[][4] = {
        {s->batch, s->in_channels, s->height, s->width},
        {s->batch, s->out_channels, s->out_height, s->out_width},
        {s->out_channels, s->in_channels, s->kernel_height, s->kernel_width}};
    for (const auto &count : counts) {
        size_t all = 1;
        for (size_t part : count)
            if (part == 0 || __builtin_mul_overflow(all, part, &all) || all > INT_MAX)
                return false;
    }
    return s->stride <= INT_MAX && s->padding <= INT_MAX;
}

/* A tensor of n items of c channels, or of weights, which lies as (n, h, w, c). */
static exo_cudnn_thing
make_tensor(exo_cudnn_maker *m, const exo_conv_shape *s, int64_t id, size_t n, size_t c, size_t h,
            size_t w)
{
    const auto number = [](size_t count) { return static_cast<int64_t>(count); };
    const int64_t sizes[] = {number(n), number(c), number(h), number(w)};
    const int64_t strides[] = {number(h * w * c), 1, number(w * c), number(c)};
    const int type = s->dtype == EXO_BF16 ? EXO_CUDNN_BF16 : EXO_CUDNN_F32;
    const exo_cudnn_thing out = exo_cudnn_make(m, EXO_CUDNN_TENSOR);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    exo_cudnn_set_many(m, out, EXO_CUDNN_TENSOR_DIMENSIONS, EXO_CUDNN_OF_INT64, 4, sizes);
    exo_cudnn_set_many(m, out, EXO_CUDNN_TENSOR_STRIDES, EXO_CUDNN_OF_INT64, 4, strides);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_ID, EXO_CUDNN_OF_INT64, id);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_ALIGNMENT, EXO_CUDNN_OF_INT64,
                  static_cast<int64_t>(EXO_CUDNN_ALIGNMENT));
    return exo_cudnn_finish(m, out);
}

static exo_cudnn_thing
make_windows(exo_cudnn_maker *m, const exo_conv_shape *s)
{
    const int64_t padding = static_cast<int64_t>(s->padding);
    const int64_t stride = static_cast<int64_t>(s->stride);
    const int64_t paddings[] = {padding, padding}, strides[] = {stride, stride}, ones[] = {1, 1};
    const int type = EXO_CUDNN_F32, mode = EXO_CUDNN_CROSS_CORRELATION;
    const exo_cudnn_thing out = exo_cudnn_make(m, EXO_CUDNN_CONVOLUTION);
    exo_cudnn_set(m, out, EXO_CUDNN_CONVOLUTION_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    exo_cudnn_set(m, out, EXO_CUDNN_CONVOLUTION_MODE, EXO_CUDNN_OF_CONVOLUTION_MODE, mode);
    exo_cudnn_set(m, out, EXO_CUDNN_CONVOLUTION_DIMENSIONS, EXO_CUDNN_OF_INT64,
                  static_cast<int64_t>(2));
    exo_cudnn_set_many(m, out, EXO_CUDNN_CONVOLUTION_DILATIONS, EXO_CUDNN_OF_INT64, 2, ones);
    exo_cudnn_set_many(m, out, EXO_CUDNN_CONVOLUTION_STRIDES, EXO_CUDNN_OF_INT64, 2, strides);
    exo_cudnn_set_many(m, out, EXO_CUDNN_CONVOLUTION_PRE_PADDINGS, EXO_CUDNN_OF_INT64, 2, paddings);
    exo_cudnn_set_many(m, out, EXO_CUDNN_CONVOLUTION_POST_PADDINGS, EXO_CUDNN_OF_INT64, 2,
                       paddings);
    return exo_cudnn_finish(m, out);
}

/* The names of the arrays of an operation: x or dx, the weights or their gradient, y or dy. */
static const int64_t ids[] = {'x', 'w', 'y'};

/* The graph of a pass, which is one operation. kind: EXO_CUDNN_FORWARD, ... */
static exo_cudnn_thing
make_graph(exo_cudnn_maker *m, const exo_cuda_cudnn *c, const exo_conv_shape *s, int kind)
{
    const int first = kind == EXO_CUDNN_FORWARD         ? EXO_CUDNN_FORWARD_FIRST
                      : kind == EXO_CUDNN_BACKWARD_DATA ? EXO_CUDNN_BACKWARD_DATA_FIRST
                                                        : EXO_CUDNN_BACKWARD_FILTER_FIRST;
    const exo_cudnn_thing x =
        make_tensor(m, s, ids[0], s->batch, s->in_channels, s->height, s->width);
    const exo_cudnn_thing w = make_tensor(m, s, ids[1], s->out_channels, s->in_channels,
                                          s->kernel_height, s->kernel_width);
    const exo_cudnn_thing y =
        make_tensor(m, s, ids[2], s->batch, s->out_channels, s->out_height, s->out_width);
    const exo_cudnn_thing windows = make_windows(m, s);
    const exo_cudnn_thing operation = exo_cudnn_make(m, kind);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_X, EXO_CUDNN_OF_THING, x);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_W, EXO_CUDNN_OF_THING, w);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_Y, EXO_CUDNN_OF_THING, y);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_WINDOWS, EXO_CUDNN_OF_THING, windows);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_ALPHA, EXO_CUDNN_OF_FLOAT, 1.0f);
    exo_cudnn_set(m, operation, first + EXO_CUDNN_BETA, EXO_CUDNN_OF_FLOAT, 0.0f);
    (void)exo_cudnn_finish(m, operation);
    return exo_cudnn_make_graph(m, c, 1, &operation);
}

/* --- Plans ------------------------------------------------------------------------------------- */

static void
say_choice(const exo_conv_shape *s, const exo_cudnn_pass *p, int kind, int64_t engine)
{
    EXO_LOG(DEBUG, CUDA,
            "event=convolution pass=%s engine=%lld workspace=%zu batch=%zu in=%zu out=%zu "
            "height=%zu width=%zu kernel=%zux%zu stride=%zu padding=%zu",
            kind == EXO_CUDNN_FORWARD         ? "forward"
            : kind == EXO_CUDNN_BACKWARD_DATA ? "data"
                                              : "filter",
            static_cast<long long>(engine), p->bytes, s->batch, s->in_channels, s->out_channels,
            s->height, s->width, s->kernel_height, s->kernel_width, s->stride, s->padding);
}

/* Chooses the engine of a pass. *found: there is one. */
static int
choose(exo_cuda_cudnn_conv *v, exo_cudnn_pass *p, int kind, bool *found)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    exo_cudnn_choice choice = {MOST_WORKSPACE, v->shape.dtype != EXO_BF16 && !c->tf32, 0, 0, 0, 0};
    p->parts.call = c->call;
    const exo_cudnn_thing graph = make_graph(&p->parts, c, &v->shape, kind);
    const int status = exo_cudnn_choose(c, p, graph, &choice, found);
    if (*found)
        say_choice(&v->shape, p, kind, choice.engine);
    return status;
}

exo_status
exo_cuda_cudnn_conv_new(exo_cuda_cudnn_conv **out, exo_cuda_device *cuda,
                        const exo_conv_shape *shape, exo_err *err)
{
    *out = NULL;
    if (!cuda->cudnn || !fits(shape))
        return EXO_OK;
    exo_status st = exo_cuda_status(exo_cuda_select(cuda), "a convolution", err);
    if (st != EXO_OK)
        return st;
    exo_cuda_cudnn_conv *v = static_cast<exo_cuda_cudnn_conv *>(exo_calloc(1, sizeof *v));
    if (!v)
        return exo_fail(err, EXO_NOMEM, "no memory for a convolution");
    v->cuda = cuda;
    v->shape = *shape;
    bool found = true;
    int status = choose(v, &v->forward, EXO_CUDNN_FORWARD, &found);
    if (status == EXO_CUDNN_SUCCESS && found && shape->backward)
        status = choose(v, &v->filter, EXO_CUDNN_BACKWARD_FILTER, &found);
    if (status == EXO_CUDNN_SUCCESS && found && shape->backward && shape->input_grad)
        status = choose(v, &v->data, EXO_CUDNN_BACKWARD_DATA, &found);
    st = exo_cudnn_is_unsupported(status)
             ? EXO_OK
             : exo_cudnn_check(cuda->cudnn, status, "a convolution", err);
    if (status == EXO_CUDNN_SUCCESS && found)
        *out = v;
    else
        exo_cuda_cudnn_conv_free(v);
    return st;
}

static void
destroy_plans(void *convolution)
{
    exo_cuda_cudnn_conv *conv = static_cast<exo_cuda_cudnn_conv *>(convolution);
    for (exo_cudnn_pass *p : {&conv->forward, &conv->data, &conv->filter})
        exo_cudnn_destroy_pass(p);
    exo_free(conv);
}

/* The end of a plan unloads kernels that cuDNN has compiled for it, for which CUDA may wait. */
void
exo_cuda_cudnn_conv_free(exo_cuda_cudnn_conv *conv)
{
    if (conv)
        exo_cuda_when_quiet(conv->cuda->ordinal, destroy_plans, conv);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* The arrays in the order of `ids`. */
static exo_status
execute(const exo_cuda_cudnn_conv *v, const exo_cudnn_pass *p, const void *const arrays[3],
        const char *what, exo_err *err)
{
    void *workspace = NULL;
    exo_status st = exo_cudnn_check_arrays(3, arrays, what, err);
    if (st == EXO_OK)
        st = exo_cudnn_take(v->cuda, p->bytes, "the workspace of a convolution", &workspace, err);
    if (st == EXO_OK)
        st = exo_cudnn_execute(v->cuda->cudnn, p, 3, ids, arrays, workspace, what, err);
    exo_cudnn_give(v->cuda, workspace, p->bytes);
    return st;
}

exo_status
exo_cuda_cudnn_forward(exo_cuda_cudnn_conv *conv, const void *x, const void *weights, void *y,
                       exo_err *err)
{
    const void *const arrays[] = {x, weights, y};
    return execute(conv, &conv->forward, arrays, "a convolution", err);
}

exo_status
exo_cuda_cudnn_backward_data(exo_cuda_cudnn_conv *conv, const void *weights, const void *dy,
                             void *dx, exo_err *err)
{
    const void *const arrays[] = {dx, weights, dy};
    return execute(conv, &conv->data, arrays, "the gradient of a convolution's input", err);
}

exo_status
exo_cuda_cudnn_backward_filter(exo_cuda_cudnn_conv *conv, const void *x, const void *dy,
                               void *gradient, exo_err *err)
{
    const void *const arrays[] = {x, gradient, dy};
    return execute(conv, &conv->filter, arrays, "the gradient of a convolution's weights", err);
}
