/* Collectives as operations of the tape: see exogym/parallel.h. Each calls its group on the thread
 * of the pass, and blocks until the group is done. State: the group of each call, in the
 * operation's cache. Read next: runtime/comm. */
#include "nn/parallel/members.h"

#include "nn/tape_run.h"

/* The cache keeps this from a call to its backward. */
struct state {
    exo_members members;
};

/* --- Pieces ----------------------------------------------------------------------------------- */

static exo_array
array_of(exo_tape *tape, exo_dtype dtype, void *data, size_t count)
{
    return (exo_array){
        .device = exo_tape_device(tape), .data = data, .count = count, .dtype = dtype};
}

/* The bytes of x, or of its gradient. */
static size_t
bytes_of(const exo_tensor *x)
{
    return x->numel * exo_dtype_size(x->dtype);
}

/* Calls a collective on `count` elements of `data`, which have the type of the operation's input. In a
 * rehearsal there may be no group, and no call. */
static exo_status
run(exo_tape *tape, const exo_op *op,
    exo_status (*collective)(exo_group *group, exo_array data, exo_err *err), void *data,
    size_t count, exo_err *err)
{
    const struct state *s = op->state;
    exo_err reason = {0};
    if (exo_tape_rehearses(tape) && !s->members.group)
        return EXO_OK;
    exo_status st =
        collective(s->members.group, array_of(tape, op->in[0]->dtype, data, count), &reason);
    return st == EXO_OK ? EXO_OK : exo_fail(err, st, "%s: %s", op->op_class->name, reason.text);
}

static exo_status
sum_all(exo_group *group, exo_array data, exo_err *err)
{
    return exo_all_reduce(group, data, EXO_SUM, err);
}

static exo_status
sum_shards(exo_group *group, exo_array data, exo_err *err)
{
    return exo_reduce_scatter(group, data, EXO_SUM, err);
}

/* Adds `from`, which has x's shape, to x's gradient, or copies it there if x has none yet. */
static exo_status
give(exo_tape *tape, exo_tensor *x, const void *from, exo_err *err)
{
    exo_status st = EXO_OK;
    bool add = false;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx && add)
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                          .b = from);
    else if (dx)
        st = exo_tape_copy(tape, dx, from, bytes_of(x));
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

/* This member's part of `all`: parts of `count` elements, in the order of ranks. */
static void *
own_rows(const exo_op *op, void *all, size_t count)
{
    const struct state *s = op->state;
    return (uint8_t *)all + s->members.rank * count * exo_dtype_size(op->in[0]->dtype);
}

/* Begins the operation on x, row-major and in its type, which is fp32 or bf16. NULL: recorded. */
static exo_op *
open_op(exo_tape *tape, const exo_op_class *op_class, const exo_members *members, exo_tensor *x)
{
    bool fresh;
    x = x ? exo_to_dtype(tape, x, x->dtype == EXO_BF16 ? EXO_BF16 : EXO_F32) : NULL;
    x = x ? exo_to_layout(tape, x, EXO_ROW_MAJOR) : NULL;
    exo_op *op = x ? exo_tape_op(tape, op_class, &x, 1) : NULL;
    struct state *s =
        op ? exo_tape_state(tape, op, members, sizeof *members, sizeof *s, &fresh) : NULL;
    if (!s)
        return NULL;
    s->members = *members;
    return op;
}

static exo_members
members_of(const exo_group *group)
{
    return (exo_members){.group = (exo_group *)(uintptr_t)group,
                         .rank = group ? exo_group_rank(group) : 0,
                         .count = group ? exo_group_size(group) : 1};
}

/* Finishes an operation whose collective returned `st`. */
static exo_tensor *
finish(exo_tape *tape, exo_op *op, exo_tensor *y, exo_status st, const exo_err *err)
{
    return st == EXO_OK ? exo_tape_finish(tape, op, y) : exo_tape_fail(tape, st, "%s", err->text);
}

