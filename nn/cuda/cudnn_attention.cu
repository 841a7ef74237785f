/* Attention by cuDNN: see cudnn_attention.h.
 *
 * cuDNN's engines know attention by a graph of products, pointwise operations and reductions, and
 * compute it without the tensors between them, which are virtual:
 *
 *     S = scale q k^T, or -inf above the diagonal; m, l: the maximum of a row, the sum of exp(S - m)
 *     P = exp(S - m) / l, y = P v, stats = m + log l
 *
 *     delta = the sum of dy y of a row, P = exp(S - stats), dS = scale P (dy v^T - delta)
 *     dv = P^T dy, dk = dS^T q, dq = dS k; heads of queries that share keys add up theirs
 *
 * delta is an array: engines write it first. stats are natural logarithms, the lse is binary. */
#include "nn/cuda/cudnn_attention.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/log.h>
#include <exogym/memory.h>

#include "nn/cuda/cudnn_graph.h"
#include "nn/cuda/grid.h"
#include "nn/cuda/quiet.h"

enum {
    MOST_WORKSPACE = 1 << 30, /* bytes. What is free does not count: it would change bits */
    FIRST_VERSION = 91600,    /* before, the gradients of 128 n + m tokens were wrong */
    MOST_HEAD = 128,          /* elements of a head */
    /* Compute capabilities 10 and 11 (Blackwell of data centers, Thor): no engine's notes tell whether it adds up
     * gradients in one order there. For equal bits NVIDIA's cudnn-frontend sets the advice aside, and names an engine
     * and its settings, which differ from version to version. */
    FIRST_UNORDERED = 100,
    END_UNORDERED = 120,
    MOST_OPERATIONS = 32,
    MOST_ARRAYS = 13
};

struct exo_cuda_cudnn_attention {
    exo_cuda_cudnn_attention *next; /* of the device's */
    size_t holders;
    exo_cuda_device *cuda;
    exo_attention_shape shape;
    float scale, one, lowest; /* cuDNN reads them when it computes */
    exo_cudnn_pass forward, backward;
};

/* --- Graphs ----------------------------------------------------------------------------------- */

/* The names of tensors. Those without an array have the numbers from BETWEEN on. */
enum {
    Q = 1,
    K,
    V,
    Y,
    STATS,
    DY,
    DELTA,
    DQ,
    DK,
    DV,
    SCALE,
    ONE,
    LOWEST,
    BETWEEN = 100
};

struct builder {
    exo_cudnn_maker *m;
    int64_t n, h, g, t, d; /* the sizes N, H, G, T and D */
    int64_t next;          /* the number of the next tensor without an array */
    int64_t count;
    exo_cudnn_thing operations[MOST_OPERATIONS];
};

/* Sizes, or strides. */
struct four {
    int64_t of[4];
};

/* A tensor in an array, on the host if it is `by_value`; id 0: in none. */
static exo_cudnn_thing
tensor(builder *b, int type, four sizes, four strides, int64_t id, bool by_value)
{
    exo_cudnn_maker *m = b->m;
    const exo_cudnn_thing out = exo_cudnn_make(m, EXO_CUDNN_TENSOR);
    const bool between = id == 0;
    const int64_t number = between ? b->next++ : id, alignment = EXO_CUDNN_ALIGNMENT;
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    exo_cudnn_set_many(m, out, EXO_CUDNN_TENSOR_DIMENSIONS, EXO_CUDNN_OF_INT64, 4, sizes.of);
    exo_cudnn_set_many(m, out, EXO_CUDNN_TENSOR_STRIDES, EXO_CUDNN_OF_INT64, 4, strides.of);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_ID, EXO_CUDNN_OF_INT64, number);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_ALIGNMENT, EXO_CUDNN_OF_INT64, alignment);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_VIRTUAL, EXO_CUDNN_OF_BOOLEAN, between);
    exo_cudnn_set(m, out, EXO_CUDNN_TENSOR_BY_VALUE, EXO_CUDNN_OF_BOOLEAN, by_value);
    return exo_cudnn_finish(m, out);
}

