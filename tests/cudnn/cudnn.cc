/* The cuDNN of the tests: see cudnn_test.h. Functions and numbers are those of cuDNN 9's
 * cudnn_graph.h. */
#include "cudnn/cudnn_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "cuda/outside.h"
#include "cudnn/things.h"

#define CUDNN extern "C" __attribute__((visibility("default")))

/* Engines of the heuristics. */
enum {
    DRAWN = 3,    /* has other bits in each run */
    SHORT_SUMS,   /* sums are of less than fp32 */
    NOT_FOR_THIS, /* its plan is not supported */
    HUGE_ONE,     /* needs a workspace beyond bounds */
    DOWN,         /* rounds operands of fp32 to tf32 */
    TENSORS,      /* computes on the tensor cores, fp32 as tf32 */
    RIGHT,
    ENGINES
};

static const std::vector<int> notes_of[ENGINES] = {{}, {}, {}, {4}, {2}, {}, {}, {0, 1}, {0}, {9}};

/* A tensor of images (n, c, h, w), or weights (n to c, h x w). The elements lie as (n, h, w, c). */
struct tensor {
    int type, n, c, h, w;
};

struct windows {
    int pad, stride;
};

struct context {
    cudaStream_t stream;
    bool has_stream;
    int gpu; /* of the thread that made it */
};

std::set<thing *> descriptors;
static uint64_t things, calls, fail_at, forwards, backwards, attentions;
static int failure, tf32;
static bool without_advice, breaks;
static size_t version = 91900;

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
cudnnBackendCreateDescriptor(int kind, thing **out)
{
    return serve([=]() {
        const std::set<int> known = {POINTWISE,  CONVOLUTION,  ENGINE,      CONFIG,    HEURISTIC,
                                     PLAN,       FORWARD,      FILTER,      DATA,      GRAPH,
                                     PACK,       TENSOR,       MATMUL,      REDUCTION, DO_MATMUL,
                                     DO_RESHAPE, DO_POINTWISE, DO_REDUCTION};
        forbid(!known.count(kind), "an unknown kind of descriptors");
        *out = new thing{kind, 0, false, {}, nullptr};
        descriptors.insert(*out);
        things++;
        return SUCCESS;
    });
}

CUDNN int
cudnnBackendDestroyDescriptor(thing *t)
{
    cuda_emulated_locked([&]() {
        forbid(!descriptors.erase(t), "a descriptor that is not there is destroyed");
        things--;
    });
    delete t;
    return SUCCESS;
}

/* --- Attributes ------------------------------------------------------------------------------- */

static size_t
size_of(int type)
{
    if (type == OF_BOOLEAN)
        return sizeof(bool);
    return type == OF_DATA_TYPE || type == OF_FLOAT || type == OF_POINTWISE_MODE ||
                   type == OF_REDUCTION || type == OF_CONVOLUTION_MODE ||
                   type == OF_HEURISTIC_MODE || type == OF_NOTE
               ? 4
               : 8;
}

/* An attribute that can be set: all have to be, but for optional ones. */
struct attribute {
    int kind, name, type;
    int64_t count; /* 0: any */
    bool optional;
};

/* Of the operations, whose numbers begin at `first`. */
#define OPERATION(kind, first)                                                                     \
    {kind, first, OF_FLOAT, 1, false}, {kind, (first) + 1, OF_FLOAT, 1, false},                    \
        {kind, (first) + 2, OF_THING, 1, false}, {kind, (first) + 3, OF_THING, 1, false},          \
        {kind, (first) + 4, OF_THING, 1, false},                                                   \
    {                                                                                              \
        kind, (first) + 5, OF_THING, 1, false                                                      \
    }