/* --- All-reduce ------------------------------------------------------------------------------- */

static exo_status
identity_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    return exo_tape_steal_grad(op, x) ? EXO_OK : give(tape, x, op->out->grad, err);
}

static const exo_op_class all_reduce_class = {.name = "all_reduce", .backward = identity_backward};

exo_tensor *
exo_tape_all_reduce(exo_tape *tape, exo_group *group, exo_tensor *x)
{
    exo_err err = {0};
    const exo_members members = members_of(group);
    exo_op *op = open_op(tape, &all_reduce_class, &members, x);
    exo_tensor *y = op ? exo_tape_tensor(tape, op->in[0]->dtype, EXO_ROW_MAJOR, op->in[0]->num_dims,
                                         op->in[0]->dims)
                       : NULL;
    if (!y || exo_tape_copy(tape, y->data, op->in[0]->data, bytes_of(y)) != EXO_OK)
        return NULL;
    exo_status st = run(tape, op, sum_all, y->data, y->numel, &err);
    return finish(tape, op, y, st, &err);
}

/* Nobody else reads the gradient of the output, so it is summed in place. */
static exo_status
sum_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_status st = run(tape, op, sum_all, op->out->grad, op->out->numel, err);
    return st == EXO_OK ? identity_backward(tape, op, err) : st;
}

static const exo_op_class all_reduce_backward_class = {
    .name = "all_reduce_backward", .backward = sum_backward, .passes_input = true};

exo_tensor *
exo_tape_all_reduce_backward(exo_tape *tape, exo_group *group, exo_tensor *x)
{
    const exo_members members = members_of(group);
    exo_op *op = open_op(tape, &all_reduce_backward_class, &members, x);
    exo_tensor *y =
        op ? exo_tape_view(tape, op->in[0], EXO_ROW_MAJOR, op->in[0]->num_dims, op->in[0]->dims)
           : NULL;
    return y ? exo_tape_finish(tape, op, y) : NULL;
}

/* --- All-gather and reduce-scatter ------------------------------------------------------------ */

/* A new tensor of x's type with the dimensions of x, except the first, which is `rows`. */
static exo_tensor *
with_rows(exo_tape *tape, const exo_tensor *x, size_t rows)
{
    size_t dims[EXO_MAX_DIMS];
    for (size_t i = 0; i < x->num_dims; i++)
        dims[i] = i == 0 ? rows : x->dims[i];
    return exo_tape_tensor(tape, x->dtype, EXO_ROW_MAJOR, x->num_dims, dims);
}

static exo_status
gather_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = run(tape, op, sum_shards, op->out->grad, op->out->numel, err);
    return st == EXO_OK ? give(tape, x, own_rows(op, op->out->grad, x->numel), err) : st;
}

static const exo_op_class all_gather_class = {.name = "all_gather", .backward = gather_backward};

exo_tensor *
exo_members_all_gather(exo_tape *tape, const exo_members *members, exo_tensor *x)
{
    exo_err err = {0};
    if (x && x->num_dims == 0)
        return exo_tape_fail(tape, EXO_INVAL, "all_gather: x is a single element: expected rows");
    exo_op *op = open_op(tape, &all_gather_class, members, x);
    exo_tensor *y = op ? with_rows(tape, op->in[0], op->in[0]->dims[0] * members->count) : NULL;
    if (!y || exo_tape_copy(tape, own_rows(op, y->data, op->in[0]->numel), op->in[0]->data,
                            bytes_of(op->in[0])) != EXO_OK)
        return NULL;
    exo_status st = run(tape, op, exo_all_gather, y->data, y->numel, &err);
    return finish(tape, op, y, st, &err);
}