/* (N, heads, T, D), whose tokens are `pitch` elements apart; its transpose is (N, heads, D, T). */
static exo_cudnn_thing
rows(builder *b, int64_t id, int64_t heads, int64_t pitch)
{
    return tensor(b, EXO_CUDNN_BF16, {{b->n, heads, b->t, b->d}}, {{b->t * pitch, b->d, pitch, 1}},
                  id, false);
}

static exo_cudnn_thing
columns(builder *b, int64_t id, int64_t heads, int64_t pitch)
{
    return tensor(b, EXO_CUDNN_BF16, {{b->n, heads, b->d, b->t}}, {{b->t * pitch, b->d, 1, pitch}},
                  id, false);
}

/* (N, H, T, T), and its transpose. */
static exo_cudnn_thing
scores(builder *b, int type)
{
    return tensor(b, type, {{b->n, b->h, b->t, b->t}}, {{b->h * b->t * b->t, b->t * b->t, b->t, 1}},
                  0, false);
}

static exo_cudnn_thing
scores_across(builder *b)
{
    return tensor(b, EXO_CUDNN_BF16, {{b->n, b->h, b->t, b->t}},
                  {{b->h * b->t * b->t, b->t * b->t, 1, b->t}}, 0, false);
}

/* (N, H, T, 1): a number of a row. */
static exo_cudnn_thing
numbers(builder *b, int64_t id)
{
    return tensor(b, EXO_CUDNN_F32, {{b->n, b->h, b->t, 1}}, {{b->h * b->t, b->t, 1, 1}}, id,
                  false);
}

static exo_cudnn_thing
number(builder *b, int64_t id)
{
    return tensor(b, EXO_CUDNN_F32, {{1, 1, 1, 1}}, {{1, 1, 1, 1}}, id, true);
}

static void
add_operation(builder *b, exo_cudnn_thing operation)
{
    (void)exo_cudnn_finish(b->m, operation);
    if (b->count < MOST_OPERATIONS)
        b->operations[b->count++] = operation;
    else
        b->m->status = EXO_CUDNN_NO_HOST_MEMORY;
}

/* c = a b */
static exo_cudnn_thing
multiply(builder *b, exo_cudnn_thing left, exo_cudnn_thing right, exo_cudnn_thing out)
{
    exo_cudnn_maker *m = b->m;
    const int type = EXO_CUDNN_F32;
    const exo_cudnn_thing mode = exo_cudnn_make(m, EXO_CUDNN_MATMUL);
    exo_cudnn_set(m, mode, EXO_CUDNN_MATMUL_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    (void)exo_cudnn_finish(m, mode);
    const exo_cudnn_thing operation = exo_cudnn_make(m, EXO_CUDNN_DO_MATMUL);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_MATMUL_MODE, EXO_CUDNN_OF_THING, mode);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_MATMUL_A, EXO_CUDNN_OF_THING, left);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_MATMUL_B, EXO_CUDNN_OF_THING, right);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_MATMUL_C, EXO_CUDNN_OF_THING, out);
    add_operation(b, operation);
    return out;
}

/* y = mode(x, other), or of x alone; by: what a selection goes by. */
static exo_cudnn_thing
pointwise(builder *b, int mode, exo_cudnn_thing x, exo_cudnn_thing other, exo_cudnn_thing by,
          exo_cudnn_thing out, int64_t axis = -1)
{
    exo_cudnn_maker *m = b->m;
    const int type = mode == EXO_CUDNN_AT_LEAST ? EXO_CUDNN_BOOLEAN : EXO_CUDNN_F32;
    const exo_cudnn_thing how = exo_cudnn_make(m, EXO_CUDNN_POINTWISE);
    exo_cudnn_set(m, how, EXO_CUDNN_POINTWISE_MODE, EXO_CUDNN_OF_POINTWISE_MODE, mode);
    exo_cudnn_set(m, how, EXO_CUDNN_POINTWISE_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    if (axis >= 0)
        exo_cudnn_set(m, how, EXO_CUDNN_POINTWISE_AXIS, EXO_CUDNN_OF_INT64, axis);
    (void)exo_cudnn_finish(m, how);
    const exo_cudnn_thing operation = exo_cudnn_make(m, EXO_CUDNN_DO_POINTWISE);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_POINTWISE_MODE, EXO_CUDNN_OF_THING, how);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_POINTWISE_X, EXO_CUDNN_OF_THING, x);
    if (other)
        exo_cudnn_set(m, operation, EXO_CUDNN_DO_POINTWISE_B, EXO_CUDNN_OF_THING, other);
    if (by)
        exo_cudnn_set(m, operation, EXO_CUDNN_DO_POINTWISE_T, EXO_CUDNN_OF_THING, by);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_POINTWISE_Y, EXO_CUDNN_OF_THING, out);
    add_operation(b, operation);
    return out;
}

