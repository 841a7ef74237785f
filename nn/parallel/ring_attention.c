/* Causal attention over sequences whose tokens are spread over the members of a group (context
 * parallelism; Liu et al., 2023, arXiv:2310.01889). The work and who has which tokens: see
 * exo_attention_shape.members.
 *
 * In round k member r meets member (k - r) mod C, and the two swap keys and values; so in C rounds each
 * meets every other once. The swap of round k + 1 begins before the work of round k, so that messages and
 * work overlap; two foreign blocks are in memory. Backward swaps them again, and then their gradients, which
 * are on their way during the next round's work. All members begin the swap of keys of round k + 1 after it
 * and before the swap of gradients of round k: in one order, whoever meets nobody in some round.
 *
 * Attention has results in fp32. Under autocast x is in bf16, so keys and values move in bf16 and lose nothing,
 * and a device may compute products from bf16; their gradients are rounded to bf16 to move, and added in fp32.
 *
 * State: a plan for each member whose keys are met, in the operation's cache. Read next:
 * exogym/parallel.h. */
#include <string.h>

#include <exogym/memory.h>

#include "nn/ops/attention.h"
#include "nn/parallel/members.h"
#include "nn/tape_run.h"

enum {
    OUT_LSE /* index into op->saved */
};

/* Also the cache's signature, in which `plans` is NULL. */
struct state {
    exo_members members;
    exo_attention_shape shape; /* `from` is that of the work under way */
    size_t wire;               /* the exo_dtype in which keys, values and their gradients move */
    exo_plan **plans;          /* (members.count) */
};

static void
release_state(void *state)
{
    struct state *s = state;
    for (uint32_t m = 0; s->plans && m < s->members.count; m++)
        exo_plan_free(&s->plans[m]);
    exo_free(s->plans);
}

/* --- Keys and values of others ---------------------------------------------------------------- */

/* Elements of a row of keys and values. */
static size_t
kv_width(const exo_attention_shape *shape)
{
    return 2 * shape->kv_heads * shape->width;
}

static size_t
kv_numel(const exo_attention_shape *shape)
{
    return shape->sequences * shape->tokens * kv_width(shape);
}

/* The member that this one meets in a round. False: none. */
static bool
meets(const exo_members *m, uint32_t round, uint32_t *partner)
{
    *partner = (round + m->count - m->rank) % m->count;
    return *partner != m->rank;
}

/* The numbers of a round, (kv_numel), and their swap if it is under way. */
struct turn {
    float *data;
    void *moved; /* the same in the type of the wire; fp32: data */
    bool begun;
    exo_request *request;
};

/* Begins a swap of a round's numbers with the member that this one meets in it. */
static exo_status
begin_swap(struct turn *turn, exo_tape *tape, const struct state *s, uint32_t partner, exo_err *err)
{
    exo_err reason = {0};
    const exo_array array = {.device = exo_tape_device(tape),
                             .data = turn->moved,
                             .count = kv_numel(&s->shape),
                             .dtype = (exo_dtype)s->wire};
    if (turn->moved != turn->data &&
        exo_tape_run(tape, cast, .count = array.count, .to = array.dtype, .from = EXO_F32,
                     .y = turn->moved, .x = turn->data) != EXO_OK)
        return exo_tape_error(tape, err);
    turn->begun = true;
    if (exo_tape_rehearses(tape) && !s->members.group)
        return EXO_OK;
    exo_status st = exo_comm_begin_swap(&turn->request, s->members.group, array, partner, &reason);
    return st == EXO_OK ? st : exo_fail(err, st, "ring_attention: %s", reason.text);
}

/* Ends the swap of a round, if it has one: its numbers are then those of the other member. */
static exo_status
end_swap(struct turn *turn, exo_tape *tape, const struct state *s, exo_err *err)
{
    exo_err reason = {0};
    exo_status st = exo_request_wait(&turn->request, &reason);
    if (st != EXO_OK)
        return exo_fail(err, st, "ring_attention: %s", reason.text);
    const bool casts = turn->begun && turn->moved != turn->data;
    turn->begun = false;
    if (casts &&
        exo_tape_run(tape, cast, .count = kv_numel(&s->shape), .to = EXO_F32,
                     .from = (exo_dtype)s->wire, .y = turn->data, .x = turn->moved) != EXO_OK)
        return exo_tape_error(tape, err);
    return EXO_OK;
}

/* Two of them, for rounds in turn. */
struct turns {
    struct turn turn[2];
};

