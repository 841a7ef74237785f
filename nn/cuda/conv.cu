/* Convolutions as products of matrices: a kernel writes the pixels under each window side by side,
 * a chunk of samples at a time, and a product with the weights follows. The gradient of the input
 * is gathered, pixel by pixel, from the windows over it. cuBLASLt has the products. Or cuDNN computes
 * all of it, from the same packed weights (cudnn.h).
 *
 * Owner of the memory: the plan, as forward leaves the weights there for backward. Read next:
 * matmul.h, plans.h. */
#include "nn/cuda/grid.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/map.h"
#include "nn/cuda/matmul.h"
#include "nn/cuda/plans.h"

enum {
    CHUNK_BYTES = 1 << 25, /* of windows, if one sample takes no more */
    LINE = 8               /* elements: 16 bytes of bf16, at which the tensor cores' rows begin */
};

/* The plan's memory. A row has I R S elements, those of a window, and is filled up with zeros to
 * `pitch`, which takes part in products: cuBLASLt has slow kernels for other rows. */
struct room {
    size_t pitch, chunk; /* samples of a chunk */
    void *weights;       /* (O, R, S, I) of the shape's dtype */
    void *gradient;      /* (O, R, S, I), for backward: fp32, or the dtype's by cuDNN */
    /* (chunk, H', W', R, S, I): the dtype's, or fp32 gradients; NULL: x itself, or cuDNN's matter */
    void *windows;
    size_t bytes;
};

/* Whether the windows are x itself. */
static bool
is_plain(const exo_conv_shape *s)
{
    return s->kernel_height == 1 && s->kernel_width == 1 && s->stride == 1 && s->padding == 0;
}

static room
lay_out(const exo_conv_shape *s, bool by_cudnn, void *memory)
{
    exo_cuda_room r = {static_cast<char *>(memory), 0};
    const size_t element = s->backward && s->input_grad
                               ? sizeof(float)
                               : exo_dtype_size(static_cast<exo_dtype>(s->dtype));
    room out = {};
    const size_t line = LINE, columns = s->in_channels * s->kernel_height * s->kernel_width;
    out.pitch = by_cudnn || is_plain(s) ? columns : (columns + line - 1) / line * line;
    const size_t sample = s->out_height * s->out_width * out.pitch * element;
    const size_t image = s->height * s->width * s->in_channels;
    const size_t larger = sample > image ? sample : image,
                 fit = CHUNK_BYTES / (larger ? larger : 1);
    if (larger > UINT32_MAX / 2 && !is_plain(s))
        r.bytes = SIZE_MAX; /* kernels count the elements of a chunk in 32 bits */
    out.chunk = fit < s->batch && !is_plain(s) ? fit : s->batch;
    out.chunk = out.chunk == 0 ? 1 : out.chunk;
    out.weights = exo_cuda_take(&r, s->out_channels * out.pitch, sizeof(float));
    if (s->backward)
        out.gradient = exo_cuda_take(&r, s->out_channels * out.pitch, sizeof(float));
    if (!is_plain(s) && !by_cudnn)
        out.windows = exo_cuda_take(&r, out.chunk, sample);
    out.bytes = r.bytes;
    return out;
}

size_t
exo_cuda_conv_bytes(const exo_conv_shape *shape, bool by_cudnn)
{
    return lay_out(shape, by_cudnn, NULL).bytes;
}

/* The shape, for kernels over windows. */
struct sides {
    unsigned channels, height, width, out_height, out_width, stride, padding, kernel_width;
    unsigned pixels, places; /* of an output, of a window */
    unsigned pitch;          /* of a window */
};

static sides
sides_of(const exo_conv_shape *s, const room *r)
{
    const auto small = [](size_t number) { return static_cast<unsigned>(number); };
    return {small(s->in_channels),
            small(s->height),
            small(s->width),
            small(s->out_height),
            small(s->out_width),
            small(s->stride),
            small(s->padding),
            small(s->kernel_width),
            small(s->out_height * s->out_width),
            small(s->kernel_height * s->kernel_width),
            small(r->pitch)};
}

/* --- Kernels ---------------------------------------------------------------------------------- */

/* packed (O, R, S, I), whose rows are filled up to `pitch`, = weight (O, I, R, S). */
template <typename T>
__global__ static void
pack(exo_conv_shape s, size_t pitch, const float *weight, T *packed)
{
    const size_t area = s.kernel_height * s.kernel_width, columns = area * s.in_channels;
    for (EXO_CUDA_EACH(at, s.out_channels * pitch)) {
        const size_t o = at / pitch, e = at - o * pitch, place = e / s.in_channels;
        const size_t i = e - place * s.in_channels;
        exo_cuda_set(packed, at,
                     e < columns ? weight[(o * s.in_channels + i) * area + place] : 0.0f);
    }
}