/* Along the sizes in which y has less. */
static exo_cudnn_thing
reduce(builder *b, int how, exo_cudnn_thing x, exo_cudnn_thing out)
{
    exo_cudnn_maker *m = b->m;
    const int type = EXO_CUDNN_F32;
    const exo_cudnn_thing mode = exo_cudnn_make(m, EXO_CUDNN_REDUCTION);
    exo_cudnn_set(m, mode, EXO_CUDNN_REDUCTION_TYPE, EXO_CUDNN_OF_DATA_TYPE, type);
    exo_cudnn_set(m, mode, EXO_CUDNN_REDUCTION_OPERATOR, EXO_CUDNN_OF_REDUCTION, how);
    (void)exo_cudnn_finish(m, mode);
    const exo_cudnn_thing operation = exo_cudnn_make(m, EXO_CUDNN_DO_REDUCTION);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_REDUCTION_MODE, EXO_CUDNN_OF_THING, mode);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_REDUCTION_X, EXO_CUDNN_OF_THING, x);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_REDUCTION_Y, EXO_CUDNN_OF_THING, out);
    add_operation(b, operation);
    return out;
}

/* The same elements with other sizes and strides. */
static exo_cudnn_thing
reshape(builder *b, exo_cudnn_thing x, exo_cudnn_thing out)
{
    exo_cudnn_maker *m = b->m;
    const exo_cudnn_thing operation = exo_cudnn_make(m, EXO_CUDNN_DO_RESHAPE);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_RESHAPE_X, EXO_CUDNN_OF_THING, x);
    exo_cudnn_set(m, operation, EXO_CUDNN_DO_RESHAPE_Y, EXO_CUDNN_OF_THING, out);
    add_operation(b, operation);
    return out;
}

/* Scores beyond the diagonal become -inf. */
static exo_cudnn_thing
mask(builder *b, exo_cudnn_thing x)
{
    const exo_cudnn_thing row =
        pointwise(b, EXO_CUDNN_INDEX, x, NULL, NULL, scores(b, EXO_CUDNN_INT32), 2);
    const exo_cudnn_thing column =
        pointwise(b, EXO_CUDNN_INDEX, x, NULL, NULL, scores(b, EXO_CUDNN_INT32), 3);
    const exo_cudnn_thing seen =
        pointwise(b, EXO_CUDNN_AT_LEAST, row, column, NULL, scores(b, EXO_CUDNN_BOOLEAN));
    return pointwise(b, EXO_CUDNN_SELECT, x, number(b, LOWEST), seen, scores(b, EXO_CUDNN_F32));
}

static int64_t
row_of_x(const builder *b)
{
    return (b->h + 2 * b->g) * b->d;
}

static int64_t
row_of_keys(const builder *b, const exo_attention_shape *s)
{
    return s->turned > 0 ? (b->h + b->g) * b->d : row_of_x(b);
}

static exo_cudnn_thing
scale_scores(builder *b, exo_cudnn_thing x, exo_cudnn_thing scale)
{
    return pointwise(b, EXO_CUDNN_MULTIPLY, x, scale, NULL, scores(b, EXO_CUDNN_F32));
}