static struct turn *
turn_of(struct turns *t, uint32_t round)
{
    return &t->turn[round % 2];
}

/* False: recorded. */
static bool
open_turns(exo_tape *tape, const struct state *s, struct turns *t)
{
    *t = (struct turns){0};
    const size_t numel = kv_numel(&s->shape), each = exo_dtype_size((exo_dtype)s->wire);
    for (uint32_t i = 0; i < 2 && s->members.count > 1; i++) {
        struct turn *turn = &t->turn[i];
        turn->data = exo_tape_buffer(tape, numel * sizeof(float));
        turn->moved = s->wire == EXO_F32 ? turn->data : exo_tape_buffer(tape, numel * each);
        if (!turn->data || !turn->moved)
            return false;
    }
    return true;
}

/* Also ends the swaps that an error has left. */
static void
close_turns(exo_tape *tape, struct turns *t)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct turn *turn = &t->turn[i];
        exo_request_cancel(&turn->request);
        if (turn->moved != turn->data)
            exo_tape_buffer_done(tape, turn->moved);
        exo_tape_buffer_done(tape, turn->data);
    }
}

/* If this member meets another one in the round, begins to swap keys and values with it: the own ones,
 * those of x, leave. */
static exo_status
begin_keys(exo_tape *tape, const struct state *s, const exo_tensor *x, uint32_t round,
           struct turns *t, exo_err *err)
{
    const exo_attention_shape *shape = &s->shape;
    struct turn *turn = turn_of(t, round);
    uint32_t partner;
    if (round >= s->members.count || !meets(&s->members, round, &partner))
        return EXO_OK;
    if (exo_tape_run(tape, copy_columns, .rows = x->dims[0], .count = kv_width(shape),
                     .y_pitch = kv_width(shape), .x_pitch = x->dims[1], .y = turn->data,
                     .x = (const float *)x->data + shape->heads * shape->width) != EXO_OK)
        return exo_tape_error(tape, err);
    return begin_swap(turn, tape, s, partner, err);
}

/* --- Backward --------------------------------------------------------------------------------- */

static exo_status
work_backward(exo_tape *tape, exo_op *op, uint32_t from, exo_attention_backward_args *args)
{
    struct state *s = op->state;
    s->shape.from = from;
    if (!exo_tape_scratch(tape, EXO_SHAPE_ATTENTION, &s->shape, EXO_SCRATCH_BACKWARD,
                          &args->scratch))
        return exo_tape_error(tape, NULL);
    exo_status st =
        exo_tape_run(tape, attention_backward, .plan = s->plans[from], .dx = args->dx,
                     .x = op->in[0]->data, .y = op->out->data, .dy = op->out->grad,
                     .lse = op->saved[OUT_LSE], .scratch = args->scratch, .add = args->add,
                     .others = args->others, .dothers = args->dothers);
    exo_tape_buffer_done(tape, args->scratch);
    return st;
}

/* Adds the gradient of the own keys and values to that of x. */
static exo_status
add_to_rows(exo_tape *tape, const exo_op *op, float *dx, const float *sum)
{
    const struct state *s = op->state;
    const size_t count = kv_width(&s->shape);
    return exo_tape_run(tape, copy_columns, .rows = op->in[0]->dims[0], .count = count,
                        .y_pitch = op->in[0]->dims[1], .x_pitch = count,
                        .y = dx + s->shape.heads * s->shape.width, .x = sum, .add = true);
}

/* What backward keeps of other members: their keys and values, the gradients of these, and the sum
 * (kv_numel) of what all others' queries give the own keys and values. */
struct foreign {
    struct turns keys, grads;
    float *sum;
};

/* False: recorded. */
static bool
open_foreign(exo_tape *tape, const struct state *s, struct foreign *f)
{
    const size_t numel = kv_numel(&s->shape);
    *f = (struct foreign){0};
    if (s->members.count == 1)
        return true;
    if (!open_turns(tape, s, &f->keys) || !open_turns(tape, s, &f->grads))
        return false;
    f->sum = exo_tape_buffer(tape, numel * sizeof(float));
    return f->sum && exo_tape_run(tape, fill, .count = numel, .y = f->sum) == EXO_OK;
}

static void
close_foreign(exo_tape *tape, struct foreign *f)
{
    close_turns(tape, &f->keys);
    close_turns(tape, &f->grads);
    exo_tape_buffer_done(tape, f->sum);
}

