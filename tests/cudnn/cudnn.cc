/* The cuDNN of the tests: see cudnn_test.h. Functions and numbers are those of cuDNN 9's cudnn.h. */
#include "cudnn/cudnn_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "cuda/outside.h"

#define CUDNN extern "C" __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    FLOAT = 0,
    BFLOAT16 = 9,
    NHWC = 1,
    CROSS_CORRELATION = 1,
    DEFAULT_MATH = 0,
    TENSOR_OP_MATH = 1,
    FMA_MATH = 3,
    NOT_SUPPORTED = 3000,
    RIGHT = 1, /* the algorithm of each pass that may be used */
    HUGE_ONE = 5
};

/* A tensor of images (n, c, h, w), or weights (n to c, h x w). The elements lie as (n, h, w, c). */
struct tensor {
    bool weights, set;
    int type, n, c, h, w;
};

struct windows {
    bool set;
    int pad, stride, math;
};

struct context {
    cudaStream_t stream;
    bool has_stream;
    int gpu; /* of the thread that made it */
};

struct advice {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

static uint64_t things, calls, fail_at, forwards, backwards;
static int failure, tf32;
static bool without_advice;
static size_t version = 91900;

static void
forbid(bool wrong, const char *what)
{
    if (wrong) {
        fprintf(stderr, "cudnn: %s\n", what);
        abort();
    }
}

/* Does `act` with the lock, unless this call is to fail. */
static int
serve(const std::function<int()> &act)
{
    int status = SUCCESS;
    cuda_emulated_locked([&]() {
        calls++;
        const bool fails = fail_at > 0 && --fail_at == 0;
        status = fails ? failure : act();
    });
    return status;
}

/* --- Handles and descriptors ------------------------------------------------------------------ */

template <typename T>
static int
make(T **out, T value)
{
    return serve([&]() {
        *out = new T(value);
        things++;
        return SUCCESS;
    });
}

template <typename T>
static int
destroy(T *thing)
{
    cuda_emulated_locked([&]() { things--; });
    delete thing;
    return SUCCESS;
}

CUDNN size_t
cudnnGetVersion(void)
{
    return version;
}

CUDNN const char *
cudnnGetErrorString(int status)
{
    return status == SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == 4004          ? "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
                                     : "CUDNN_STATUS_EXECUTION_FAILED";
}

CUDNN int
cudnnCreate(context **out)
{
    context made = {};
    (void)cudaGetDevice(&made.gpu);
    return make(out, made);
}

/* Waits for the GPU, as the real one does, which takes a while. */
CUDNN int
cudnnDestroy(context *handle)
{
    for (int i = 0; i < 8; i++) {
        cuda_emulated_locked([&]() { cuda_emulated_await_gpu(handle->gpu); });
        usleep(50);
    }
    return destroy(handle);
}

CUDNN int
cudnnSetStream(context *handle, cudaStream_t stream)
{
    return serve([=]() {
        handle->stream = stream;
        handle->has_stream = true;
        return SUCCESS;
    });
}

CUDNN int
cudnnCreateTensorDescriptor(tensor **out)
{
    return make(out, tensor{});
}

CUDNN int
cudnnDestroyTensorDescriptor(tensor *t)
{
    return destroy(t);
}

CUDNN int
cudnnCreateFilterDescriptor(tensor **out)
{
    return make(out, tensor{});
}

CUDNN int
cudnnDestroyFilterDescriptor(tensor *t)
{
    return destroy(t);
}

CUDNN int
cudnnCreateConvolutionDescriptor(windows **out)
{
    return make(out, windows{});
}

CUDNN int
cudnnDestroyConvolutionDescriptor(windows *v)
{
    return destroy(v);
}

static int
set_tensor(tensor *t, const tensor &value, int format)
{
    return serve([&]() {
        forbid(format != NHWC, "images and weights are not channels-last");
        forbid(value.type != FLOAT && value.type != BFLOAT16, "an impossible type");
        forbid(value.n < 1 || value.c < 1 || value.h < 1 || value.w < 1, "an empty tensor");
        *t = value;
        return SUCCESS;
    });
}

CUDNN int
cudnnSetTensor4dDescriptor(tensor *t, int format, int type, int n, int c, int h, int w)
{
    return set_tensor(t, tensor{false, true, type, n, c, h, w}, format);
}

CUDNN int
cudnnSetFilter4dDescriptor(tensor *t, int type, int format, int k, int c, int h, int w)
{
    return set_tensor(t, tensor{true, true, type, k, c, h, w}, format);
}

CUDNN int
cudnnSetConvolution2dDescriptor(windows *v, int pad_h, int pad_w, int stride_h, int stride_w,
                                int dilation_h, int dilation_w, int mode, int type)
{
    return serve([=]() {
        forbid(pad_h != pad_w || stride_h != stride_w || pad_h < 0 || stride_h < 1,
               "impossible windows");
        forbid(dilation_h != 1 || dilation_w != 1, "a dilation");
        forbid(mode != CROSS_CORRELATION, "the weights would be turned round");
        forbid(type != FLOAT, "sums are not in fp32");
        *v = windows{true, pad_h, stride_h, DEFAULT_MATH};
        return SUCCESS;
    });
}

CUDNN int
cudnnSetConvolutionMathType(windows *v, int math)
{
    return serve([=]() {
        forbid(!v->set, "windows that are not set");
        v->math = math;
        return SUCCESS;
    });
}

/* --- Algorithms ------------------------------------------------------------------------------- */

static size_t
count_of(const tensor &t)
{
    return static_cast<size_t>(t.n) * static_cast<size_t>(t.c) * static_cast<size_t>(t.h) *
           static_cast<size_t>(t.w);
}

static int
extent(int size, int window, const windows &v)
{
    return (size + 2 * v.pad - window) / v.stride + 1;
}

/* Whether the four belong together. */
static void
check(const context *handle, const tensor *x, const tensor *w, const windows *v, const tensor *y)
{
    forbid(!handle->has_stream, "a handle on no stream of its own");
    forbid(!x->set || !w->set || !v->set || !y->set, "a descriptor that is not set");
    forbid(x->weights || y->weights || !w->weights, "weights in place of images");
    forbid(x->type != w->type || y->type != w->type, "types differ");
    forbid(x->n != y->n || x->c != w->c || y->c != w->n, "batch or channels differ");
    forbid(y->h != extent(x->h, w->h, *v) || y->w != extent(x->w, w->w, *v),
           "the output has another size");
}

static int
advise(const context *handle, const tensor *x, const tensor *w, const windows *v, const tensor *y,
       int room, int *count, advice *out)
{
    return serve([=]() {
        check(handle, x, w, v, y);
        const int math = x->type == FLOAT && v->math != FMA_MATH ? TENSOR_OP_MATH : v->math;
        const advice all[] = {
            {3, SUCCESS, 0.1f, 0, 0, math, {}},        /* other bits in each run */
            {4, NOT_SUPPORTED, -1, 0, 1, math, {}},    /* not for this shape */
            {HUGE_ONE, SUCCESS, 0.2f, 0, 1, math, {}}, /* a workspace beyond bounds */
            /* tf32, where fp32 was asked for */
            {6, math == FMA_MATH ? SUCCESS : NOT_SUPPORTED, 0.3f, 0, 1, TENSOR_OP_MATH, {}},
            {RIGHT, SUCCESS, 0.4f, count_of(*x), 1, math, {}} /* right */
        };
        const int known = without_advice ? 4 : 5;
        *count = known < room ? known : room;
        memcpy(out, all, static_cast<size_t>(*count) * sizeof *all);
        return SUCCESS;
    });
}

static int
say_workspace(const tensor *x, int algorithm, size_t *bytes)
{
    return serve([=]() {
        *bytes = algorithm == HUGE_ONE ? SIZE_MAX / 2 : count_of(*x);
        return SUCCESS;
    });
}

CUDNN int
cudnnGetConvolutionForwardAlgorithm_v7(context *handle, const tensor *x, const tensor *w,
                                       const windows *v, const tensor *y, int room, int *count,
                                       advice *out)
{
    return advise(handle, x, w, v, y, room, count, out);
}

CUDNN int
cudnnGetConvolutionBackwardDataAlgorithm_v7(context *handle, const tensor *w, const tensor *dy,
                                            const windows *v, const tensor *dx, int room,
                                            int *count, advice *out)
{
    return advise(handle, dx, w, v, dy, room, count, out);
}

CUDNN int
cudnnGetConvolutionBackwardFilterAlgorithm_v7(context *handle, const tensor *x, const tensor *dy,
                                              const windows *v, const tensor *dw, int room,
                                              int *count, advice *out)
{
    return advise(handle, x, dw, v, dy, room, count, out);
}

CUDNN int
cudnnGetConvolutionForwardWorkspaceSize(context *, const tensor *x, const tensor *, const windows *,
                                        const tensor *, int algorithm, size_t *bytes)
{
    return say_workspace(x, algorithm, bytes);
}

CUDNN int
cudnnGetConvolutionBackwardDataWorkspaceSize(context *, const tensor *, const tensor *,
                                             const windows *, const tensor *dx, int algorithm,
                                             size_t *bytes)
{
    return say_workspace(dx, algorithm, bytes);
}

CUDNN int
cudnnGetConvolutionBackwardFilterWorkspaceSize(context *, const tensor *x, const tensor *,
                                               const windows *, const tensor *, int algorithm,
                                               size_t *bytes)
{
    return say_workspace(x, algorithm, bytes);
}

/* --- Convolutions ----------------------------------------------------------------------------- */

/* Elements of an array, rounded to tf32 on their way if that is the math. */
struct reader {
    const void *data;
    int type;
    bool short_ones;

