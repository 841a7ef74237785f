/* async_diloco against a plain implementation in double precision, in orders of steps that the test
 * chooses: no node waits for another, so one thread can make the steps of all nodes. Identities,
 * bytes, checkpoints. Each test owns its nodes. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/nodes.h"
#include "support/temp.h"

enum {
    NUMEL = 61,
    BATCH = 2,
    H = 5
};

struct plain {
    double outer[NUMEL], momentum[NUMEL], sum[NUMEL];
    uint64_t changes;
    double n, c, lr, mu;
    struct {
        float theta[NUMEL];
        double start[NUMEL];
        uint64_t step;
    } node[NODES_MAX];
};

static void
plain_init(struct plain *p, uint32_t count, double n, double c)
{
    *p = (struct plain){.n = n, .c = c, .lr = 0.7, .mu = 0.9};
    for (uint32_t r = 0; r < count; r++) {
        nodes_initial(NUMEL, p->node[r].theta);
        for (size_t j = 0; j < NUMEL; j++)
            p->node[r].start[j] = p->outer[j] = (double)p->node[r].theta[j];
    }
}

/* The change of node r arrives. */
static void
plain_change(struct plain *p, uint32_t r)
{
    bool momentum = (p->changes + 1) % (uint64_t)p->n == 0;
    for (size_t j = 0; j < NUMEL; j++) {
        double delta = p->node[r].start[j] - (double)p->node[r].theta[j];
        p->sum[j] += delta;
        if (momentum) {
            p->momentum[j] = p->mu * p->momentum[j] + p->sum[j] / p->n;
            p->sum[j] = 0;
        }
        double part = momentum ? 1 - p->c * p->n + p->c : p->c;
        p->outer[j] -= p->lr * (part * p->mu * p->momentum[j] + delta / p->n);
    }
    p->changes++;
    for (size_t j = 0; j < NUMEL; j++) {
        p->node[r].start[j] = p->outer[j];
        p->node[r].theta[j] = (float)p->outer[j];
    }
}

/* The next step of node r, of `count`: SGD with rate 0.1. */
static void
plain_step(struct plain *p, uint32_t r, uint32_t count)
{
    float grads[NUMEL];
    uint64_t step = p->node[r].step++;
    nodes_gradient(NUMEL, p->node[r].theta, (step * count + r) * BATCH, BATCH, grads);
    for (size_t j = 0; j < NUMEL; j++)
        p->node[r].theta[j] -= 0.1f * grads[j];
    if (p->node[r].step % H == 0)
        plain_change(p, r);
}

static void
node_step(nodes *n, uint32_t r)
{
    nodes_node *each = &n->each[r];
    exo_err err = {0};
    nodes_gradient(NUMEL, each->params, (each->node.step * n->count + r) * BATCH, BATCH,
                   each->grads);
    cr_assert_eq(exo_strategy_step(each->strategy, &each->node, &err), EXO_OK, "%s", err.text);
    each->node.step++;
}

static double
distance(const float *a, const float *b)
{
    double most = 0;
    for (size_t j = 0; j < NUMEL; j++) {
        double here = fabs((double)a[j] - (double)b[j]);
        most = here <= most ? most : here; /* also NaN */
    }
    return most;
}

/* Node r makes r + 1 steps in each turn, 50 steps in all, so that changes come from old
 * parameters. */
static void
expect_plain(uint32_t count, const char *options, double every, double c)
{
    static struct plain p;
    nodes n;
    nodes_init(&n, count, NUMEL, BATCH, 50, "async_diloco", options);
    plain_init(&p, count, every, c);
    for (int turn = 0; turn < 50; turn++)
        for (uint32_t r = 0; r < count; r++)
            for (uint32_t i = 0; i <= r && p.node[r].step < 50; i++) {
                plain_step(&p, r, count);
                node_step(&n, r);
                cr_assert_lt(distance(n.each[r].params, p.node[r].theta), 1e-5,
                             "%s: node %u, step %d", options, r, (int)p.node[r].step);
            }
    for (uint32_t r = 0; r < count; r++)
        cr_expect_eq(n.each[r].node.step, 50);
    cr_expect_eq(p.changes, count * 50 / H);
    /* each node sends its change, and the server its parameters, in each round */
    cr_expect_eq(nodes_bytes(&n), count * (50 / H) * 2 * NUMEL * sizeof(float));
    nodes_release(&n);
}

Test(async, the_plain_algorithm_gives_the_same)
{
    expect_plain(3, "{H: 5, dynamic: false, optimizer: {name: sgd, lr: 0.1}}", 3, 0);
    expect_plain(4, "{H: 5, dynamic: false, momentum_every: 1, optimizer: {name: sgd, lr: 0.1}}", 1,
                 0);
    expect_plain(
        2, "{H: 5, dynamic: false, momentum_every: 4, c: 0.2, optimizer: {name: sgd, lr: 0.1}}", 4,
        0.2);
}

