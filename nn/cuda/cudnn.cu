/* Convolutions by cuDNN: see cudnn.h. */
#include "nn/cuda/cudnn.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/cuda/cudnn_library.h"
#include "nn/cuda/quiet.h"

enum {
    MOST_WORKSPACE = 256 << 20, /* bytes. What is free does not count: it would change bits */
    MOST_ADVICE = 16            /* algorithms of a pass */
};

struct exo_cuda_cudnn {
    const exo_cudnn_table *call;
    exo_cudnn_handle handle;
    int ordinal; /* of the GPU */
    bool tf32;
};

/* One of the three passes: each has an algorithm and a kind of math. */
struct pass {
    exo_cudnn_windows windows;
    int algorithm;
    size_t bytes; /* of workspace */
};

struct exo_cuda_cudnn_conv {
    exo_cuda_device *cuda;
    exo_conv_shape shape;
    exo_cudnn_tensor x, y;
    exo_cudnn_filter weights;
    pass forward, data, filter;
};

static exo_status
check(const exo_cuda_cudnn *c, int status, const char *what, exo_err *err)
{
    if (status == EXO_CUDNN_SUCCESS)
        return EXO_OK;
    const bool memory = status == EXO_CUDNN_NO_HOST_MEMORY || status == EXO_CUDNN_NO_DEVICE_MEMORY;
    return exo_fail(err, memory ? EXO_NOMEM : EXO_FAILED, "cuDNN: %s: %s", what,
                    c->call->GetErrorString(status));
}

/* --- Life ------------------------------------------------------------------------------------- */

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
    exo_status st = exo_cudnn_load(&c->call, NULL, err);
    if (st == EXO_OK)
        st = check(c, c->call->Create(&c->handle), "the start", err);
    if (st == EXO_OK)
        st = check(c, c->call->SetStream(c->handle, cuda->stream), "the stream", err);
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
    if (cudnn && cudnn->handle)
        exo_cuda_when_quiet(cudnn->ordinal, destroy_handle, cudnn);
    else
        exo_free(cudnn);
}

/* --- Shapes ----------------------------------------------------------------------------------- */

/* cuDNN counts in ints, and knows no empty tensors. */
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

static int
type_of(const exo_conv_shape *s)
{
    return s->dtype == EXO_BF16 ? EXO_CUDNN_BF16 : EXO_CUDNN_F32;
}

static int
number(size_t count)
{
    return static_cast<int>(count);
}

static int
make_windows(const exo_cuda_cudnn *c, const exo_conv_shape *s, pass *p)
{
    const int padding = number(s->padding), stride = number(s->stride);
    const int status = c->call->CreateConvolutionDescriptor(&p->windows);
    return status != EXO_CUDNN_SUCCESS
               ? status
               : c->call->SetConvolution2dDescriptor(p->windows, padding, padding, stride, stride,
                                                     1, 1, EXO_CUDNN_CROSS_CORRELATION,
                                                     EXO_CUDNN_F32);
}

/* The images and the weights; then the windows of the passes. */
static int
describe(exo_cuda_cudnn_conv *v)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    const exo_conv_shape *s = &v->shape;
    const int type = type_of(s), batch = number(s->batch);
    const int out = number(s->out_channels), in = number(s->in_channels);
    int status = c->call->CreateTensorDescriptor(&v->x);
    if (status == EXO_CUDNN_SUCCESS)
        status = c->call->SetTensor4dDescriptor(v->x, EXO_CUDNN_NHWC, type, batch, in,
                                                number(s->height), number(s->width));
    if (status == EXO_CUDNN_SUCCESS)
        status = c->call->CreateTensorDescriptor(&v->y);
    if (status == EXO_CUDNN_SUCCESS)
        status = c->call->SetTensor4dDescriptor(v->y, EXO_CUDNN_NHWC, type, batch, out,
                                                number(s->out_height), number(s->out_width));
    if (status == EXO_CUDNN_SUCCESS)
        status = c->call->CreateFilterDescriptor(&v->weights);
    if (status == EXO_CUDNN_SUCCESS)
        status = c->call->SetFilter4dDescriptor(v->weights, type, EXO_CUDNN_NHWC, out, in,
                                                number(s->kernel_height), number(s->kernel_width));
    for (pass *p : {&v->forward, &v->data, &v->filter})
        if (status == EXO_CUDNN_SUCCESS)
            status = make_windows(c, s, p);
    return status;
}