/* Ends the swap of gradients of a round, and adds what has come. */
static exo_status
end_gradients(exo_tape *tape, const struct state *s, uint32_t round, struct foreign *f,
              exo_err *err)
{
    uint32_t partner;
    if (round >= s->members.count || !meets(&s->members, round, &partner)) /* -1: none yet */
        return EXO_OK;
    exo_status st = end_swap(turn_of(&f->grads, round), tape, s, err);
    if (st == EXO_OK && exo_tape_run(tape, axpy, .count = kv_numel(&s->shape), .y = f->sum,
                                     .a = 1.0f, .x = turn_of(&f->grads, round)->data) != EXO_OK)
        st = exo_tape_error(tape, err);
    return st;
}

static exo_status
meet_backward(exo_tape *tape, exo_op *op, uint32_t round, float *dx, struct foreign *f,
              exo_err *err)
{
    const struct state *s = op->state;
    uint32_t partner;
    const bool met = meets(&s->members, round, &partner);
    exo_attention_backward_args args = {.dx = dx,
                                        .others = turn_of(&f->keys, round)->data,
                                        .dothers = turn_of(&f->grads, round)->data};
    exo_status st = end_swap(turn_of(&f->keys, round), tape, s, err);
    if (st == EXO_OK)
        st = begin_keys(tape, s, op->in[0], round + 1, &f->keys, err);
    if (st == EXO_OK && met &&
        (exo_tape_run(tape, fill, .count = kv_numel(&s->shape), .y = args.dothers) != EXO_OK ||
         work_backward(tape, op, partner, &args) != EXO_OK))
        st = exo_tape_error(tape, err);
    if (st == EXO_OK)
        st = end_gradients(tape, s, round - 1, f, err);
    return st == EXO_OK && met ? begin_swap(turn_of(&f->grads, round), tape, s, partner, err) : st;
}

static exo_status
ring_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct state *s = op->state;
    exo_status st = EXO_OK;
    bool add = false;
    struct foreign foreign;
    float *dx = exo_tape_grad(tape, op->in[0], &add, &st);
    if (!dx)
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    if (!open_foreign(tape, s, &foreign))
        return exo_tape_error(tape, err);
    st = begin_keys(tape, s, op->in[0], 0, &foreign.keys, err);
    if (st == EXO_OK &&
        work_backward(tape, op, s->members.rank,
                      &(exo_attention_backward_args){.dx = dx, .add = add}) != EXO_OK)
        st = exo_tape_error(tape, err);
    for (uint32_t k = 0; st == EXO_OK && k < s->members.count; k++)
        st = meet_backward(tape, op, k, dx, &foreign, err);
    if (st == EXO_OK)
        st = end_gradients(tape, s, s->members.count - 1, &foreign, err);
    if (st == EXO_OK && foreign.sum && add_to_rows(tape, op, dx, foreign.sum) != EXO_OK)
        st = exo_tape_error(tape, err);
    close_foreign(tape, &foreign);
    return st;
}

static const exo_op_class ring_class = {.name = "ring_attention",
                                        .backward = ring_backward,
                                        .release = release_state,
                                        .remembered = true};

/* --- Forward ---------------------------------------------------------------------------------- */

/* Makes a plan for the keys of each member. */
static exo_status
make_plans(exo_tape *tape, struct state *s, exo_err *err)
{
    exo_status st = EXO_OK;
    s->plans = exo_calloc(s->members.count, sizeof(exo_plan *));
    if (!s->plans)
        return exo_fail(err, EXO_NOMEM, "no memory for %u plans", s->members.count);
    for (uint32_t m = 0; st == EXO_OK && m < s->members.count; m++) {
        exo_attention_shape shape = s->shape;
        shape.from = m;
        st = exo_plan_new(&s->plans[m], exo_tape_device(tape), EXO_SHAPE_ATTENTION, &shape, err);
    }
    return st;
}

static struct state *
find_state(exo_tape *tape, exo_op *op, const exo_members *members, const exo_attention_shape *shape,
           exo_dtype wire)
{
    exo_err err = {0};
    bool fresh = false;
    struct state wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.members = *members;
    wanted.shape = *shape;
    wanted.wire = (size_t)wire;
    struct state *s = exo_tape_state(tape, op, &wanted, sizeof wanted, sizeof *s, &fresh);
    if (!s || !fresh)
        return s;
    *s = wanted;
    exo_status st = make_plans(tape, s, &err);
    if (st == EXO_OK)
        return s;
    exo_tape_plan_failed(tape, op, EXO_F32, st, &err);
    return NULL;
}

