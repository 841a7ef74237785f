/* Graphs of products, pointwise operations, reductions and reshapes by the cuDNN of the tests
 * (cudnn_test.h): each operation is a loop, and each tensor between them an array in the order of its
 * strides, rounded to its type. Numbers of the modes are those of cuDNN 9's cudnn_graph.h. */
#include <math.h>

#include <memory>
#include <vector>

#include "base/bf16.h"
#include "cuda/outside.h"
#include "cudnn/things.h"

/* A tensor, which lies in an array, in `between`, or is one number. */
struct view {
    int type;
    int64_t id, sizes[4], strides[4];
    bool between, by_value;
    void *data;
    float value;
};

struct step {
    int kind, mode;
    int64_t axis;
    bool has_other, has_by;
    view x, other, by, y; /* x (op) other = y */
};

static size_t
operations_of(const thing *graph)
{
    return graph->values.at(801).size() / sizeof(thing *);
}

static const thing *
operation_at(const thing *graph, size_t i)
{
    const thing *out = value_of<thing *>(graph, 801, i);
    forbid(!descriptors.count(const_cast<thing *>(out)) || !out->finished,
           "a graph has lost an operation");
    return out;
}

bool
is_general(const thing *graph)
{
    const int kind = operation_at(graph, 0)->kind;
    return kind != FORWARD && kind != DATA && kind != FILTER;
}

static view
view_at(const thing *operation, int name)
{
    const thing *t = thing_at(operation, name, TENSOR);
    view v = {};
    v.type = value_of<int>(t, 901);
    v.id = value_of<int64_t>(t, 906);
    for (size_t i = 0; i < 4; i++) {
        v.sizes[i] = value_of<int64_t>(t, 902, i);
        v.strides[i] = value_of<int64_t>(t, 903, i);
    }
    v.between = t->values.count(907) && value_of<bool>(t, 907);
    v.by_value = t->values.count(908) && value_of<bool>(t, 908);
    return v;
}

static step
step_of(const thing *o)
{
    step s = {};
    s.kind = o->kind;
    if (o->kind == DO_MATMUL) {
        s.has_other = true;
        s.x = view_at(o, 1520);
        s.other = view_at(o, 1521);
        s.y = view_at(o, 1522);
        forbid(value_of<int>(thing_at(o, 1523, MATMUL), 1500) != FLOAT, "sums are not in fp32");
    } else if (o->kind == DO_REDUCTION) {
        s.x = view_at(o, 1610);
        s.y = view_at(o, 1611);
        s.mode = value_of<int>(thing_at(o, 1612, REDUCTION), 1600);
        forbid(value_of<int>(thing_at(o, 1612, REDUCTION), 1601) != FLOAT, "sums are not in fp32");
    } else if (o->kind == DO_RESHAPE) {
        s.x = view_at(o, 2200);
        s.y = view_at(o, 2201);
    } else {
        forbid(o->kind != DO_POINTWISE, "an operation of another kind");
        const thing *how = thing_at(o, 750, POINTWISE);
        s.mode = value_of<int>(how, 0);
        s.axis = how->values.count(9) ? value_of<int64_t>(how, 9) : -1;
        s.x = view_at(o, 751);
        s.y = view_at(o, 753);
        s.has_other = o->values.count(752) > 0;
        s.has_by = o->values.count(758) > 0;
        if (s.has_other)
            s.other = view_at(o, 752);
        if (s.has_by)
            s.by = view_at(o, 758);
    }
    return s;
}

static bool
broadcasts(const view &from, const view &to)
{
    for (size_t i = 0; i < 4; i++)
        if (from.sizes[i] != to.sizes[i] && from.sizes[i] != 1)
            return false;
    return true;
}

static void
check_product(const step &s)
{
    const int64_t *a = s.x.sizes, *b = s.other.sizes, *c = s.y.sizes;
    forbid(a[2] != c[2] || b[3] != c[3] || a[3] != b[2], "a product of other sizes");
    forbid(a[0] != c[0] || b[0] != c[0] || c[1] % a[1] != 0 || c[1] % b[1] != 0,
           "a product of other batches");
    forbid(s.x.type != BFLOAT16 && !s.x.between, "a product of other types");
}