/* Nothing is late with one node: the outer step is that of diloco, in another order of
 * rounding. */
Test(async, one_node_alone_is_diloco)
{
    nodes a, b;
    nodes_init(&a, 1, NUMEL, BATCH, 50, "async_diloco",
               "{H: 5, optimizer: {name: adamw, lr: 0.05}}");
    nodes_init(&b, 1, NUMEL, BATCH, 50, "diloco", "{H: 5, optimizer: {name: adamw, lr: 0.05}}");
    for (int step = 0; step < 50; step++) {
        nodes_train(&a, 1);
        nodes_train(&b, 1);
        cr_assert_lt(distance(a.each[0].params, b.each[0].params), 2e-6, "step %d", step);
    }
    nodes_release(&a);
    nodes_release(&b);
}

/* Nodes in lockstep that all begin from the same parameters: with n = N the sum of the changes of a
 * round is diloco's outer step. The nodes differ after their own change, so one round is compared,
 * on the last node. */
Test(async, the_changes_of_one_round_are_an_outer_step_of_diloco)
{
    enum {
        COUNT = 4
    };
    nodes a, b;
    nodes_init(&a, COUNT, NUMEL, BATCH, H, "async_diloco",
               "{H: 5, dynamic: false, optimizer: {name: sgd, lr: 0.1}}");
    nodes_init(&b, COUNT, NUMEL, BATCH, H, "diloco", "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    for (uint32_t r = 0; r < COUNT; r++)
        for (int i = 0; i < H; i++)
            node_step(&a, r);
    nodes_train(&b, H);
    cr_expect_lt(distance(a.each[COUNT - 1].params, b.each[0].params), 2e-6);
    cr_expect_gt(distance(a.each[0].params, b.each[0].params), 1e-4);
    nodes_release(&a);
    nodes_release(&b);
}

/* After 13 steps a round is half done, and the server has had changes of both nodes. */
Test(async, a_checkpoint_has_the_rest_of_a_round_and_the_server)
{
    static const char *const options =
        "{H: 5, dynamic: false, momentum_every: 3, optimizer: {name: adamw, lr: 0.05}}";
    char folder[64];
    nodes whole, before, after;
    nodes_init(&whole, 2, NUMEL, BATCH, 40, "async_diloco", options);
    nodes_init(&before, 2, NUMEL, BATCH, 40, "async_diloco", options);
    nodes_init(&after, 2, NUMEL, BATCH, 40, "async_diloco", options);
    temp_folder(folder, sizeof folder);
    for (int step = 0; step < 40; step++)
        for (uint32_t r = 0; r < 2; r++)
            node_step(&whole, r);
    for (int step = 0; step < 13; step++)
        for (uint32_t r = 0; r < 2; r++)
            node_step(&before, r);
    nodes_save(&before, folder);
    nodes_load(&after, folder);
    for (uint32_t r = 0; r < 2; r++)
        after.each[r].node.step = 13;
    for (int step = 13; step < 40; step++)
        for (uint32_t r = 0; r < 2; r++)
            node_step(&after, r);
    for (uint32_t r = 0; r < 2; r++)
        cr_expect_arr_eq(after.each[r].params, whole.each[r].params, NUMEL * sizeof(float));
    temp_remove(folder);
    nodes_release(&whole);
    nodes_release(&before);
    nodes_release(&after);
}

/* A checkpoint whose nodes come to step 13 one after the other: node 0 has gone on by 7 steps and two
 * changes when the server's part is written. When it repeats them, they do not count again, so it gets
 * the same outer parameters. */
Test(async, changes_that_are_sent_again_count_once)
{
    static const char *const options =
        "{H: 5, dynamic: false, momentum_every: 3, optimizer: {name: adamw, lr: 0.05}}";
    char folder[64];
    nodes before, after;
    nodes_init(&before, 2, NUMEL, BATCH, 40, "async_diloco", options);
    nodes_init(&after, 2, NUMEL, BATCH, 40, "async_diloco", options);
    temp_folder(folder, sizeof folder);
    for (uint32_t r = 2; r-- > 0;) {
        for (int step = 0; step < 13; step++)
            node_step(&before, r);
        nodes_save_one(&before, r, folder);
    }
    for (int step = 13; step < 20; step++)
        node_step(&before, 0);
    nodes_save_server(&before, folder);
    nodes_load(&after, folder);
    for (int step = 13; step < 20; step++)
        node_step(&after, 0);
    cr_expect_arr_eq(after.each[0].params, before.each[0].params, NUMEL * sizeof(float));
    temp_remove(folder);
    nodes_release(&before);
    nodes_release(&after);
}