static void
add_forward(builder *b, const exo_attention_shape *s)
{
    const int64_t pitch = row_of_keys(b, s);
    const exo_cudnn_thing q = rows(b, Q, b->h, pitch), k = columns(b, K, b->g, pitch),
                          v = rows(b, V, b->g, row_of_x(b));
    exo_cudnn_thing x = multiply(b, q, k, scores(b, EXO_CUDNN_F32));
    x = mask(b, scale_scores(b, x, number(b, SCALE)));
    const exo_cudnn_thing most = reduce(b, EXO_CUDNN_MOST_OF, x, numbers(b, 0));
    x = pointwise(b, EXO_CUDNN_SUBTRACT, x, most, NULL, scores(b, EXO_CUDNN_F32));
    x = pointwise(b, EXO_CUDNN_EXP, x, NULL, NULL, scores(b, EXO_CUDNN_F32));
    const exo_cudnn_thing sum = reduce(b, EXO_CUDNN_SUM_OF, x, numbers(b, 0));
    const exo_cudnn_thing log = pointwise(b, EXO_CUDNN_LOG, sum, NULL, NULL, numbers(b, 0));
    (void)pointwise(b, EXO_CUDNN_ADD, most, log, NULL, numbers(b, STATS));
    x = pointwise(b, EXO_CUDNN_DIVIDE, x, sum, NULL, scores(b, EXO_CUDNN_BF16));
    (void)multiply(b, x, v, rows(b, Y, b->h, b->h * b->d));
}

/* The gradient of keys or values, `id`: x y, added up for the heads that share them. */
static void
add_gradient(builder *b, exo_cudnn_thing x, exo_cudnn_thing y, int64_t id)
{
    const exo_cudnn_thing out = rows(b, id, b->g, row_of_x(b));
    if (b->h == b->g) {
        (void)multiply(b, x, y, out);
        return;
    }
    const exo_cudnn_thing parts = tensor(b, EXO_CUDNN_BF16, {{b->n, b->h, b->t, b->d}},
                                         {{b->h * b->t * b->d, b->t * b->d, b->d, 1}}, 0, false);
    (void)reduce(b, EXO_CUDNN_SUM_OF, multiply(b, x, y, parts), out);
}

static void
add_backward(builder *b, const exo_attention_shape *s)
{
    const int64_t pitch = row_of_keys(b, s), row = b->h * b->d;
    const exo_cudnn_thing q = rows(b, Q, b->h, pitch), k = columns(b, K, b->g, pitch),
                          v = columns(b, V, b->g, row_of_x(b)), y = rows(b, Y, b->h, row),
                          dy = rows(b, DY, b->h, row), stats = numbers(b, STATS),
                          scale = number(b, SCALE), delta = numbers(b, DELTA);
    exo_cudnn_thing x = tensor(b, EXO_CUDNN_F32, {{b->n, b->h, b->t, b->d}},
                               {{b->t * row, b->d, row, 1}}, 0, false);
    x = pointwise(b, EXO_CUDNN_MULTIPLY, dy, y, NULL, x);
    x = reduce(b, EXO_CUDNN_SUM_OF, x, numbers(b, 0));
    (void)pointwise(b, EXO_CUDNN_MULTIPLY, x, number(b, ONE), NULL, delta);
    x = multiply(b, q, k, scores(b, EXO_CUDNN_F32));
    x = scale_scores(b, x, scale);
    x = pointwise(b, EXO_CUDNN_SUBTRACT, x, stats, NULL, scores(b, EXO_CUDNN_F32));
    const exo_cudnn_thing weights =
        pointwise(b, EXO_CUDNN_EXP, mask(b, x), NULL, NULL, scores(b, EXO_CUDNN_F32));
    add_gradient(b, reshape(b, weights, scores_across(b)), dy, DV);
    x = multiply(b, dy, v, scores(b, EXO_CUDNN_F32));
    x = pointwise(b, EXO_CUDNN_SUBTRACT, x, delta, NULL, scores(b, EXO_CUDNN_F32));
    x = pointwise(b, EXO_CUDNN_MULTIPLY, x, weights, NULL, scores(b, EXO_CUDNN_F32));
    x = scale_scores(b, x, scale);
    add_gradient(b, reshape(b, x, scores_across(b)), q, DK);
    (void)multiply(b, x, reshape(b, k, rows(b, 0, b->g, pitch)), rows(b, DQ, b->h, row_of_x(b)));
}