static void
check_step(const step &s, std::set<int64_t> *known)
{
    const view *inputs[] = {&s.x, s.has_other ? &s.other : nullptr, s.has_by ? &s.by : nullptr};
    for (const view *v : inputs)
        forbid(v && v->between && !known->count(v->id), "a tensor is used before it is computed");
    forbid(s.y.by_value || !known->insert(s.y.id).second, "a tensor is computed twice");
    if (s.kind == DO_MATMUL)
        check_product(s);
    if (s.kind == DO_POINTWISE) {
        forbid(!broadcasts(s.x, s.y) || (s.has_other && !broadcasts(s.other, s.y)),
               "an operation of other sizes");
        forbid((s.mode == 601) != s.has_by || (s.mode == 501) != (s.axis >= 0),
               "an operation of other operands");
    }
    for (size_t i = 0; s.kind == DO_REDUCTION && i < 4; i++)
        forbid(s.x.sizes[i] % s.y.sizes[i] != 0, "a reduction of other sizes");
}

void
check_general(const thing *graph)
{
    std::set<int64_t> known;
    for (size_t i = 0; i < operations_of(graph); i++)
        check_step(step_of(operation_at(graph, i)), &known);
}

bool
has_bf16(const thing *graph)
{
    for (size_t i = 0; i < operations_of(graph); i++)
        if (step_of(operation_at(graph, i)).x.type == BFLOAT16)
            return true;
    return false;
}

/* --- Values ----------------------------------------------------------------------------------- */

typedef std::map<int64_t, std::vector<double>> memory; /* of the tensors between operations */

static int64_t
place(const view &v, const int64_t at[4])
{
    int64_t out = 0;
    for (size_t i = 0; i < 4; i++)
        out += (v.sizes[i] == 1 ? 0 : at[i]) * v.strides[i];
    return out;
}

static size_t
room(const view &v)
{
    const int64_t last[4] = {v.sizes[0] - 1, v.sizes[1] - 1, v.sizes[2] - 1, v.sizes[3] - 1};
    return static_cast<size_t>(place(v, last)) + 1;
}

static double
load_at(memory *m, const view &v, int64_t at)
{
    const size_t i = static_cast<size_t>(at);
    if (v.by_value)
        return static_cast<double>(v.value);
    if (v.between)
        return (*m)[v.id][i];
    return static_cast<double>(v.type == FLOAT
                                   ? static_cast<const float *>(v.data)[i]
                                   : exo_from_bf16(static_cast<const uint16_t *>(v.data)[i]));
}

static double
load(memory *m, const view &v, const int64_t at[4])
{
    return load_at(m, v, place(v, at));
}

static void
store(memory *m, const view &v, const int64_t at[4], double value)
{
    const size_t i = static_cast<size_t>(place(v, at));
    const float once = static_cast<float>(value);
    if (v.between)
        (*m)[v.id][i] =
            static_cast<double>(v.type == BFLOAT16 ? exo_from_bf16(exo_to_bf16(once)) : once);
    else if (v.type == FLOAT)
        static_cast<float *>(v.data)[i] = once;
    else
        static_cast<uint16_t *>(v.data)[i] = exo_to_bf16(once);
}

template <typename Act>
static void
each_element(const view &v, const Act &act)
{
    int64_t at[4];
    for (at[0] = 0; at[0] < v.sizes[0]; at[0]++)
        for (at[1] = 0; at[1] < v.sizes[1]; at[1]++)
            for (at[2] = 0; at[2] < v.sizes[2]; at[2]++)
                for (at[3] = 0; at[3] < v.sizes[3]; at[3]++)
                    act(at);
}