static const attribute attributes[] = {{CONVOLUTION, 100, OF_DATA_TYPE, 1, false},
                                       {CONVOLUTION, 101, OF_CONVOLUTION_MODE, 1, false},
                                       {CONVOLUTION, 102, OF_INT64, 2, false},
                                       {CONVOLUTION, 103, OF_INT64, 2, false},
                                       {CONVOLUTION, 104, OF_INT64, 2, false},
                                       {CONVOLUTION, 105, OF_INT64, 2, false},
                                       {CONVOLUTION, 106, OF_INT64, 1, false},
                                       {HEURISTIC, 200, OF_HEURISTIC_MODE, 1, false},
                                       {HEURISTIC, 201, OF_THING, 1, false},
                                       {PLAN, 400, OF_HANDLE, 1, false},
                                       {PLAN, 401, OF_THING, 1, false},
                                       OPERATION(FORWARD, 700),
                                       OPERATION(DATA, 706),
                                       OPERATION(FILTER, 712),
                                       {GRAPH, 800, OF_HANDLE, 1, false},
                                       {GRAPH, 801, OF_THING, 0, false},
                                       {TENSOR, 900, OF_INT64, 1, false},
                                       {TENSOR, 901, OF_DATA_TYPE, 1, false},
                                       {TENSOR, 902, OF_INT64, 4, false},
                                       {TENSOR, 903, OF_INT64, 4, false},
                                       {TENSOR, 906, OF_INT64, 1, false},
                                       {TENSOR, 907, OF_BOOLEAN, 1, true},
                                       {TENSOR, 908, OF_BOOLEAN, 1, true},
                                       {POINTWISE, 0, OF_POINTWISE_MODE, 1, false},
                                       {POINTWISE, 1, OF_DATA_TYPE, 1, false},
                                       {POINTWISE, 9, OF_INT64, 1, true},
                                       {DO_POINTWISE, 750, OF_THING, 1, false},
                                       {DO_POINTWISE, 751, OF_THING, 1, false},
                                       {DO_POINTWISE, 752, OF_THING, 1, true},
                                       {DO_POINTWISE, 753, OF_THING, 1, false},
                                       {DO_POINTWISE, 758, OF_THING, 1, true},
                                       {MATMUL, 1500, OF_DATA_TYPE, 1, false},
                                       {DO_MATMUL, 1520, OF_THING, 1, false},
                                       {DO_MATMUL, 1521, OF_THING, 1, false},
                                       {DO_MATMUL, 1522, OF_THING, 1, false},
                                       {DO_MATMUL, 1523, OF_THING, 1, false},
                                       {REDUCTION, 1600, OF_REDUCTION, 1, false},
                                       {REDUCTION, 1601, OF_DATA_TYPE, 1, false},
                                       {DO_REDUCTION, 1610, OF_THING, 1, false},
                                       {DO_REDUCTION, 1611, OF_THING, 1, false},
                                       {DO_REDUCTION, 1612, OF_THING, 1, false},
                                       {DO_RESHAPE, 2200, OF_THING, 1, false},
                                       {DO_RESHAPE, 2201, OF_THING, 1, false},
                                       {PACK, 1000, OF_INT64, 0, false},
                                       {PACK, 1001, OF_POINTER, 0, false},
                                       {PACK, 1003, OF_POINTER, 1, false}};

CUDNN int
cudnnBackendSetAttribute(thing *t, int name, int type, int64_t count, const void *values)
{
    return serve([=]() {
        const attribute *found = nullptr;
        for (const attribute &a : attributes)
            if (a.kind == t->kind && a.name == name)
                found = &a;
        forbid(!found, "an unknown attribute");
        forbid(found->type != type, "an attribute of another type");
        forbid(found->count > 0 ? found->count != count : count < 1, "too many values, or too few");
        forbid(t->finished, "an attribute of a descriptor that is finished");
        t->values[name].assign(static_cast<const char *>(values),
                               static_cast<size_t>(count) * size_of(type));
        return SUCCESS;
    });
}

/* --- Graphs ----------------------------------------------------------------------------------- */

static size_t
count_of(const tensor &t)
{
    return static_cast<size_t>(t.n) * static_cast<size_t>(t.c) * static_cast<size_t>(t.h) *
           static_cast<size_t>(t.w);
}

static tensor
tensor_of(const thing *t)
{
    return {value_of<int>(t, 901), int_at(t, 902, 0), int_at(t, 902, 1), int_at(t, 902, 2),
            int_at(t, 902, 3)};
}