/* --- Algorithms ------------------------------------------------------------------------------- */

static int
ask_advice(const exo_cuda_cudnn_conv *v, const pass *p, int *count, exo_cudnn_advice *out)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    if (p == &v->forward)
        return c->call->GetConvolutionForwardAlgorithm_v7(c->handle, v->x, v->weights, p->windows,
                                                          v->y, MOST_ADVICE, count, out);
    if (p == &v->data)
        return c->call->GetConvolutionBackwardDataAlgorithm_v7(
            c->handle, v->weights, v->y, p->windows, v->x, MOST_ADVICE, count, out);
    return c->call->GetConvolutionBackwardFilterAlgorithm_v7(c->handle, v->x, v->y, p->windows,
                                                             v->weights, MOST_ADVICE, count, out);
}

static int
ask_workspace(const exo_cuda_cudnn_conv *v, const pass *p, int algorithm, size_t *bytes)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    if (p == &v->forward)
        return c->call->GetConvolutionForwardWorkspaceSize(c->handle, v->x, v->weights, p->windows,
                                                           v->y, algorithm, bytes);
    if (p == &v->data)
        return c->call->GetConvolutionBackwardDataWorkspaceSize(c->handle, v->weights, v->y,
                                                                p->windows, v->x, algorithm, bytes);
    return c->call->GetConvolutionBackwardFilterWorkspaceSize(c->handle, v->x, v->y, p->windows,
                                                              v->weights, algorithm, bytes);
}

/* Whether the advised algorithm is taken: its bits are the same in each run, and fp32 is not
 * computed as tf32 unless that was asked for. */
static bool
is_right(const exo_cuda_cudnn_conv *v, const exo_cudnn_advice *a)
{
    return a->status == EXO_CUDNN_SUCCESS && a->determinism == EXO_CUDNN_DETERMINISTIC &&
           (v->shape.dtype == EXO_BF16 || v->cuda->cudnn->tf32 || a->math == EXO_CUDNN_FMA_MATH);
}

/* Chooses the algorithm of a pass. *found: there is one. */
static int
choose(exo_cuda_cudnn_conv *v, pass *p, bool *found)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    const int math = v->shape.dtype == EXO_BF16 ? EXO_CUDNN_TENSOR_OP_MATH
                     : c->tf32                  ? EXO_CUDNN_DEFAULT_MATH
                                                : EXO_CUDNN_FMA_MATH;
    exo_cudnn_advice advice[MOST_ADVICE];
    int count = 0, status = c->call->SetConvolutionMathType(p->windows, math);
    if (status == EXO_CUDNN_SUCCESS)
        status = ask_advice(v, p, &count, advice);
    *found = false;
    for (int i = 0; status == EXO_CUDNN_SUCCESS && i < count && !*found; i++) {
        if (!is_right(v, &advice[i]))
            continue;
        p->algorithm = advice[i].algorithm;
        status = c->call->SetConvolutionMathType(p->windows, advice[i].math);
        if (status == EXO_CUDNN_SUCCESS)
            status = ask_workspace(v, p, p->algorithm, &p->bytes);
        *found = status == EXO_CUDNN_SUCCESS && p->bytes <= MOST_WORKSPACE;
    }
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
    int status = describe(v);
    if (status == EXO_CUDNN_SUCCESS)
        status = choose(v, &v->forward, &found);
    if (status == EXO_CUDNN_SUCCESS && found && shape->backward)
        status = choose(v, &v->filter, &found);
    if (status == EXO_CUDNN_SUCCESS && found && shape->backward && shape->input_grad)
        status = choose(v, &v->data, &found);
    const bool supported = status / 1000 * 1000 != EXO_CUDNN_NOT_SUPPORTED;
    st = supported ? check(cuda->cudnn, status, "a convolution", err) : EXO_OK;
    if (status == EXO_CUDNN_SUCCESS && found)
        *out = v;
    else
        exo_cuda_cudnn_conv_free(v);
    return st;
}