static double
product_at(memory *m, const step &s, const int64_t at[4])
{
    int64_t a[4] = {at[0], at[1] / (s.y.sizes[1] / s.x.sizes[1]), at[2], 0};
    int64_t b[4] = {at[0], at[1] / (s.y.sizes[1] / s.other.sizes[1]), 0, at[3]};
    double sum = 0;
    for (int64_t i = 0; i < s.x.sizes[3]; i++) {
        a[3] = b[2] = i;
        sum += load(m, s.x, a) * load(m, s.other, b);
    }
    return sum;
}

static double
pointwise_at(memory *m, const step &s, const int64_t at[4])
{
    const double x = s.mode == 501 ? 0 : load(m, s.x, at);
    const double other = s.has_other ? load(m, s.other, at) : 0;
    switch (s.mode) {
    case 0:
        return x + other;
    case 1:
        return x * other;
    case 6:
        return x / other;
    case 9:
        return x - other;
    case 13:
        return exp(x);
    case 15:
        return log(x);
    case 303:
        return x >= other;
    case 501:
        return static_cast<double>(at[s.axis]);
    case 601:
        return load(m, s.by, at) > 0 ? x : other;
    default:
        forbid(true, "an unknown pointwise operation");
        return 0;
    }
}

static double
reduced_at(memory *m, const step &s, const int64_t at[4])
{
    const bool most = s.mode == 3;
    double out = most ? -INFINITY : 0;
    view part = s.x;
    int64_t first[4];
    for (size_t i = 0; i < 4; i++) {
        part.sizes[i] = s.x.sizes[i] / s.y.sizes[i];
        first[i] = at[i] * part.sizes[i];
    }
    forbid(!most && s.mode != 0, "an unknown reduction");
    each_element(part, [&](const int64_t inner[4]) {
        const int64_t of[4] = {first[0] + inner[0], first[1] + inner[1], first[2] + inner[2],
                               first[3] + inner[3]};
        const double value = load(m, s.x, of);
        out = most ? fmax(out, value) : out + value;
    });
    return out;
}

static void
compute_step(memory *m, const step &s)
{
    if (s.y.between)
        (*m)[s.y.id].resize(room(s.y));
    each_element(s.y, [&](const int64_t at[4]) {
        const double value = s.kind == DO_MATMUL      ? product_at(m, s, at)
                             : s.kind == DO_POINTWISE ? pointwise_at(m, s, at)
                             : s.kind == DO_REDUCTION ? reduced_at(m, s, at)
                                                      : load_at(m, s.x, place(s.y, at));
        store(m, s.y, at, value);
    });
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* Finds the array of a tensor, or its number, which is read now. */
static void
find_array(view *v, const thing *pack)
{
    const size_t count = pack->values.at(1000).size() / sizeof(int64_t);
    forbid(pack->values.at(1001).size() / sizeof(void *) != count, "ids and arrays differ");
    for (size_t i = 0; i < count && !v->between; i++)
        if (value_of<int64_t>(pack, 1000, i) == v->id)
            v->data = value_of<void *>(pack, 1001, i);
    if (v->between)
        return;
    forbid(!v->data, "a tensor without an array");
    if (v->by_value) {
        memcpy(&v->value, v->data, sizeof v->value);
        return;
    }
    forbid(v->type != FLOAT && v->type != BFLOAT16, "an array of another type");
    const size_t size = v->type == FLOAT ? sizeof(float) : sizeof(uint16_t);
    forbid(!cuda_emulated_holds(v->data, room(*v) * size), "an array beyond its memory");
    forbid(reinterpret_cast<uintptr_t>(v->data) % 16 != 0, "an array of another alignment");
}

std::function<void()>
general_work(const thing *graph, const thing *pack)
{
    std::vector<step> steps;
    for (size_t i = 0; i < operations_of(graph); i++) {
        step s = step_of(operation_at(graph, i));
        find_array(&s.x, pack);
        find_array(&s.y, pack);
        if (s.has_other)
            find_array(&s.other, pack);
        if (s.has_by)
            find_array(&s.by, pack);
        steps.push_back(s);
    }
    return [steps]() {
        memory m;
        for (const step &s : steps)
            compute_step(&m, s);
    };
}