static windows
windows_of(const thing *t)
{
    return {int_at(t, 105), int_at(t, 103)};
}

static void
check_images(const thing *t)
{
    const tensor v = tensor_of(t);
    forbid(v.type != FLOAT && v.type != BFLOAT16, "an impossible type");
    forbid(v.n < 1 || v.c < 1 || v.h < 1 || v.w < 1, "an empty tensor");
    forbid(int_at(t, 903, 0) != v.h * v.w * v.c || int_at(t, 903, 1) != 1 ||
               int_at(t, 903, 2) != v.w * v.c || int_at(t, 903, 3) != v.c,
           "images or weights are not channels-last");
}

static void
check_tensor(const thing *t)
{
    for (size_t i = 0; i < 4; i++)
        forbid(int_at(t, 902, i) < 1 || int_at(t, 903, i) < 1, "an empty tensor");
    forbid(int_at(t, 900) != 16, "another alignment");
}

static void
check_windows(const thing *t)
{
    for (size_t i = 0; i < 2; i++) {
        forbid(int_at(t, 104, i) != int_at(t, 105, 0) || int_at(t, 105, i) != int_at(t, 105, 0) ||
                   int_at(t, 103, i) != int_at(t, 103, 0) || int_at(t, 105, i) < 0 ||
                   int_at(t, 103, i) < 1,
               "impossible windows");
        forbid(int_at(t, 102, i) != 1, "a dilation");
    }
    forbid(int_at(t, 106) != 2, "not of two dimensions");
    forbid(value_of<int>(t, 101) != 1, "the weights would be turned round");
    forbid(value_of<int>(t, 100) != FLOAT, "sums are not in fp32");
}

static int
extent(int size, int window, const windows &v)
{
    return (size + 2 * v.pad - window) / v.stride + 1;
}

/* What an operation has. */
struct operation {
    int kind;
    const thing *ids[3]; /* the tensors x, w and y */
    tensor x, w, y;
    windows v;
};

static operation
operation_of(const thing *t)
{
    const int first = t->kind == FORWARD ? 700 : t->kind == DATA ? 706 : 712;
    operation o = {};
    o.kind = t->kind;
    o.ids[0] = thing_at(t, first + 4, TENSOR);
    o.ids[1] = thing_at(t, first + 3, TENSOR);
    o.ids[2] = thing_at(t, first + 5, TENSOR);
    o.x = tensor_of(o.ids[0]);
    o.w = tensor_of(o.ids[1]);
    o.y = tensor_of(o.ids[2]);
    o.v = windows_of(thing_at(t, first + 2, CONVOLUTION));
    forbid(value_of<float>(t, first) != 1 || value_of<float>(t, first + 1) != 0, "factors");
    return o;
}

/* Whether what belongs to an operation fits together. */
static void
check_operation(const thing *t)
{
    const operation o = operation_of(t);
    for (const thing *each : o.ids)
        check_images(each);
    forbid(o.x.type != o.w.type || o.y.type != o.w.type, "types differ");
    forbid(o.x.n != o.y.n || o.x.c != o.w.c || o.y.c != o.w.n, "batch or channels differ");
    forbid(o.y.h != extent(o.x.h, o.w.h, o.v) || o.y.w != extent(o.x.w, o.w.w, o.v),
           "the output has another size");
}

static const thing *
operation_in(const thing *graph)
{
    const thing *other = value_of<thing *>(graph, 801);
    return thing_at(graph, 801,
                    other->kind == FORWARD || other->kind == DATA ? other->kind : FILTER);
}

static int
finish_plan(const thing *t)
{
    const thing *config = thing_at(t, 401, CONFIG);
    forbid(config->engine < DRAWN, "a configuration that no heuristic has given");
    forbid(!value_of<context *>(t, 400)->has_stream, "a handle on no stream of its own");
    return config->engine != NOT_FOR_THIS ? SUCCESS : breaks ? 5000 : NOT_SUPPORTED;
}

