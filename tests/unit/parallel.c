/* Collectives as operations of the tape (exogym/parallel.h): an MLP whose layers are split over
 * members gives the loss and the gradients of the whole MLP; gathers and scatters match their
 * definitions; errors end the pass. Each member's thread owns its `struct member`. Read next:
 * include/exogym/parallel.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/loss.h>
#include <exogym/model.h>
#include <exogym/parallel.h>
#include <exogym/sequence.h>

#include "nn/tape_impl.h"
#include "support/numbers.h"
#include "support/passes.h"

enum {
    MEMBERS = 2,
    ROWS = 6,
    IN = 5,
    HIDDEN = 8,
    OUT = 3,
    PART = HIDDEN / MEMBERS
};

/* --- Members, one thread each ----------------------------------------------------------------- */

struct member {
    exo_group *group;
    exo_tape *tape;
    uint32_t rank;
    void (*act)(struct member *m);
    float loss;
    float w0[IN * IN], w1[HIDDEN * IN], b1[HIDDEN], w2[OUT * HIDDEN], x[ROWS * IN]; /* gradients */
    float y[2 * ROWS * IN];
    exo_status status;
    exo_err err;
};

struct team {
    exo_clock_manual clock; /* never advances: nothing times out */
    exo_comm *comm;
    struct member m[MEMBERS];
};

static void *
member_main(void *argument)
{
    struct member *m = argument;
    m->act(m);
    return NULL;
}

static void
team_open(struct team *t)
{
    *t = (struct team){0};
    exo_clock_manual_init(&t->clock, 0);
    cr_assert_eq(exo_comm_local(&t->comm, MEMBERS, &t->clock.base, NULL), EXO_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        t->m[r] = (struct member){.rank = r, .tape = passes_tape()};
        cr_assert_eq(exo_group_open(&t->m[r].group, t->comm, r, r ? "right" : "left", NULL),
                     EXO_OK);
    }
}

static void
team_run(struct team *t, void (*act)(struct member *m))
{
    pthread_t threads[MEMBERS];
    for (int r = 0; r < MEMBERS; r++) {
        t->m[r].act = act;
        cr_assert_eq(pthread_create(&threads[r], NULL, member_main, &t->m[r]), 0);
    }
    for (int r = 0; r < MEMBERS; r++)
        pthread_join(threads[r], NULL);
}

static void
team_close(struct team *t)
{
    for (int r = 0; r < MEMBERS; r++) {
        exo_group_close(&t->m[r].group);
        exo_tape_free(&t->m[r].tape);
    }
    exo_comm_drop(&t->comm);
}

/* --- Tensor parallelism ----------------------------------------------------------------------- */

static const int32_t labels[ROWS] = {0, 2, 1, 1, -1, 0};

/* The parameters and the input of the whole model. */
struct model {
    float *x, *w0, *w1, *b1, *w2;
};

static struct model
model_new(void)
{
    return (struct model){.x = numbers_new(ROWS * IN, 1),
                          .w0 = numbers_new(IN * IN, 2),
                          .w1 = numbers_new(HIDDEN * IN, 3),
                          .b1 = numbers_new(HIDDEN, 4),
                          .w2 = numbers_new(OUT * HIDDEN, 5)};
}

static void
model_free(struct model *m)
{
    free(m->x), free(m->w0), free(m->w1), free(m->b1), free(m->w2);
}

/* A member's part of the two layers. */
struct layers {
    exo_group *group; /* NULL: the layers are whole */
    exo_tensor *w1, *b1, *w2;
};

static exo_tensor *
run_layers(void *context, exo_tape *t, exo_tensor *h)
{
    const struct layers *l = context;
    exo_tensor *in = l->group ? exo_tape_all_reduce_backward(t, l->group, h) : h;
    exo_tensor *y = exo_linear(t, exo_relu(t, exo_linear(t, in, l->w1, l->b1)), l->w2, NULL);
    return l->group ? exo_tape_all_reduce(t, l->group, y) : y;
}

/* Runs tanh(x w0^T), which every member computes in full, then two layers with `part` of the hidden
 * units, from `first` on. `group` is NULL for the whole model. Writes the gradients to m; that of
 * w2 has the shape (OUT, part). */