/* dweight (O, I, R, S) += gradient (O, R, S, I), whose rows are filled up. */
template <typename T>
__global__ static void
add_unpacked(exo_conv_shape s, size_t pitch, const T *gradient, float *dweight)
{
    const size_t area = s.kernel_height * s.kernel_width;
    for (EXO_CUDA_EACH(at, s.out_channels * area * s.in_channels)) {
        const size_t place = at % area, i = at / area % s.in_channels,
                     o = at / area / s.in_channels;
        dweight[at] = dweight[at] + exo_cuda_get(gradient, o * pitch + place * s.in_channels + i);
    }
}

/* windows (samples, H', W', R, S, I) of x (samples, H, W, I); 0 outside of x, and behind a window. A
 * thread has N channels. Numbers of elements fit into 32 bits (lay_out), as wider divisions cost more
 * than the access. */
template <typename T, int N>
__global__ static void
lay_windows(sides s, unsigned samples, const T *x, T *windows)
{
    const unsigned groups = s.pitch / N, count = samples * s.pixels * groups;
    for (EXO_CUDA_EACH(group, count)) {
        const unsigned at = static_cast<unsigned>(group);
        const unsigned pixel = at / groups, e = (at - pixel * groups) * N;
        const unsigned place = e / s.channels, i = e - place * s.channels;
        const unsigned n = pixel / s.pixels, inner = pixel - n * s.pixels;
        /* an index in the padding before x wraps around, and is too large */
        const unsigned h = inner / s.out_width * s.stride + place / s.kernel_width - s.padding,
                       w = inner % s.out_width * s.stride + place % s.kernel_width - s.padding;
        float value[N] = {};
        if (place < s.places && h < s.height && w < s.width)
            exo_cuda_read<N>(x, ((n * s.height + h) * s.width + w) * s.channels + i, value);
        exo_cuda_write<N>(windows, static_cast<size_t>(at) * N, value);
    }
}

/* dx (samples, H, W, I) = the sums over the windows that cover each pixel, in their order. A thread
 * has N channels. */
template <typename T, int N>
__global__ static void
gather_windows(sides s, unsigned samples, const float *windows, T *dx)
{
    const unsigned groups = s.channels / N, count = samples * s.height * s.width * groups;
    const unsigned down = s.places / s.kernel_width;
    for (EXO_CUDA_EACH(group, count)) {
        const unsigned at = static_cast<unsigned>(group);
        const unsigned i = at % groups * N, pixel = at / groups, w = pixel % s.width;
        const unsigned h = pixel / s.width % s.height, n = pixel / s.width / s.height;
        float sum[N] = {}, value[N];
        for (unsigned place = 0, r = 0; r < down; r++)
            for (unsigned c = 0; c < s.kernel_width; c++, place++) {
                const unsigned row = h + s.padding - r, column = w + s.padding - c;
                const unsigned y = row / s.stride, x = column / s.stride;
                if (y * s.stride != row || x * s.stride != column || y >= s.out_height ||
                    x >= s.out_width)
                    continue; /* also if row or column wrapped around */
                const unsigned window = n * s.pixels + y * s.out_width + x;
                exo_cuda_read<N>(windows, window * s.pitch + place * s.channels + i, value);
                for (int e = 0; e < N; e++)
                    sum[e] = sum[e] + value[e];
            }
        exo_cuda_write<N>(dx, static_cast<size_t>(at) * N, sum);
    }
}

template <typename T>
__global__ static void
add_bias(size_t count, size_t columns, const float *bias, T *y)
{
    for (EXO_CUDA_EACH(i, count))
        exo_cuda_set(y, i, exo_cuda_get(y, i) + bias[i % columns]);
}

/* --- Chunks ----------------------------------------------------------------------------------- */

/* Some samples of a call. */
struct chunk {
    size_t first, count; /* samples */
    size_t rows;         /* of the products: output pixels */
};

static chunk
chunk_at(const exo_conv_shape *s, const room *r, size_t first)
{
    const size_t left = s->batch - first, count = left < r->chunk ? left : r->chunk;
    return {first, count, count * s->out_height * s->out_width};
}

template <typename T>
static const T *
samples_of(const exo_conv_shape *s, const void *x, size_t first)
{
    return static_cast<const T *>(x) + first * s->height * s->width * s->in_channels;
}