CUDNN int
cudnnBackendFinalize(thing *t)
{
    return serve([=]() {
        int status = SUCCESS;
        forbid(t->finished, "a descriptor is finished twice");
        for (const attribute &a : attributes)
            forbid(a.kind == t->kind && !a.optional && !t->values.count(a.name),
                   "an attribute is missing");
        if (t->kind == TENSOR)
            check_tensor(t);
        else if (t->kind == CONVOLUTION)
            check_windows(t);
        else if (t->kind == FORWARD || t->kind == DATA || t->kind == FILTER)
            check_operation(t);
        else if (t->kind == GRAPH && is_general(t))
            check_general(t);
        else if (t->kind == GRAPH)
            check_operation(operation_in(t));
        else if (t->kind == HEURISTIC)
            forbid(value_of<int>(t, 200) != 3 && value_of<int>(t, 200) != 2, "another heuristic");
        else if (t->kind == PLAN)
            status = finish_plan(t);
        t->finished = status == SUCCESS;
        return status;
    });
}

/* --- Engines ---------------------------------------------------------------------------------- */

/* The engines of a heuristic; the fallback has the right one, so both have to be asked. */
static std::vector<int>
advice_of(const thing *heuristic)
{
    const bool fallback = value_of<int>(heuristic, 200) == 2;
    const thing *graph = thing_at(heuristic, 201, GRAPH);
    const bool half =
        is_general(graph) ? has_bf16(graph) : operation_of(operation_in(graph)).x.type == BFLOAT16;
    if (fallback)
        return without_advice ? std::vector<int>{} : std::vector<int>{DRAWN, RIGHT};
    if (half)
        return {DRAWN, SHORT_SUMS, NOT_FOR_THIS, HUGE_ONE};
    return {DRAWN, NOT_FOR_THIS, HUGE_ONE, DOWN, TENSORS};
}

static thing *
answer_at(void *values, int64_t at, int kind)
{
    thing *out = static_cast<thing **>(values)[at];
    forbid(!descriptors.count(out) || out->kind != kind, "an answer needs a descriptor");
    return out;
}

static void
answer_advice(const thing *heuristic, int64_t room, int64_t *count, void *values)
{
    const std::vector<int> engines = advice_of(heuristic);
    const int64_t known = static_cast<int64_t>(engines.size());
    *count = room > 0 && room < known ? room : known;
    for (int64_t i = 0; i < *count && room > 0; i++) {
        thing *config = answer_at(values, i, CONFIG);
        config->engine = engines[static_cast<size_t>(i)];
        config->graph = thing_at(heuristic, 201, GRAPH);
    }
}

static const thing *
graph_of(const thing *plan)
{
    const thing *config = thing_at(plan, 401, CONFIG);
    forbid(!descriptors.count(const_cast<thing *>(config->graph)), "a plan has lost its graph");
    return config->graph;
}

static size_t
workspace_of(const thing *plan)
{
    if (thing_at(plan, 401, CONFIG)->engine == HUGE_ONE)
        return static_cast<size_t>(INT64_MAX / 2);
    const thing *graph = graph_of(plan);
    return is_general(graph) ? 1000 : count_of(operation_of(operation_in(graph)).x);
}