static exo_status
scatter_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    void *all = exo_tape_buffer(tape, bytes_of(x));
    if (!all || exo_tape_copy(tape, own_rows(op, all, op->out->numel), op->out->grad,
                              bytes_of(op->out)) != EXO_OK)
        return exo_tape_error(tape, err);
    exo_status st = run(tape, op, exo_all_gather, all, x->numel, err);
    if (st == EXO_OK)
        st = give(tape, x, all, err);
    exo_tape_buffer_done(tape, all);
    return st;
}

static const exo_op_class reduce_scatter_class = {.name = "reduce_scatter",
                                                  .backward = scatter_backward};

/* Begins a reduce-scatter of x. NULL: recorded. */
static exo_op *
open_scatter(exo_tape *tape, const exo_members *members, exo_tensor *x)
{
    char shape[96];
    if (!x || (x->num_dims > 0 && x->dims[0] % members->count == 0))
        return open_op(tape, &reduce_scatter_class, members, x);
    exo_tape_fail(tape, EXO_INVAL, "reduce_scatter: %s: expected a multiple of %u rows",
                  exo_shape_text(x, shape), members->count);
    return NULL;
}

/* The result of a reduce-scatter of `all`, which has the elements of the operation's input, and
 * changes. */
static exo_tensor *
scatter(exo_tape *tape, exo_op *op, void *all)
{
    exo_err err = {0};
    const exo_tensor *x = op->in[0];
    const exo_members *members = &((const struct state *)op->state)->members;
    exo_tensor *y = with_rows(tape, x, x->dims[0] / members->count);
    exo_status st = y ? run(tape, op, sum_shards, all, x->numel, &err) : EXO_OK;
    if (y && st == EXO_OK &&
        exo_tape_copy(tape, y->data, own_rows(op, all, y->numel), bytes_of(y)) != EXO_OK)
        return NULL;
    return y ? finish(tape, op, y, st, &err) : NULL;
}

exo_tensor *
exo_members_reduce_scatter(exo_tape *tape, const exo_members *members, exo_tensor *x)
{
    exo_op *op = open_scatter(tape, members, x);
    exo_tensor *y = op ? scatter(tape, op, op->in[0]->data) : NULL;
    if (!y || !op->in[0]->owns_data)
        return y;
    exo_tape_buffer_done(tape, op->in[0]->data);
    op->in[0]->owns_data = false;
    return y;
}

exo_tensor *
exo_tape_all_gather(exo_tape *tape, exo_group *group, exo_tensor *x)
{
    const exo_members members = members_of(group);
    return exo_members_all_gather(tape, &members, x);
}

exo_tensor *
exo_tape_reduce_scatter(exo_tape *tape, exo_group *group, exo_tensor *x)
{
    const exo_members members = members_of(group);
    exo_op *op = open_scatter(tape, &members, x);
    const size_t bytes = op ? bytes_of(op->in[0]) : 0;
    void *all = op ? exo_tape_buffer(tape, bytes) : NULL;
    if (!all || exo_tape_copy(tape, all, op->in[0]->data, bytes) != EXO_OK)
        return NULL;
    exo_tensor *y = scatter(tape, op, all);
    exo_tape_buffer_done(tape, all);
    return y;
}

/* --- Once ------------------------------------------------------------------------------------- */

static const exo_op_class once_class = {
    .name = "once", .backward = identity_backward, .passes_input = true};

exo_tensor *
exo_members_once(exo_tape *tape, const exo_members *members, exo_tensor *x)
{
    exo_op *op = open_op(tape, &once_class, members, x ? exo_to_dtype(tape, x, EXO_F32) : NULL);
    if (!op)
        return NULL;
    const exo_tensor *from = op->in[0];
    exo_tensor *y = members->rank == 0
                        ? exo_tape_view(tape, op->in[0], EXO_ROW_MAJOR, from->num_dims, from->dims)
                        : exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, from->num_dims, from->dims);
    if (!y ||
        (members->rank > 0 && exo_tape_run(tape, fill, .count = y->numel, .y = y->data) != EXO_OK))
        return NULL;
    return exo_tape_finish(tape, op, y);
}