/* The windows of a chunk, as a matrix (rows, pitch). */
template <typename T>
static const T *
windows_of(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, const chunk *c,
           const void *x)
{
    const T *samples = samples_of<T>(s, x, c->first);
    T *windows = static_cast<T *>(r->windows);
    if (is_plain(s))
        return samples;
    const unsigned count = static_cast<unsigned>(c->count);
    if (s->in_channels % 4 == 0 && exo_cuda_has_fours(samples) && exo_cuda_has_fours(windows))
        exo_cuda_launch_each((lay_windows<T, 4>),
                             exo_cuda_blocks(c->rows * r->pitch / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, sides_of(s, r), count, samples, windows);
    else
        exo_cuda_launch_each((lay_windows<T, 1>),
                             exo_cuda_blocks(c->rows * r->pitch, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, sides_of(s, r), count, samples, windows);
    return windows;
}

static exo_cuda_product
product_of(const exo_conv_shape *s)
{
    exo_cuda_product p = {};
    p.batch = 1;
    p.dtype = p.out_dtype = static_cast<exo_dtype>(s->dtype);
    p.alpha = 1;
    return p;
}

/* y of a chunk. */
template <typename T>
static exo_status
forward_chunk(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, const chunk *c,
              const exo_conv_args *k, exo_err *err)
{
    const size_t out = s->out_channels;
    T *y = static_cast<T *>(k->y) + c->first * s->out_height * s->out_width * out;
    exo_cuda_product p = product_of(s);
    p.a = windows_of<T>(cuda, s, r, c, k->x);
    p.b = r->weights;
    p.transpose_b = true;
    p.c = y;
    p.m = c->rows;
    p.n = p.ldc = out;
    p.k = p.lda = p.ldb = r->pitch;
    p.bias = s->dtype == EXO_F32 ? k->bias : NULL;
    const exo_status st = exo_cuda_multiply(cuda, &p, err);
    if (st == EXO_OK && k->bias && !p.bias)
        exo_cuda_launch_each(add_bias<T>, exo_cuda_blocks(c->rows * out, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, c->rows * out, out, k->bias, y);
    return st;
}

/* y of all samples, by cuDNN. */
template <typename T>
static exo_status
forward_whole(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, const exo_conv_args *k,
              exo_err *err)
{
    const size_t out = s->out_channels, count = s->batch * s->out_height * s->out_width * out;
    const exo_status st =
        exo_cuda_cudnn_forward(exo_cuda_plan_of(k->plan)->cudnn, k->x, r->weights, k->y, err);
    if (st == EXO_OK && k->bias)
        exo_cuda_launch_each(add_bias<T>, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                             cuda->stream, count, out, k->bias, static_cast<T *>(k->y));
    return st;
}

template <typename T>
static exo_status
forward(exo_cuda_device *cuda, const exo_conv_shape *s, const exo_conv_args *k, exo_err *err)
{
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    const room r = lay_out(s, plan->cudnn != NULL, plan->memory);
    exo_status st = EXO_OK;
    exo_cuda_launch_each(pack<T>, exo_cuda_blocks(s->out_channels * r.pitch, EXO_CUDA_BLOCK),
                         EXO_CUDA_BLOCK, cuda->stream, *s, r.pitch, k->weight,
                         static_cast<T *>(r.weights));
    if (plan->cudnn)
        st = forward_whole<T>(cuda, s, &r, k, err);
    else
        for (size_t first = 0; st == EXO_OK && first < s->batch; first += r.chunk) {
            const chunk c = chunk_at(s, &r, first);
            st = forward_chunk<T>(cuda, s, &r, &c, k, err);
        }
    return st == EXO_OK ? exo_cuda_launched("conv", err) : st;
}

exo_status
exo_cuda_conv(exo_device *device, const exo_conv_args *k, exo_err *err)
{
    const exo_conv_shape *s = &exo_cuda_plan_of(k->plan)->conv;
    return EXO_CUDA_BY_TYPE(s->dtype, forward, exo_cuda_of(device), s, k, err);
}

/* --- Gradients -------------------------------------------------------------------------------- */

/* The plan's gradient (+)= dy^T windows of a chunk. */
template <typename T>
static exo_status
weight_gradient(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, const chunk *c,
                const exo_conv_backward_args *k, const T *dy, exo_err *err)
{
    exo_cuda_product p = product_of(s);
    p.a = dy;
    p.transpose_a = true;
    p.b = windows_of<T>(cuda, s, r, c, k->x);
    p.c = r->gradient;
    p.out_dtype = EXO_F32;
    p.beta = c->first == 0 ? 0.0f : 1.0f;
    p.m = p.lda = s->out_channels;
    p.n = p.ldb = p.ldc = r->pitch;
    p.k = c->rows;
    return exo_cuda_multiply(cuda, &p, err);
}

/* dx of a chunk: the gradients of its windows, dy weights, then the sums. */
template <typename T>
static exo_status
input_gradient(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, const chunk *c,
               const exo_conv_backward_args *k, const T *dy, exo_err *err)
{
    T *dx = static_cast<T *>(k->dx) + c->first * s->height * s->width * s->in_channels;
    exo_cuda_product p = product_of(s);
    p.a = dy;
    p.b = r->weights;
    p.m = c->rows;
    p.n = p.ldb = p.ldc = r->pitch;
    p.k = p.lda = s->out_channels;
    if (is_plain(s)) {
        p.c = dx;
        return exo_cuda_multiply(cuda, &p, err);
    }
    p.out_dtype = EXO_F32;
    p.c = r->windows;
    const exo_status st = exo_cuda_multiply(cuda, &p, err);
    const size_t count = c->count * s->height * s->width * s->in_channels;
    const unsigned samples = static_cast<unsigned>(c->count);
    const float *windows = static_cast<const float *>(r->windows);
    if (st == EXO_OK && s->in_channels % 4 == 0 && exo_cuda_has_fours(dx))
        exo_cuda_launch_each((gather_windows<T, 4>), exo_cuda_blocks(count / 4, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, sides_of(s, r), samples, windows, dx);
    else if (st == EXO_OK)
        exo_cuda_launch_each((gather_windows<T, 1>), exo_cuda_blocks(count, EXO_CUDA_BLOCK),
                             EXO_CUDA_BLOCK, cuda->stream, sides_of(s, r), samples, windows, dx);
    return st;
}

/* dx, and the plan's gradient of the weights in T, by cuDNN. */
static exo_status
backward_whole(exo_cuda_cudnn_conv *cudnn, const room *r, const exo_conv_backward_args *k,
               exo_err *err)
{
    exo_status st = EXO_OK;
    if (k->dweight)
        st = exo_cuda_cudnn_backward_filter(cudnn, k->x, k->dy, r->gradient, err);
    if (st == EXO_OK && k->dx)
        st = exo_cuda_cudnn_backward_data(cudnn, r->weights, k->dy, k->dx, err);
    return st;
}

/* The same by products, with the gradient in fp32. */
template <typename T>
static exo_status
backward_chunks(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r,
                const exo_conv_backward_args *k, exo_err *err)
{
    const size_t pixels = s->out_height * s->out_width;
    exo_status st = EXO_OK;
    for (size_t first = 0; st == EXO_OK && first < s->batch; first += r->chunk) {
        const chunk c = chunk_at(s, r, first);
        const T *dy = static_cast<const T *>(k->dy) + first * pixels * s->out_channels;
        if (k->dweight)
            st = weight_gradient<T>(cuda, s, r, &c, k, dy, err);
        if (st == EXO_OK && k->dx)
            st = input_gradient<T>(cuda, s, r, &c, k, dy, err);
    }
    return st;
}

template <typename T>
static void
add_gradient(exo_cuda_device *cuda, const exo_conv_shape *s, const room *r, float *dweight)
{
    exo_cuda_launch_each(
        add_unpacked<T>, exo_cuda_blocks(s->out_channels * r->pitch, EXO_CUDA_BLOCK),
        EXO_CUDA_BLOCK, cuda->stream, *s, r->pitch, static_cast<const T *>(r->gradient), dweight);
}

template <typename T>
static exo_status
backward(exo_device *device, const exo_conv_shape *s, const exo_conv_backward_args *k, exo_err *err)
{
    exo_cuda_device *cuda = exo_cuda_of(device);
    const exo_cuda_plan *plan = exo_cuda_plan_of(k->plan);
    const room r = lay_out(s, plan->cudnn != NULL, plan->memory);
    exo_status st = plan->cudnn ? backward_whole(plan->cudnn, &r, k, err)
                                : backward_chunks<T>(cuda, s, &r, k, err);
    if (st == EXO_OK && k->dweight && s->batch > 0) {
        if (plan->cudnn)
            add_gradient<T>(cuda, s, &r, k->dweight);
        else
            add_gradient<float>(cuda, s, &r, k->dweight);
    }
    if (st == EXO_OK && k->dbias) {
        exo_column_sums_args sums = {};
        sums.rows = s->batch * s->out_height * s->out_width;
        sums.columns = s->out_channels;
        sums.dtype = static_cast<exo_dtype>(s->dtype);
        sums.y = k->dbias;
        sums.x = k->dy;
        sums.add = true;
        st = exo_cuda_column_sums(device, &sums, err);
    }
    return st == EXO_OK ? exo_cuda_launched("conv_backward", err) : st;
}

exo_status
exo_cuda_conv_backward(exo_device *device, const exo_conv_backward_args *k, exo_err *err)
{
    const exo_conv_shape *s = &exo_cuda_plan_of(k->plan)->conv;
    return EXO_CUDA_BY_TYPE(s->dtype, backward, device, s, k, err);
}