CUDNN int
cudnnBackendGetAttribute(thing *t, int name, int type, int64_t room, int64_t *count, void *values)
{
    return serve([=]() {
        forbid(!descriptors.count(t), "a descriptor that is not there is read");
        *count = 1;
        if (t->kind == HEURISTIC && name == 202 && type == OF_THING) {
            forbid(!t->finished, "a heuristic that is not finished");
            answer_advice(t, room, count, values);
        } else if (t->kind == CONFIG && name == 300 && type == OF_THING && room == 1) {
            answer_at(values, 0, ENGINE)->engine = t->engine;
        } else if (t->kind == ENGINE && name == 1301 && type == OF_INT64 && room == 1) {
            *static_cast<int64_t *>(values) = t->engine;
        } else if (t->kind == ENGINE && name == 1303 && type == OF_NOTE) {
            const std::vector<int> &notes = notes_of[t->engine];
            *count = static_cast<int64_t>(notes.size());
            for (size_t i = 0; i < notes.size() && static_cast<int64_t>(i) < room; i++)
                static_cast<int *>(values)[i] = notes[i];
        } else if (t->kind == PLAN && name == 402 && type == OF_INT64 && room == 1) {
            forbid(!t->finished, "a plan that is not finished");
            *static_cast<int64_t *>(values) = static_cast<int64_t>(workspace_of(t));
        } else {
            forbid(true, "an unknown attribute is read");
        }
        return SUCCESS;
    });
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

static void
compute(int kind, const operand &x, const operand &w, const windows &v, const operand &y,
        bool short_ones)
{
    const operand &to = kind == FORWARD ? y : kind == DATA ? x : w;
    const reader in_x = {x.data, x.is.type, short_ones}, in_w = {w.data, w.is.type, short_ones},
                 in_y = {y.data, y.is.type, short_ones};
    std::unique_ptr<double[]> sums(new double[count_of(to.is)]());
    each_product(x.is, w.is, v, y.is, [&](size_t i, size_t j, size_t k) {
        if (kind == FORWARD)
            sums[k] += static_cast<double>(in_x[i]) * static_cast<double>(in_w[j]);
        else if (kind == DATA)
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
    forbid(reinterpret_cast<uintptr_t>(o.data) % 16 != 0, "an array of another alignment");
}

/* The array of a call for the tensor. */
static operand
operand_of(const thing *pack, const thing *t, const tensor &is)
{
    for (size_t i = 0; i < 3; i++)
        if (int_at(pack, 1000, i) == int_at(t, 906))
            return {is, value_of<void *>(pack, 1001, i)};
    forbid(true, "a tensor without an array");
    return {is, nullptr};
}

static void
execute_convolution(const context *handle, const thing *plan, const thing *pack, void *workspace)
{
    const operation o = operation_of(operation_in(graph_of(plan)));
    const operand x = operand_of(pack, o.ids[0], o.x), w = operand_of(pack, o.ids[1], o.w),
                  y = operand_of(pack, o.ids[2], o.y);
    for (const operand &each : {x, w, y})
        check_operand(each);
    const int kind = o.kind;
    const windows v = o.v;
    const size_t bytes = workspace_of(plan);
    tf32 = x.is.type == FLOAT && thing_at(plan, 401, CONFIG)->engine != RIGHT;
    const bool short_ones = tf32;
    cuda_emulated_push(handle->stream, nullptr, [=]() {
        memset(workspace, 0xA5, bytes);
        compute(kind, x, w, v, y, short_ones);
    });
    (kind == FORWARD ? forwards : backwards)++;
}

static void
execute_general(const context *handle, const thing *plan, const thing *pack, void *workspace)
{
    const std::function<void()> work = general_work(graph_of(plan), pack);
    const size_t bytes = workspace_of(plan);
    cuda_emulated_push(handle->stream, nullptr, [=]() {
        memset(workspace, 0xA5, bytes);
        work();
    });
    attentions++;
}

CUDNN int
cudnnBackendExecute(context *handle, const thing *plan, const thing *pack)
{
    return serve([=]() {
        forbid(!plan->finished || !pack->finished, "what is executed is not finished");
        forbid(value_of<context *>(plan, 400) != handle, "a plan of another handle");
        const int engine = thing_at(plan, 401, CONFIG)->engine;
        forbid(engine != RIGHT && engine != TENSORS && engine != DOWN,
               "an engine that was not to be taken");
        void *workspace = value_of<void *>(pack, 1003);
        forbid(!cuda_emulated_holds(workspace, workspace_of(plan)),
               "a workspace that is too small");
        if (is_general(graph_of(plan)))
            execute_general(handle, plan, pack, workspace);
        else
            execute_convolution(handle, plan, pack, workspace);
        return SUCCESS;
    });
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
    [](int broken) { cuda_emulated_locked([=]() { breaks = broken != 0; }); },
    [](size_t number) { version = number; },
    []() { return read(&things); },
    []() { return read(&calls); },
    []() { return read(&forwards); },
    []() { return read(&backwards); },
    []() { return read(&tf32); },
    []() { return read(&attentions); }};