static void
run_mlp(struct member *m, const struct model *all, exo_group *group, size_t first, size_t part,
        bool checkpoint)
{
    float w2[OUT * HIDDEN];
    size_t rows = ROWS;
    exo_tape *t = m->tape;
    for (size_t o = 0; o < OUT; o++)
        memcpy(w2 + o * part, all->w2 + o * HIDDEN + first, part * sizeof *w2);
    passes_begin(t, true, false);
    exo_tensor *tx = exo_tape_variable(t, 2, (size_t[]){ROWS, IN}, all->x);
    exo_tensor *tw0 = exo_tape_variable(t, 2, (size_t[]){IN, IN}, all->w0);
    exo_tensor *tw1 = exo_tape_variable(t, 2, (size_t[]){part, IN}, all->w1 + first * IN);
    exo_tensor *tb1 = exo_tape_variable(t, 1, &part, all->b1 + first);
    exo_tensor *tw2 = exo_tape_variable(t, 2, (size_t[]){OUT, part}, w2);
    exo_tensor *h = exo_tanh(t, exo_linear(t, tx, tw0, NULL));
    struct layers layers = {.group = group, .w1 = tw1, .b1 = tb1, .w2 = tw2};
    exo_tensor *y =
        checkpoint ? exo_checkpoint(t, h, run_layers, &layers) : run_layers(&layers, t, h);
    /* h has a second use: its gradient is the sum of all members' parts and of the part that each
     * member computes in full. */
    y = exo_add(
        t, y, exo_linear(t, h, exo_tape_input(t, EXO_F32, 2, (size_t[]){OUT, IN}, all->w0), NULL));
    exo_tensor *loss =
        exo_cross_entropy(t, (exo_logits){.x = y}, exo_tape_input(t, EXO_I32, 1, &rows, labels));
    m->status = loss ? exo_tape_backward(t, loss, 1, &m->err) : exo_tape_error(t, &m->err);
    if (m->status != EXO_OK)
        return;
    m->loss = exo_tensor_item(loss);
    exo_tensor_grad(tx, m->x);
    exo_tensor_grad(tw0, m->w0);
    exo_tensor_grad(tw1, m->w1);
    exo_tensor_grad(tb1, m->b1);
    exo_tensor_grad(tw2, m->w2);
}

static void
act_mlp(struct member *m)
{
    struct model all = model_new();
    /* the second pass reuses the memory of the first */
    for (int pass = 0; pass < 2 && m->status == EXO_OK; pass++)
        run_mlp(m, &all, m->group, m->rank * PART, PART, false);
    model_free(&all);
}

static void
act_checkpointed_mlp(struct member *m)
{
    struct model all = model_new();
    run_mlp(m, &all, m->group, m->rank * PART, PART, true);
    model_free(&all);
}

static void
expect_close(const float *got, const float *want, size_t count, const char *what)
{
    /* Tolerance: sums of 8 products of about 1, in different orders. */
    for (size_t i = 0; i < count; i++)
        cr_expect_float_eq((double)got[i], (double)want[i], 1e-5 * (1 + fabs((double)want[i])),
                           "%s %zu: %g, not %g", what, i, (double)got[i], (double)want[i]);
}

static void
expect_the_whole_mlp(void (*act)(struct member *m))
{
    struct team t;
    struct model all = model_new();
    struct member whole = {.tape = passes_tape()};
    run_mlp(&whole, &all, NULL, 0, HIDDEN, false);
    cr_assert_eq(whole.status, EXO_OK, "%s", whole.err.text);
    team_open(&t);
    team_run(&t, act);
    for (size_t r = 0; r < MEMBERS; r++) {
        const struct member *m = &t.m[r];
        cr_assert_eq(m->status, EXO_OK, "%s", m->err.text);
        expect_close(&m->loss, &whole.loss, 1, "loss");
        expect_close(m->x, whole.x, ROWS * IN, "dx");
        expect_close(m->w0, whole.w0, IN * IN, "dw0");
        expect_close(m->w1, whole.w1 + r * PART * IN, PART * IN, "dw1");
        expect_close(m->b1, whole.b1 + r * PART, PART, "db1");
        for (size_t o = 0; o < OUT; o++)
            expect_close(m->w2 + o * PART, whole.w2 + o * HIDDEN + r * PART, PART, "dw2");
    }
    /* Parameters that both members hold in full need gradients that are equal to the bit, so that
     * they stay equal. */
    cr_expect_eq(t.m[0].loss, t.m[1].loss);
    cr_expect_eq(memcmp(t.m[0].w0, t.m[1].w0, sizeof whole.w0), 0);
    team_close(&t);
    exo_tape_free(&whole.tape);
    model_free(&all);
}