    float operator[](size_t i) const
    {
        float value = type == FLOAT ? static_cast<const float *>(data)[i]
                                    : exo_from_bf16(static_cast<const uint16_t *>(data)[i]);
        if (!short_ones)
            return value;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits = (bits + 0x1000u) & ~0x1FFFu;
        memcpy(&value, &bits, sizeof bits);
        return value;
    }
};

static void
write(void *data, int type, size_t i, double value)
{
    if (type == FLOAT)
        static_cast<float *>(data)[i] = static_cast<float>(value);
    else
        static_cast<uint16_t *>(data)[i] = exo_to_bf16(static_cast<float>(value));
}

/* Calls act(index of x, of w, of y) for each product of a convolution. */
template <typename Act>
static void
each_product(const tensor &x, const tensor &w, const windows &v, const tensor &y, const Act &act)
{
    for (int n = 0; n < y.n; n++)
        for (int at = 0; at < y.h * y.w; at++)
            for (int place = 0; place < w.h * w.w; place++) {
                const int h = at / y.w * v.stride - v.pad + place / w.w;
                const int across = at % y.w * v.stride - v.pad + place % w.w;
                if (h < 0 || h >= x.h || across < 0 || across >= x.w)
                    continue;
                for (int o = 0; o < w.n; o++)
                    for (int i = 0; i < w.c; i++)
                        act(static_cast<size_t>(((n * x.h + h) * x.w + across) * x.c + i),
                            static_cast<size_t>((o * w.h * w.w + place) * w.c + i),
                            static_cast<size_t>((n * y.h * y.w + at) * y.c + o));
            }
}

/* An array that a call reads or writes. */
struct operand {
    tensor is;
    void *data;
};

enum which {
    FORWARD,
    DATA,
    FILTER
};

static void
compute(which pass, const operand &x, const operand &w, const windows &v, const operand &y)
{
    const operand &to = pass == FORWARD ? y : pass == DATA ? x : w;
    const bool small = x.is.type == FLOAT && v.math != FMA_MATH;
    const reader in_x = {x.data, x.is.type, small}, in_w = {w.data, w.is.type, small},
                 in_y = {y.data, y.is.type, small};
    std::unique_ptr<double[]> sums(new double[count_of(to.is)]());
    each_product(x.is, w.is, v, y.is, [&](size_t i, size_t j, size_t k) {
        if (pass == FORWARD)
            sums[k] += static_cast<double>(in_x[i]) * static_cast<double>(in_w[j]);
        else if (pass == DATA)
            sums[i] += static_cast<double>(in_y[k]) * static_cast<double>(in_w[j]);
        else
            sums[j] += static_cast<double>(in_x[i]) * static_cast<double>(in_y[k]);
    });
    for (size_t i = 0; i < count_of(to.is); i++)
        write(to.data, to.is.type, i, sums[i]);
}

static void
check_operand(const operand &o)
{
    const size_t size = o.is.type == FLOAT ? sizeof(float) : sizeof(uint16_t);
    forbid(!cuda_emulated_holds(o.data, count_of(o.is) * size), "an array beyond its memory");
}

static int
convolve(which pass, const context *handle, const operand &x, const operand &w, const windows *v,
         const operand &y, int algorithm, void *workspace, size_t bytes, const void *alpha,
         const void *beta)
{
    return serve([&]() {
        check(handle, &x.is, &w.is, v, &y.is);
        check_operand(x);
        check_operand(w);
        check_operand(y);
        forbid(algorithm != RIGHT, "an algorithm that was not to be taken");
        forbid(*static_cast<const float *>(alpha) != 1 || *static_cast<const float *>(beta) != 0,
               "factors");
        forbid(bytes < count_of(x.is) || !cuda_emulated_holds(workspace, bytes),
               "a workspace that is too small");
        forbid(x.is.type == BFLOAT16 && v->math != TENSOR_OP_MATH, "bf16 without tensor cores");
        const windows kept = *v;
        cuda_emulated_push(handle->stream, nullptr, [=]() {
            memset(workspace, 0xA5, bytes);
            compute(pass, x, w, kept, y);
        });
        tf32 = x.is.type == FLOAT && v->math != FMA_MATH;
        (pass == FORWARD ? forwards : backwards)++;
        return SUCCESS;
    });
}

CUDNN int
cudnnConvolutionForward(context *handle, const void *alpha, const tensor *x_is, void *x,
                        const tensor *w_is, void *w, const windows *v, int algorithm,
                        void *workspace, size_t bytes, const void *beta, const tensor *y_is,
                        void *y)
{
    return convolve(FORWARD, handle, {*x_is, x}, {*w_is, w}, v, {*y_is, y}, algorithm, workspace,
                    bytes, alpha, beta);
}

CUDNN int
cudnnConvolutionBackwardData(context *handle, const void *alpha, const tensor *w_is, void *w,
                             const tensor *dy_is, void *dy, const windows *v, int algorithm,
                             void *workspace, size_t bytes, const void *beta, const tensor *dx_is,
                             void *dx)
{
    return convolve(DATA, handle, {*dx_is, dx}, {*w_is, w}, v, {*dy_is, dy}, algorithm, workspace,
                    bytes, alpha, beta);
}

CUDNN int
cudnnConvolutionBackwardFilter(context *handle, const void *alpha, const tensor *x_is, void *x,
                               const tensor *dy_is, void *dy, const windows *v, int algorithm,
                               void *workspace, size_t bytes, const void *beta, const tensor *dw_is,
                               void *dw)
{
    return convolve(FILTER, handle, {*x_is, x}, {*dw_is, dw}, v, {*dy_is, dy}, algorithm, workspace,
                    bytes, alpha, beta);
}

/* --- What tests say --------------------------------------------------------------------------- */

template <typename T>
static T
read(const T *from)
{
    T value = T();
    cuda_emulated_locked([&]() { value = *from; });
    return value;
}

CUDNN const cudnn_test cudnn_test_calls;
const cudnn_test cudnn_test_calls = {
    [](uint64_t n, int status) {
        cuda_emulated_locked([=]() {
            fail_at = n;
            failure = status;
        });
    },
    [](int without) { cuda_emulated_locked([=]() { without_advice = without != 0; }); },
    [](size_t number) { version = number; },
    []() { return read(&things); },
    []() { return read(&calls); },
    []() { return read(&forwards); },
    []() { return read(&backwards); },
    []() { return read(&tf32); }};