/* --- Plans ------------------------------------------------------------------------------------ */

/* Whether cuDNN is asked: it takes no other heads, knows no empty tensors, and its kernels count in
 * ints. */
static bool
fits(const exo_cuda_cudnn *c, const exo_attention_shape *s)
{
    size_t all = 0;
    if (s->dtype != EXO_BF16 || s->alibi || s->dropout || s->invariant || s->members > 0)
        return false;
    if (s->width == 0 || s->width % 8 != 0 || s->width > MOST_HEAD || s->tokens < 2 ||
        s->kv_heads == 0 || s->heads % s->kv_heads != 0 || s->heads == 0 || s->sequences == 0)
        return false;
    return !__builtin_mul_overflow(s->sequences, s->tokens, &all) &&
           !__builtin_mul_overflow(all, 3 * s->heads, &all) &&
           !__builtin_mul_overflow(all, s->width, &all) && all <= INT_MAX &&
           c->call->GetVersion() >= FIRST_VERSION;
}

/* Whether the gradients have the same bits in each run on this GPU. */
static bool
has_ordered_gradients(const exo_cuda_device *cuda)
{
    return cuda->capability < FIRST_UNORDERED || cuda->capability >= END_UNORDERED;
}

static void
say_choice(const exo_attention_shape *s, const exo_cudnn_pass *p, bool backward, bool taken,
           const exo_cudnn_choice *choice)
{
    char engine[32] = "none";
    if (p->plan)
        (void)snprintf(engine, sizeof engine, "%lld", static_cast<long long>(choice->engine));
    EXO_LOG(DEBUG, CUDA,
            "event=attention pass=%s graph=%s engine=%s advice=%lld workspace=%zu sequences=%zu "
            "tokens=%zu heads=%zu kv_heads=%zu width=%zu turned=%zu",
            backward ? "backward" : "forward", taken ? "taken" : "refused", engine,
            static_cast<long long>(choice->advice), p->bytes, s->sequences, s->tokens, s->heads,
            s->kv_heads, s->width, s->turned);
}

/* Chooses the engine of a pass. Without one, the pass is left to attention.cu. */
static int
choose(exo_cuda_cudnn_attention *a, exo_cudnn_pass *p, bool backward)
{
    const exo_cuda_cudnn *c = a->cuda->cudnn;
    const exo_attention_shape *s = &a->shape;
    const auto count = [](size_t size) { return static_cast<int64_t>(size); };
    builder b = {&p->parts,
                 count(s->sequences),
                 count(s->heads),
                 count(s->kv_heads),
                 count(s->tokens),
                 count(s->width),
                 BETWEEN,
                 0,
                 {}};
    exo_cudnn_choice choice = {MOST_WORKSPACE, false, 0, 0, 0, 0};
    bool found = false;
    p->parts.call = c->call;
    if (backward)
        add_backward(&b, s);
    else
        add_forward(&b, s);
    const exo_cudnn_thing graph = exo_cudnn_make_graph(&p->parts, c, b.count, b.operations);
    const bool taken = p->parts.status == EXO_CUDNN_SUCCESS;
    const int status = exo_cudnn_choose(c, p, graph, &choice, &found);
    say_choice(s, p, backward, taken, &choice);
    return exo_cudnn_is_unsupported(status) ? EXO_CUDNN_SUCCESS : status;
}

static bool
are_equal(const exo_attention_shape *a, const exo_attention_shape *b)
{
    return a->sequences == b->sequences && a->tokens == b->tokens && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->width == b->width &&
           (a->turned > 0) == (b->turned > 0) && !(a->scale < b->scale) && !(b->scale < a->scale);
}