Test(parallel, two_members_with_half_a_layer_each_are_the_whole_mlp)
{
    expect_the_whole_mlp(act_mlp);
}

/* Backward runs the layers again, and their collectives too. */
Test(parallel, within_a_checkpoint_too)
{
    expect_the_whole_mlp(act_checkpointed_mlp);
}

/* --- Gather and scatter ----------------------------------------------------------------------- */

static const float weight[2 * ROWS * IN] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, 0.5f};

/* The loss is sum(weight * all rows), times rank + 1. The gradient of all rows on a member is
 * `weight` times its rank + 1. */
static void
act_gather(struct member *m)
{
    exo_tape *t = m->tape;
    float *x = numbers_new(ROWS * IN, 10 + m->rank);
    passes_begin(t, true, false);
    exo_tensor *tx = exo_tape_variable(t, 2, (size_t[]){ROWS, IN}, x);
    exo_tensor *y = exo_tape_all_gather(t, m->group, tx);
    m->status = exo_tape_error(t, &m->err);
    if (m->status == EXO_OK) {
        exo_tensor_read(y, m->y);
        exo_tensor *by = exo_tape_input(t, EXO_F32, 2, (size_t[]){2 * ROWS, IN}, weight);
        exo_tensor *sum = exo_mean(t, exo_mul(t, y, by));
        m->status = exo_tape_backward(t, sum, 2 * ROWS * IN * (float)(m->rank + 1), &m->err);
        exo_tensor_grad(tx, m->x);
    }
    free(x);
}

Test(parallel, all_gather_and_its_gradient)
{
    struct team t;
    team_open(&t);
    team_run(&t, act_gather);
    for (size_t r = 0; r < MEMBERS; r++) {
        cr_assert_eq(t.m[r].status, EXO_OK, "%s", t.m[r].err.text);
        for (size_t other = 0; other < MEMBERS; other++) {
            float *x = numbers_new(ROWS * IN, 10 + other);
            cr_expect_eq(memcmp(t.m[r].y + other * ROWS * IN, x, ROWS * IN * sizeof *x), 0);
            free(x);
        }
        /* (1 + 2) weight */
        for (size_t i = 0; i < ROWS * IN; i++)
            cr_expect_float_eq(t.m[r].x[i], 3 * weight[r * ROWS * IN + i], 1e-4f);
    }
    team_close(&t);
}

static void
act_scatter(struct member *m)
{
    enum {
        OWN = ROWS / MEMBERS * IN
    };
    exo_tape *t = m->tape;
    float *x = numbers_new(ROWS * IN, 10 + m->rank);
    passes_begin(t, true, false);
    exo_tensor *tx = exo_tape_variable(t, 2, (size_t[]){ROWS, IN}, x);
    exo_tensor *y = exo_tape_reduce_scatter(t, m->group, tx);
    m->status = exo_tape_error(t, &m->err);
    if (m->status == EXO_OK) {
        exo_tensor_read(y, m->y);
        exo_tensor *by = exo_tape_input(t, EXO_F32, 2, (size_t[]){ROWS / MEMBERS, IN}, weight);
        m->status = exo_tape_backward(t, exo_mean(t, exo_mul(t, y, by)), OWN * (float)(m->rank + 1),
                                      &m->err);
        exo_tensor_grad(tx, m->x);
    }
    free(x);
}

Test(parallel, reduce_scatter_and_its_gradient)
{
    enum {
        OWN = ROWS / MEMBERS * IN
    };
    struct team t;
    float *x[] = {numbers_new(ROWS * IN, 10), numbers_new(ROWS * IN, 11)};
    team_open(&t);
    team_run(&t, act_scatter);
    for (size_t r = 0; r < MEMBERS; r++) {
        cr_assert_eq(t.m[r].status, EXO_OK, "%s", t.m[r].err.text);
        for (size_t i = 0; i < OWN; i++)
            cr_expect_eq(t.m[r].y[i], x[0][r * OWN + i] + x[1][r * OWN + i]);
        for (size_t i = 0; i < ROWS * IN; i++)
            cr_expect_float_eq(t.m[r].x[i], (float)(i / OWN + 1) * weight[i % OWN], 1e-4f);
    }
    team_close(&t);
    free(x[0]), free(x[1]);
}

/* --- Errors ----------------------------------------------------------------------------------- */