void
exo_cuda_cudnn_conv_free(exo_cuda_cudnn_conv *conv)
{
    if (!conv)
        return;
    const exo_cudnn_table *call = conv->cuda->cudnn->call;
    for (const pass *p : {&conv->forward, &conv->data, &conv->filter})
        if (p->windows)
            (void)call->DestroyConvolutionDescriptor(p->windows);
    if (conv->weights)
        (void)call->DestroyFilterDescriptor(conv->weights);
    if (conv->y)
        (void)call->DestroyTensorDescriptor(conv->y);
    if (conv->x)
        (void)call->DestroyTensorDescriptor(conv->x);
    exo_free(conv);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* A workspace of the pool, for the work that follows in the stream. */
static exo_status
take_workspace(const exo_cuda_cudnn_conv *v, const pass *p, void **out, exo_err *err)
{
    *out = NULL;
    if (p->bytes == 0)
        return EXO_OK;
    const cudaError_t error = cudaMallocAsync(out, p->bytes, v->cuda->stream);
    if (error != cudaErrorMemoryAllocation)
        return exo_cuda_status(error, "the workspace of a convolution", err);
    return exo_cuda_say_full(v->cuda, "the workspace of a convolution", p->bytes, err);
}

/* Gives the workspace back behind the pass, which has returned `status`. */
static exo_status
end_pass(const exo_cuda_cudnn_conv *v, void *workspace, int status, const char *what, exo_err *err)
{
    if (workspace && cudaFreeAsync(workspace, v->cuda->stream) != cudaSuccess)
        (void)cudaGetLastError();
    return check(v->cuda->cudnn, status, what, err);
}

static const float one = 1, zero = 0;

exo_status
exo_cuda_cudnn_forward(exo_cuda_cudnn_conv *conv, const void *x, const void *weights, void *y,
                       exo_err *err)
{
    const exo_cuda_cudnn *c = conv->cuda->cudnn;
    const pass *p = &conv->forward;
    void *workspace = NULL;
    const exo_status st = take_workspace(conv, p, &workspace, err);
    if (st != EXO_OK)
        return st;
    const int status =
        c->call->ConvolutionForward(c->handle, &one, conv->x, x, conv->weights, weights, p->windows,
                                    p->algorithm, workspace, p->bytes, &zero, conv->y, y);
    return end_pass(conv, workspace, status, "a convolution", err);
}

exo_status
exo_cuda_cudnn_backward_data(exo_cuda_cudnn_conv *conv, const void *weights, const void *dy,
                             void *dx, exo_err *err)
{
    const exo_cuda_cudnn *c = conv->cuda->cudnn;
    const pass *p = &conv->data;
    void *workspace = NULL;
    const exo_status st = take_workspace(conv, p, &workspace, err);
    if (st != EXO_OK)
        return st;
    const int status = c->call->ConvolutionBackwardData(c->handle, &one, conv->weights, weights,
                                                        conv->y, dy, p->windows, p->algorithm,
                                                        workspace, p->bytes, &zero, conv->x, dx);
    return end_pass(conv, workspace, status, "the gradient of a convolution's input", err);
}

exo_status
exo_cuda_cudnn_backward_filter(exo_cuda_cudnn_conv *conv, const void *x, const void *dy,
                               void *gradient, exo_err *err)
{
    const exo_cuda_cudnn *c = conv->cuda->cudnn;
    const pass *p = &conv->filter;
    void *workspace = NULL;
    const exo_status st = take_workspace(conv, p, &workspace, err);
    if (st != EXO_OK)
        return st;
    const int status = c->call->ConvolutionBackwardFilter(c->handle, &one, conv->x, x, conv->y, dy,
                                                          p->windows, p->algorithm, workspace,
                                                          p->bytes, &zero, conv->weights, gradient);
    return end_pass(conv, workspace, status, "the gradient of a convolution's weights", err);
}