static void
destroy_plans(void *attention)
{
    exo_cuda_cudnn_attention *a = static_cast<exo_cuda_cudnn_attention *>(attention);
    exo_cudnn_destroy_pass(&a->forward);
    exo_cudnn_destroy_pass(&a->backward);
    exo_free(a);
}

static exo_status
make_plans(exo_cuda_cudnn_attention **out, exo_cuda_device *cuda, const exo_attention_shape *shape,
           exo_err *err)
{
    exo_cuda_cudnn_attention *a = static_cast<exo_cuda_cudnn_attention *>(exo_calloc(1, sizeof *a));
    if (!a)
        return exo_fail(err, EXO_NOMEM, "no memory for attention");
    a->cuda = cuda;
    a->shape = *shape;
    a->scale = static_cast<float>(shape->scale);
    a->one = 1;
    a->lowest = -INFINITY;
    int status = choose(a, &a->forward, false);
    if (status == EXO_CUDNN_SUCCESS && has_ordered_gradients(cuda))
        status = choose(a, &a->backward, true);
    if (status == EXO_CUDNN_SUCCESS) {
        *out = a;
        return EXO_OK;
    }
    exo_cuda_when_quiet(cuda->ordinal, destroy_plans, a);
    return exo_cudnn_check(cuda->cudnn, status, "attention", err);
}

exo_status
exo_cuda_cudnn_attention_hold(exo_cuda_cudnn_attention **out, exo_cuda_device *cuda,
                              const exo_attention_shape *shape, exo_err *err)
{
    exo_cuda_cudnn *c = cuda->cudnn;
    *out = NULL;
    if (!c || !fits(c, shape))
        return EXO_OK;
    exo_cuda_cudnn_attention *a = c->attentions;
    while (a && !are_equal(&a->shape, shape))
        a = a->next;
    if (!a) {
        exo_status st = exo_cuda_status(exo_cuda_select(cuda), "attention", err);
        if (st == EXO_OK)
            st = make_plans(&a, cuda, shape, err);
        if (st != EXO_OK)
            return st;
        a->next = c->attentions;
        c->attentions = a;
    }
    a->holders++;
    *out = a;
    return EXO_OK;
}

/* The end of a plan unloads kernels that cuDNN has compiled for it, for which CUDA may wait. */
void
exo_cuda_cudnn_attention_drop(exo_cuda_cudnn_attention *attention)
{
    if (!attention || --attention->holders > 0)
        return;
    exo_cuda_cudnn_attention **at = &attention->cuda->cudnn->attentions;
    while (*at != attention)
        at = &(*at)->next;
    *at = attention->next;
    exo_cuda_when_quiet(attention->cuda->ordinal, destroy_plans, attention);
}

/* --- Passes ----------------------------------------------------------------------------------- */

__global__ static void
scale_all(size_t count, float factor, const float *x, float *out)
{
    for (EXO_CUDA_EACH(i, count))
        out[i] = x[i] * factor;
}

static void
start_scaling(const exo_cuda_cudnn_attention *a, double factor, const float *x, float *out)
{
    const size_t count = a->shape.sequences * a->shape.heads * a->shape.tokens;
    exo_cuda_launch_each(scale_all, exo_cuda_blocks(count, EXO_CUDA_BLOCK), EXO_CUDA_BLOCK,
                         a->cuda->stream, count, static_cast<float>(factor), x, out);
}

/* The arrays of a call. */
struct pack {
    int64_t count, ids[MOST_ARRAYS];
    const void *arrays[MOST_ARRAYS];
};

static void
put(pack *p, int64_t id, const void *array)
{
    p->ids[p->count] = id;
    p->arrays[p->count++] = array;
}

static pack
begin_pack(const exo_cuda_cudnn_attention *a, const exo_cuda_cudnn_heads *heads)
{
    pack p = {};
    put(&p, Q, heads->queries);
    put(&p, K, heads->keys);
    put(&p, V, heads->values);
    put(&p, SCALE, &a->scale);
    put(&p, LOWEST, &a->lowest);
    return p;
}

/* Memory of a pass: cuDNN's workspace, and two arrays of a number for each row behind it. */
struct room {
    void *workspace;
    float *first, *second;
    size_t bytes;
};