/* One member all-reduces in its forward pass after the other one has left. */
static void
act_forward_alone(struct member *m)
{
    static const float x[ROWS * IN];
    if (m->rank == 1) {
        exo_group_close(&m->group);
        return;
    }
    passes_begin(m->tape, true, false);
    exo_tensor *y = exo_tape_all_reduce(m->tape, m->group,
                                        exo_tape_variable(m->tape, 2, (size_t[]){ROWS, IN}, x));
    m->loss = y ? 1 : 0;
    m->status = exo_tape_error(m->tape, &m->err);
}

Test(parallel, the_death_of_a_member_ends_forward)
{
    struct team t;
    team_open(&t);
    team_run(&t, act_forward_alone);
    cr_expect_eq(t.m[0].loss, 0, "NULL");
    cr_expect_eq(t.m[0].status, EXO_PEER_LOST);
    cr_expect(strstr(t.m[0].err.text, "all_reduce: ") && strstr(t.m[0].err.text, "right"), "%s",
              t.m[0].err.text);
    team_close(&t);
}

static void
act_backward_alone(struct member *m)
{
    static const float x[ROWS * IN];
    if (m->rank == 1) {
        exo_group_close(&m->group);
        return;
    }
    passes_begin(m->tape, true, false);
    exo_tensor *tx = exo_tape_variable(m->tape, 2, (size_t[]){ROWS, IN}, x);
    exo_tensor *loss = exo_mean(m->tape, exo_tape_all_reduce_backward(m->tape, m->group, tx));
    m->loss = loss ? 1 : 0;
    m->status = exo_tape_backward(m->tape, loss, 1, &m->err);
}

Test(parallel, the_death_of_a_member_ends_backward)
{
    struct team t;
    team_open(&t);
    team_run(&t, act_backward_alone);
    cr_expect_eq(t.m[0].loss, 1, "forward needs nobody");
    cr_expect_eq(t.m[0].status, EXO_PEER_LOST);
    cr_expect(strstr(t.m[0].err.text, "all_reduce_backward: ") && strstr(t.m[0].err.text, "right"),
              "%s", t.m[0].err.text);
    team_close(&t);
}

Test(parallel, wrong_shapes_are_refused_before_a_call)
{
    static const float x[ROWS * IN];
    struct team t;
    exo_err err = {0};
    team_open(&t);
    exo_tape *tape = t.m[0].tape;
    passes_begin(tape, true, false);
    cr_expect_null(exo_tape_reduce_scatter(tape, t.m[0].group,
                                           exo_tape_input(tape, EXO_F32, 2, (size_t[]){3, 2}, x)));
    cr_expect_eq(exo_tape_error(tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "reduce_scatter: (3, 2): expected a multiple of 2 rows"), "%s",
              err.text);
    passes_begin(tape, true, false);
    cr_expect_null(
        exo_tape_all_gather(tape, t.m[0].group, exo_tape_input(tape, EXO_F32, 0, NULL, x)));
    cr_expect_eq(exo_tape_error(tape, &err), EXO_INVAL);
    passes_begin(tape, true, false);
    cr_expect_null(exo_tape_all_reduce(tape, t.m[0].group, NULL));
    cr_expect_null(exo_tape_all_reduce_backward(tape, t.m[0].group, NULL));
    cr_expect_null(exo_tape_all_gather(tape, t.m[0].group, NULL));
    cr_expect_null(exo_tape_reduce_scatter(tape, t.m[0].group, NULL));
    cr_expect_eq(exo_tape_error(tape, NULL), EXO_OK, "NULL in, NULL out");
    team_close(&t);
}

/* A rehearsal plans memory and calls no collective: the other member does not take part. */
Test(parallel, a_rehearsal_without_a_group_calls_no_collective)
{
    static const float x[ROWS * IN];
    exo_tape *tape = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tape_new_rehearsal(&tape, &err), EXO_OK);
    passes_begin(tape, true, false);
    exo_tensor *tx = exo_tape_variable(tape, 2, (size_t[]){ROWS, IN}, x);
    exo_tensor *y = exo_tape_all_reduce(tape, NULL, exo_tape_all_reduce_backward(tape, NULL, tx));
    y = exo_tape_reduce_scatter(tape, NULL, exo_tape_all_gather(tape, NULL, y));
    cr_assert_not_null(y);
    cr_assert_eq(exo_tape_backward(tape, exo_mean(tape, y), 1, &err), EXO_OK, "%s", err.text);
    exo_tape_free(&tape);
}
