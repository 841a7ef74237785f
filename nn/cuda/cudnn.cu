/* Convolutions by cuDNN: see cudnn.h. */
#include "nn/cuda/cudnn.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "nn/cuda/cudnn_library.h"
#include "nn/cuda/memory.h"
#include "nn/cuda/quiet.h"

enum {
    MOST_WORKSPACE = 256 << 20, /* bytes. What is free does not count: it would change bits */
    MOST_ADVICE = 64,           /* engines of a heuristic; cuDNN 9.28 advises 40 */
    MOST_NOTES = 32,
    MOST_THINGS = MOST_ADVICE + 8,
    ALIGNMENT = 16 /* bytes, of arrays: their kernels on the tensor cores need it */
};

struct exo_cuda_cudnn {
    const exo_cudnn_table *call;
    exo_cudnn_handle handle;
    exo_cudnn_thing machine; /* in place of the handle: for tests, without a GPU */
    int ordinal;             /* of the GPU */
    bool tf32;
};

/* Descriptors, which are made one after the other until a call fails, and destroyed together. */
struct maker {
    const exo_cudnn_table *call;
    int status, count;
    exo_cudnn_thing things[MOST_THINGS];
};

/* One of the three passes. */
struct pass {
    maker parts; /* what the plan was made of, which it may refer to */
    exo_cudnn_thing plan;
    size_t bytes; /* of workspace */
};