static exo_status
take_room(const exo_cuda_cudnn_attention *a, const exo_cudnn_pass *p, size_t arrays, room *out,
          exo_err *err)
{
    const exo_attention_shape *s = &a->shape;
    const size_t step = 256, own = (p->bytes + step - 1) / step * step;
    const size_t each =
        (s->sequences * s->heads * s->tokens * sizeof(float) + step - 1) / step * step;
    *out = {};
    out->bytes = own + arrays * each;
    const exo_status st =
        exo_cudnn_take(a->cuda, out->bytes, "the workspace of attention", &out->workspace, err);
    if (st != EXO_OK || arrays == 0)
        return st;
    char *const behind = static_cast<char *>(out->workspace) + own;
    out->first = reinterpret_cast<float *>(behind);
    out->second = arrays > 1 ? reinterpret_cast<float *>(behind + each) : NULL;
    return EXO_OK;
}

bool
exo_cuda_cudnn_attends_some(const exo_cuda_cudnn_attention *attention)
{
    return attention && (attention->forward.plan || attention->backward.plan);
}

bool
exo_cuda_cudnn_attends(const exo_cuda_cudnn_attention *attention, bool backward,
                       const exo_cuda_cudnn_heads *heads, const void *const others[4])
{
    const void *const arrays[] = {heads->queries, heads->keys, heads->values};
    return attention && (backward ? attention->backward.plan : attention->forward.plan) &&
           exo_cudnn_check_arrays(3, arrays, "attention", NULL) == EXO_OK &&
           exo_cudnn_check_arrays(4, others, "attention", NULL) == EXO_OK;
}

exo_status
exo_cuda_cudnn_attend(exo_cuda_cudnn_attention *attention, const exo_cuda_cudnn_heads *heads,
                      void *y, float *lse, exo_err *err)
{
    const exo_cuda_cudnn_attention *a = attention;
    room r;
    pack p = begin_pack(a, heads);
    exo_status st = take_room(a, &a->forward, lse ? 0 : 1, &r, err);
    put(&p, Y, y);
    put(&p, STATS, lse ? lse : r.first);
    if (st == EXO_OK)
        st = exo_cudnn_execute(a->cuda->cudnn, &a->forward, p.count, p.ids, p.arrays, r.workspace,
                               "attention", err);
    if (st == EXO_OK && lse)
        start_scaling(a, 1.4426950408889634, lse, lse);
    exo_cudnn_give(a->cuda, r.workspace, r.bytes);
    return st == EXO_OK ? exo_cuda_launched("attention", err) : st;
}

exo_status
exo_cuda_cudnn_attend_backward(exo_cuda_cudnn_attention *attention,
                               const exo_cuda_cudnn_heads *heads, const void *y, const void *dy,
                               const float *lse, void *dx, exo_err *err)
{
    const exo_cuda_cudnn_attention *a = attention;
    const size_t queries = a->shape.heads * a->shape.width,
                 keys = a->shape.kv_heads * a->shape.width;
    char *const gradients = static_cast<char *>(dx);
    room r;
    pack p = begin_pack(a, heads);
    exo_status st = take_room(a, &a->backward, 2, &r, err);
    if (st != EXO_OK)
        return st;
    put(&p, ONE, &a->one);
    put(&p, Y, y);
    put(&p, DY, dy);
    put(&p, STATS, r.first);
    put(&p, DELTA, r.second);
    put(&p, DQ, gradients);
    put(&p, DK, gradients + queries * sizeof(exo_cuda_bf16));
    put(&p, DV, gradients + (queries + keys) * sizeof(exo_cuda_bf16));
    start_scaling(a, 0.6931471805599453, lse, r.first);
    st = exo_cudnn_execute(a->cuda->cudnn, &a->backward, p.count, p.ids, p.arrays, r.workspace,
                           "attention_backward", err);
    exo_cudnn_give(a->cuda, r.workspace, r.bytes);
    return st == EXO_OK ? exo_cuda_launched("attention_backward", err) : st;
}