static exo_status
work(exo_tape *tape, exo_op *op, uint32_t from, const exo_tensor *out, float *lse,
     const float *others)
{
    struct state *s = op->state;
    void *scratch = NULL;
    s->shape.from = from;
    if (!exo_tape_scratch(tape, EXO_SHAPE_ATTENTION, &s->shape, EXO_SCRATCH_FORWARD, &scratch))
        return exo_tape_error(tape, NULL);
    exo_status st =
        exo_tape_run(tape, attention, .plan = s->plans[from], .y = out->data, .lse = lse,
                     .x = op->in[0]->data, .scratch = scratch, .others = others);
    exo_tape_buffer_done(tape, scratch);
    return st;
}

/* The rounds, from the first swap on. */
static exo_status
meet_forward(exo_tape *tape, exo_op *op, const exo_tensor *out, float *lse, struct turns *keys,
             exo_err *err)
{
    const struct state *s = op->state;
    uint32_t partner;
    exo_status st = begin_keys(tape, s, op->in[0], 0, keys, err);
    if (st == EXO_OK && work(tape, op, s->members.rank, out, lse, NULL) != EXO_OK)
        st = exo_tape_error(tape, err);
    for (uint32_t k = 0; st == EXO_OK && k < s->members.count; k++) {
        st = end_swap(turn_of(keys, k), tape, s, err);
        if (st == EXO_OK)
            st = begin_keys(tape, s, op->in[0], k + 1, keys, err);
        if (st == EXO_OK && meets(&s->members, k, &partner) &&
            work(tape, op, partner, out, lse, turn_of(keys, k)->data) != EXO_OK)
            st = exo_tape_error(tape, err);
    }
    return st;
}

/* False: recorded. */
static bool
run_forward(exo_tape *tape, exo_op *op, const exo_tensor *out, float *lse)
{
    exo_err err = {0};
    struct turns keys;
    if (!open_turns(tape, op->state, &keys))
        return false;
    exo_status st = meet_forward(tape, op, out, lse, &keys, &err);
    close_turns(tape, &keys);
    if (st != EXO_OK && exo_tape_error(tape, NULL) == EXO_OK)
        exo_tape_fail(tape, st, "%s", err.text);
    return st == EXO_OK;
}

exo_tensor *
exo_members_ring_attention(exo_tape *tape, const exo_members *members, exo_tensor *x,
                           const exo_attention_opts *opts)
{
    exo_attention_shape shape;
    const exo_dtype wire = x && x->dtype == EXO_BF16 ? EXO_BF16 : EXO_F32;
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    if (!x || !exo_attention_shape_of(tape, x, opts, &shape))
        return NULL;
    if (shape.tokens % 2 != 0 || opts->alibi || opts->dropout > 0.0f || shape.invariant)
        return exo_tape_fail(tape, EXO_INVAL,
                             "ring_attention: %zu tokens of a member%s: expected an even number, "
                             "without ALiBi, dropout and an invariant pass",
                             shape.tokens, opts->alibi ? ", ALiBi" : "");
    shape.members = members->count;
    shape.rank = shape.from = members->rank;
    shape.bf16_products = wire == EXO_BF16;
    exo_op *op = exo_tape_op(tape, &ring_class, &x, 1);
    if (!op || !find_state(tape, op, members, &shape, wire))
        return NULL;
    exo_tensor *out = exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2,
                                      (size_t[]){x->dims[0], shape.heads * shape.width});
    float *lse = out ? exo_tape_buffer(tape, x->dims[0] * shape.heads * sizeof *lse) : NULL;
    if (!lse)
        return NULL;
    const bool keeps = exo_tape_pass(tape)->grad && x->needs_grad;
    if (keeps)
        op->saved[OUT_LSE] = lse;
    if (!exo_tape_recall(tape, op, out) && !run_forward(tape, op, out, lse))
        return NULL;
    if (!keeps)
        exo_tape_buffer_done(tape, lse);
    return exo_tape_finish(tape, op, out);
}

exo_tensor *
exo_tape_ring_attention(exo_tape *tape, exo_group *group, exo_tensor *x,
                        const exo_attention_opts *opts)
{
    const exo_members members = {.group = group,
                                 .rank = group ? exo_group_rank(group) : 0,
                                 .count = group ? exo_group_size(group) : 1};
    return exo_members_ring_attention(tape, &members, x, opts);
}