struct exo_cuda_cudnn_conv {
    exo_cuda_device *cuda;
    exo_conv_shape shape;
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

/* --- Descriptors ------------------------------------------------------------------------------ */

static exo_cudnn_thing
make(maker *m, int kind)
{
    exo_cudnn_thing thing = NULL;
    if (m->status != EXO_CUDNN_SUCCESS)
        return NULL;
    if (m->count == MOST_THINGS) {
        m->status = EXO_CUDNN_NO_HOST_MEMORY;
        return NULL;
    }
    m->status = m->call->BackendCreateDescriptor(kind, &thing);
    if (m->status == EXO_CUDNN_SUCCESS)
        m->things[m->count++] = thing;
    return thing;
}

static void
set_many(maker *m, exo_cudnn_thing thing, int attribute, int type, int64_t count,
         const void *values)
{
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendSetAttribute(thing, attribute, type, count, values);
}

template <typename T>
static void
set(maker *m, exo_cudnn_thing thing, int attribute, int type, const T &value)
{
    set_many(m, thing, attribute, type, 1, &value);
}

/* Reads an attribute that has one value. */
static void
get(maker *m, exo_cudnn_thing thing, int attribute, int type, void *out)
{
    int64_t count = 0;
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendGetAttribute(thing, attribute, type, 1, &count, out);
}

static exo_cudnn_thing
finish(maker *m, exo_cudnn_thing thing)
{
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendFinalize(thing);
    return thing;
}

static void
destroy_all(maker *m)
{
    while (m->count > 0)
        (void)m->call->BackendDestroyDescriptor(m->things[--m->count]);
}

/* Moves a descriptor to another maker, which destroys it. */
static void
move(maker *from, maker *to, exo_cudnn_thing thing)
{
    for (int i = 0; i < from->count && to->count < MOST_THINGS; i++)
        if (from->things[i] == thing) {
            from->things[i] = from->things[--from->count];
            to->things[to->count++] = thing;
            return;
        }
}

static bool
is_unsupported(int status)
{
    return status / 1000 * 1000 == EXO_CUDNN_NOT_SUPPORTED;
}

/* --- Life ------------------------------------------------------------------------------------- */

/* The properties of the GPU that a test names. */
static int
make_machine(exo_cuda_cudnn *c, const char *json)
{
    maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    c->machine = make(&m, EXO_CUDNN_MACHINE);
    set_many(&m, c->machine, EXO_CUDNN_MACHINE_JSON, EXO_CUDNN_OF_CHAR,
             static_cast<int64_t>(strlen(json)), json);
    (void)finish(&m, c->machine);
    return m.status;
}

static exo_status
open_cudnn(exo_cuda_cudnn *c, const exo_cuda_device *cuda, exo_err *err)
{
    const char *json = exo_cudnn_planned_for();
    exo_status st = exo_cudnn_load(&c->call, NULL, err);
    if (st == EXO_OK && json)
        return check(c, make_machine(c, json), "the properties of a GPU", err);
    if (st == EXO_OK)
        st = check(c, c->call->Create(&c->handle), "the start", err);
    if (st == EXO_OK)
        st = check(c, c->call->SetStream(c->handle, cuda->stream), "the stream", err);
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
make_tensor(maker *m, const exo_conv_shape *s, int64_t id, size_t n, size_t c, size_t h, size_t w)
{
    const auto number = [](size_t count) { return static_cast<int64_t>(count); };
    const int64_t sizes[] = {number(n), number(c), number(h), number(w)};
    const int64_t strides[] = {number(h * w * c), 1, number(w * c), number(c)};
    const int type = s->dtype == EXO_BF16 ? EXO_CUDNN_BF16 : EXO_CUDNN_F32;
    const exo_cudnn_thing out = make(m, EXO_CUDNN_TENSOR);
    set(m, out, EXO_CUDNN_TENSOR_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    set_many(m, out, EXO_CUDNN_TENSOR_DIMENSIONS, EXO_CUDNN_OF_INT64, 4, sizes);
    set_many(m, out, EXO_CUDNN_TENSOR_STRIDES, EXO_CUDNN_OF_INT64, 4, strides);
    set(m, out, EXO_CUDNN_TENSOR_ID, EXO_CUDNN_OF_INT64, id);
    set(m, out, EXO_CUDNN_TENSOR_ALIGNMENT, EXO_CUDNN_OF_INT64, static_cast<int64_t>(ALIGNMENT));
    return finish(m, out);
}

static exo_cudnn_thing
make_windows(maker *m, const exo_conv_shape *s)
{
    const int64_t padding = static_cast<int64_t>(s->padding);
    const int64_t stride = static_cast<int64_t>(s->stride);
    const int64_t paddings[] = {padding, padding}, strides[] = {stride, stride}, ones[] = {1, 1};
    const int type = EXO_CUDNN_F32, mode = EXO_CUDNN_CROSS_CORRELATION;
    const exo_cudnn_thing out = make(m, EXO_CUDNN_CONVOLUTION);
    set(m, out, EXO_CUDNN_CONVOLUTION_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    set(m, out, EXO_CUDNN_CONVOLUTION_MODE, EXO_CUDNN_OF_CONVOLUTION_MODE, mode);
    set(m, out, EXO_CUDNN_CONVOLUTION_DIMENSIONS, EXO_CUDNN_OF_INT64, static_cast<int64_t>(2));
    set_many(m, out, EXO_CUDNN_CONVOLUTION_DILATIONS, EXO_CUDNN_OF_INT64, 2, ones);
    set_many(m, out, EXO_CUDNN_CONVOLUTION_STRIDES, EXO_CUDNN_OF_INT64, 2, strides);
    set_many(m, out, EXO_CUDNN_CONVOLUTION_PRE_PADDINGS, EXO_CUDNN_OF_INT64, 2, paddings);
    set_many(m, out, EXO_CUDNN_CONVOLUTION_POST_PADDINGS, EXO_CUDNN_OF_INT64, 2, paddings);
    return finish(m, out);
}

/* The names of the arrays of an operation: x or dx, the weights or their gradient, y or dy. */
static const int64_t ids[] = {'x', 'w', 'y'};

/* The graph of a pass, which is one operation. kind: EXO_CUDNN_FORWARD, ... */
static exo_cudnn_thing
make_graph(maker *m, const exo_cuda_cudnn *c, const exo_conv_shape *s, int kind)
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
    const exo_cudnn_thing operation = make(m, kind);
    set(m, operation, first + EXO_CUDNN_X, EXO_CUDNN_OF_THING, x);
    set(m, operation, first + EXO_CUDNN_W, EXO_CUDNN_OF_THING, w);
    set(m, operation, first + EXO_CUDNN_Y, EXO_CUDNN_OF_THING, y);
    set(m, operation, first + EXO_CUDNN_WINDOWS, EXO_CUDNN_OF_THING, windows);
    set(m, operation, first + EXO_CUDNN_ALPHA, EXO_CUDNN_OF_FLOAT, 1.0f);
    set(m, operation, first + EXO_CUDNN_BETA, EXO_CUDNN_OF_FLOAT, 0.0f);
    (void)finish(m, operation);
    const exo_cudnn_thing graph = make(m, EXO_CUDNN_GRAPH);
    if (c->handle)
        set(m, graph, EXO_CUDNN_GRAPH_HANDLE, EXO_CUDNN_OF_HANDLE, c->handle);
    set(m, graph, EXO_CUDNN_GRAPH_OPERATIONS, EXO_CUDNN_OF_THING, operation);
    return finish(m, graph);
}

/* --- Engines ---------------------------------------------------------------------------------- */

/* Asks a heuristic which engines compute the graph. Returns how many configurations it has written to
 * `out`; a heuristic that does not know the graph has none. */
static int64_t
ask_advice(maker *m, const exo_cuda_cudnn *c, exo_cudnn_thing graph, int mode, exo_cudnn_thing *out)
{
    int64_t count = 0;
    const exo_cudnn_thing heuristic = make(m, EXO_CUDNN_HEURISTIC);
    set(m, heuristic, EXO_CUDNN_HEURISTIC_GRAPH, EXO_CUDNN_OF_THING, graph);
    set(m, heuristic, EXO_CUDNN_HEURISTIC_MODE, EXO_CUDNN_OF_HEURISTIC_MODE, mode);
    if (c->machine)
        set(m, heuristic, EXO_CUDNN_HEURISTIC_MACHINE, EXO_CUDNN_OF_THING, c->machine);
    (void)finish(m, heuristic);
    if (m->status == EXO_CUDNN_SUCCESS)
        m->status = m->call->BackendGetAttribute(heuristic, EXO_CUDNN_HEURISTIC_RESULTS,
                                                 EXO_CUDNN_OF_THING, 0, &count, NULL);
    if (is_unsupported(m->status))
        m->status = EXO_CUDNN_SUCCESS;
    const int64_t most = MOST_ADVICE, room = count < most ? count : most;
    for (int64_t i = 0; i < room; i++)
        out[i] = make(m, EXO_CUDNN_CONFIG);
    if (m->status == EXO_CUDNN_SUCCESS && room > 0)
        m->status = m->call->BackendGetAttribute(heuristic, EXO_CUDNN_HEURISTIC_RESULTS,
                                                 EXO_CUDNN_OF_THING, room, &count, out);
    return m->status != EXO_CUDNN_SUCCESS ? 0 : count < room ? count : room;
}

/* Whether the engine of a configuration is taken: its bits are the same in each run, its sums are of
 * fp32, and fp32 is not computed as tf32 unless that was asked for. */
static bool
is_right(const exo_cuda_cudnn_conv *v, maker *parts, exo_cudnn_thing config, int64_t *index)
{
    maker m = {parts->call, parts->status, 0, {}};
    int notes[MOST_NOTES];
    int64_t count = 0;
    exo_cudnn_thing engine = make(&m, EXO_CUDNN_ENGINE);
    const bool exact = v->shape.dtype != EXO_BF16 && !v->cuda->cudnn->tf32;
    get(&m, config, EXO_CUDNN_CONFIG_ENGINE, EXO_CUDNN_OF_THING, &engine);
    get(&m, engine, EXO_CUDNN_ENGINE_INDEX, EXO_CUDNN_OF_INT64, index);
    if (m.status == EXO_CUDNN_SUCCESS)
        m.status = m.call->BackendGetAttribute(engine, EXO_CUDNN_ENGINE_NOTES, EXO_CUDNN_OF_NOTE,
                                               MOST_NOTES, &count, notes);
    bool right = m.status == EXO_CUDNN_SUCCESS && count <= MOST_NOTES;
    for (int64_t i = 0; right && i < count; i++)
        right =
            notes[i] != EXO_CUDNN_NONDETERMINISTIC && notes[i] != EXO_CUDNN_REDUCES_SUMS &&
            !(exact && (notes[i] == EXO_CUDNN_TENSOR_CORE || notes[i] == EXO_CUDNN_DOWN_CONVERTS));
    destroy_all(&m);
    parts->status = m.status;
    return right;
}

/* Makes the plan of a configuration. False: cuDNN does not compute the shape so after all, or with too
 * large a workspace; or a call has failed. */
static bool
make_plan(const exo_cuda_cudnn *c, pass *p, exo_cudnn_thing config)
{
    maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    int64_t bytes = 0;
    const exo_cudnn_thing plan = make(&m, EXO_CUDNN_PLAN);
    if (c->machine)
        set(&m, plan, EXO_CUDNN_PLAN_MACHINE, EXO_CUDNN_OF_THING, c->machine);
    else
        set(&m, plan, EXO_CUDNN_PLAN_HANDLE, EXO_CUDNN_OF_HANDLE, c->handle);
    set(&m, plan, EXO_CUDNN_PLAN_CONFIG, EXO_CUDNN_OF_THING, config);
    (void)finish(&m, plan);
    get(&m, plan, EXO_CUDNN_PLAN_WORKSPACE, EXO_CUDNN_OF_INT64, &bytes);
    const bool taken = m.status == EXO_CUDNN_SUCCESS && bytes >= 0 && bytes <= MOST_WORKSPACE;
    if (taken) {
        m.count = 0; /* it is the pass's */
        p->plan = plan;
        p->bytes = static_cast<size_t>(bytes);
    }
    destroy_all(&m);
    p->parts.status = is_unsupported(m.status) ? EXO_CUDNN_SUCCESS : m.status;
    return taken;
}

static void
say_choice(const exo_conv_shape *s, const pass *p, int kind, int64_t engine)
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

/* Chooses the engine of a pass: the first right one that a heuristic advises. *found: there is one. */
static int
choose(exo_cuda_cudnn_conv *v, pass *p, int kind, bool *found)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    p->parts.call = c->call;
    const exo_cudnn_thing graph = make_graph(&p->parts, c, &v->shape, kind);
    *found = false;
    for (int mode : {EXO_CUDNN_HEURISTIC_A, EXO_CUDNN_HEURISTIC_FALLBACK}) {
        maker advice = {c->call, p->parts.status, 0, {}};
        exo_cudnn_thing configs[MOST_ADVICE];
        const int64_t count = ask_advice(&advice, c, graph, mode, configs);
        p->parts.status = advice.status;
        for (int64_t i = 0; i < count && !*found && p->parts.status == EXO_CUDNN_SUCCESS; i++) {
            int64_t engine = 0;
            *found = is_right(v, &p->parts, configs[i], &engine) && make_plan(c, p, configs[i]);
            if (*found) {
                move(&advice, &p->parts, configs[i]);
                say_choice(&v->shape, p, kind, engine);
            }
        }
        destroy_all(&advice);
        if (*found)
            break;
    }
    return p->parts.status;
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
    st = is_unsupported(status) ? EXO_OK : check(cuda->cudnn, status, "a convolution", err);
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
    for (pass *p : {&conv->forward, &conv->data, &conv->filter}) {
        if (p->plan)
            (void)p->parts.call->BackendDestroyDescriptor(p->plan);
        destroy_all(&p->parts);
    }
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

/* The arrays in the order of `ids`. */
static exo_status
execute(const exo_cuda_cudnn_conv *v, const pass *p, const void *const arrays[3], const char *what,
        exo_err *err)
{
    const exo_cuda_cudnn *c = v->cuda->cudnn;
    maker m = {c->call, EXO_CUDNN_SUCCESS, 0, {}};
    void *workspace = NULL;
    for (int i = 0; i < 3; i++)
        if (reinterpret_cast<uintptr_t>(arrays[i]) % ALIGNMENT != 0)
            return exo_fail(
                err, EXO_FAILED,
                "cuDNN: %s: an array begins at no multiple of %d bytes: unset EXOGYM_CUDNN", what,
                ALIGNMENT);
    const exo_status st = take_workspace(v, p, &workspace, err);
    if (st != EXO_OK)
        return st;
    const exo_cudnn_thing pack = make(&m, EXO_CUDNN_PACK);
    set_many(&m, pack, EXO_CUDNN_PACK_IDS, EXO_CUDNN_OF_INT64, 3, ids);
    set_many(&m, pack, EXO_CUDNN_PACK_POINTERS, EXO_CUDNN_OF_POINTER, 3, arrays);
    set(&m, pack, EXO_CUDNN_PACK_WORKSPACE, EXO_CUDNN_OF_POINTER, workspace);
    (void)finish(&m, pack);
    if (m.status == EXO_CUDNN_SUCCESS)
        m.status = c->call->BackendExecute(c->handle, p->plan, pack);
    destroy_all(&m);
    if (workspace && cudaFreeAsync(workspace, v->cuda->stream) != cudaSuccess)
        (void)cudaGetLastError();
    return check(c, m.status, what, err);
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
