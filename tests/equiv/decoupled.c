/* decoupled_diloco against diloco, against streaming_diloco, and, with a quorum of one and of two,
 * against a plain implementation in double precision in an order of steps that the test chooses; bytes and
 * checkpoints. Each test owns its nodes. */
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
    H = 6,
    P = 2,
    TAU = 2,
    STEPS = 50
};

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

/* --- A quorum of all is streaming ------------------------------------------------------------- */

static void
expect_same(uint32_t count, const char *options, const char *other, const char *other_options)
{
    nodes a, b;
    nodes_init(&a, count, NUMEL, BATCH, STEPS, "decoupled_diloco", options);
    nodes_init(&b, count, NUMEL, BATCH, STEPS, other, other_options);
    for (int step = 0; step < STEPS; step++) {
        nodes_train(&a, 1);
        nodes_train(&b, 1);
        for (uint32_t r = 0; r < count; r++)
            cr_assert_lt(distance(a.each[r].params, b.each[r].params), 1e-6, "%s: node %u, step %d",
                         other, r, step);
    }
    nodes_release(&a);
    nodes_release(&b);
}

Test(decoupled, with_a_quorum_of_all_and_no_delay_it_is_diloco, .timeout = 120)
{
    for (uint32_t count = 1; count <= 4; count += 3) {
        char options[160];
        snprintf(options, sizeof options,
                 "{H: 5, fragments: 1, delay: 0, quorum: %u, outer_optimizer: {lr: 0.7}, "
                 "optimizer: {name: sgd, lr: 0.1}}",
                 count);
        expect_same(count, options, "diloco", "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    }
}

Test(decoupled, with_a_quorum_of_all_it_is_streaming_diloco, .timeout = 120)
{
    expect_same(3, "{H: 6, fragments: 3, delay: 2, quorum: 3, optimizer: {name: sgd, lr: 0.1}}",
                "streaming_diloco",
                "{H: 6, fragments: 3, delay: 2, codec: raw, optimizer: {name: sgd, lr: 0.1}}");
    expect_same(2,
                "{H: 8, fragments: 1, delay: 7, alpha: 0, quorum: 2, offset: 3, grace: 0, "
                "optimizer: {name: adamw, lr: 0.02}}",
                "streaming_diloco",
                "{H: 8, fragments: 1, delay: 7, alpha: 0, codec: raw, offset: 3, "
                "optimizer: {name: adamw, lr: 0.02}}");
}

/* --- A quorum of some ------------------------------------------------------------------------- */

struct plain {
    double outer[NUMEL], momentum[NUMEL], sum[NUMEL]; /* sum: of the changes of open rounds */
    uint32_t quorum, changes[P];                      /* changes: of the open round */
    struct {
        float theta[NUMEL];
        double base[NUMEL], answer[NUMEL];
        uint64_t step, due[P]; /* due: the steps after which the answer of a fragment is used */
        uint64_t last[P];      /* the steps before its last change */
        double weight[P];      /* of it: its steps; before it, H */
        bool in[P];            /* the open round */
        bool ended[P];         /* it sends no further change */
    } node[NODES_MAX];
    uint64_t sent;
};

/* The fragment of a parameter: units are five equal parts, which go to the fragments in turn. */
static size_t
fragment_of(const nodes *n, size_t j)
{
    size_t u = 0;
    while (j >= n->each[0].units[u].first + n->each[0].units[u].count)
        u++;
    return u % P;
}

static void
plain_close(struct plain *p, const nodes *n, size_t fragment)
{
    double all = 0;
    for (uint32_t r = 0; r < n->count; r++)
        if (p->node[r].in[fragment] || !p->node[r].ended[fragment])
            all += p->node[r].weight[fragment];
    for (size_t j = 0; j < NUMEL; j++) {
        if (fragment_of(n, j) != fragment)
            continue;
        double delta = p->sum[j] / all;
        p->momentum[j] = 0.9 * p->momentum[j] + delta;
        p->outer[j] -= 0.4 * (delta + 0.9 * p->momentum[j]);
        p->sum[j] = 0;
        for (uint32_t r = 0; r < n->count; r++)
            if (p->node[r].in[fragment])
                p->node[r].answer[j] = p->outer[j];
    }
    for (uint32_t r = 0; r < n->count; r++)
        p->node[r].in[fragment] = false;
    p->changes[fragment] = 0;
}

static void
plain_change(struct plain *p, const nodes *n, uint32_t r, size_t fragment)
{
    double own = (double)(p->node[r].step - p->node[r].last[fragment]);
    p->node[r].weight[fragment] = own;
    p->node[r].last[fragment] = p->node[r].step;
    p->node[r].in[fragment] = true;
    p->node[r].ended[fragment] = p->node[r].step + H + TAU > STEPS;
    for (size_t j = 0; j < NUMEL; j++) {
        if (fragment_of(n, j) != fragment)
            continue;
        p->sum[j] += own * (p->node[r].base[j] - (double)p->node[r].theta[j]);
        p->sent++;
    }
    p->node[r].due[fragment] = p->node[r].step + TAU;
    if (++p->changes[fragment] == p->quorum)
        plain_close(p, n, fragment);
}

static void
plain_use(struct plain *p, const nodes *n, uint32_t r, size_t fragment)
{
    for (size_t j = 0; j < NUMEL; j++) {
        if (fragment_of(n, j) != fragment)
            continue;
        p->node[r].base[j] = p->node[r].answer[j];
        p->node[r].theta[j] =
            (float)(0.5 * (double)p->node[r].theta[j] + 0.5 * p->node[r].answer[j]);
    }
    p->node[r].due[fragment] = 0;
}

static void
plain_step(struct plain *p, const nodes *n, uint32_t r)
{
    float grads[NUMEL];
    uint64_t step = p->node[r].step++, done = step + 1;
    nodes_gradient(NUMEL, p->node[r].theta, (step * n->count + r) * BATCH, BATCH, grads);
    for (size_t j = 0; j < NUMEL; j++)
        p->node[r].theta[j] -= 0.1f * grads[j];
    for (size_t f = 0; f < P; f++)
        if (done % H == (f + 1) * (H / P) % H && done + TAU <= STEPS)
            plain_change(p, n, r, f);
    for (size_t f = 0; f < P; f++)
        if (p->node[r].due[f] == done)
            plain_use(p, n, r, f);
}

/* Node r makes `steps[r]` steps in each turn. */
static void
expect_plain(uint32_t count, uint32_t quorum, const int *steps)
{
    static struct plain p;
    nodes n;
    char options[140];
    snprintf(
        options, sizeof options,
        "{H: 6, fragments: 2, delay: 2, quorum: %u, grace: 0, patience: 1 h, optimizer: {name: "
        "sgd, lr: 0.1}}",
        quorum);
    nodes_init(&n, count, NUMEL, BATCH, STEPS, "decoupled_diloco", options);
    p = (struct plain){.quorum = quorum};
    for (uint32_t r = 0; r < count; r++) {
        nodes_initial(NUMEL, p.node[r].theta);
        for (size_t j = 0; j < NUMEL; j++)
            p.node[r].base[j] = p.outer[j] = (double)p.node[r].theta[j];
        for (size_t f = 0; f < P; f++)
            p.node[r].weight[f] = H;
    }
    for (int turn = 0; turn < STEPS; turn++)
        for (uint32_t r = 0; r < count; r++)
            for (int i = 0; i < steps[r] && p.node[r].step < STEPS; i++) {
                plain_step(&p, &n, r);
                node_step(&n, r);
                cr_assert_lt(distance(n.each[r].params, p.node[r].theta), 1e-5,
                             "%s: node %u, step %d", options, r, (int)p.node[r].step);
            }
    for (uint32_t r = 0; r < count; r++)
        cr_expect_eq(n.each[r].node.step, STEPS);
    cr_expect_eq(nodes_bytes(&n), p.sent * 2 * sizeof(float));
    nodes_release(&n);
}

Test(decoupled, with_a_quorum_of_one_the_plain_algorithm_gives_the_same)
{
    expect_plain(3, 1, (const int[]){1, 2, 3});
}

/* The changes of nodes 0 and 1 are a round, and those of 2 and 3 the next one, so none waits. */
Test(decoupled, with_a_quorum_of_two_the_plain_algorithm_gives_the_same)
{
    expect_plain(4, 2, (const int[]){1, 1, 1, 1});
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

/* Of a run of `steps` steps, continued after 13 of them, to a whole run of 40. */
static void
expect_continues(uint64_t steps)
{
    static const char *const options =
        "{H: 6, fragments: 2, delay: 2, optimizer: {name: adamw, lr: 0.05}}";
    char folder[64];
    nodes whole, before, after;
    nodes_init(&whole, 1, NUMEL, BATCH, 40, "decoupled_diloco", options);
    nodes_init(&before, 1, NUMEL, BATCH, steps, "decoupled_diloco", options);
    nodes_init(&after, 1, NUMEL, BATCH, 40, "decoupled_diloco", options);
    temp_folder(folder, sizeof folder);
    for (int step = 0; step < 40; step++)
        node_step(&whole, 0);
    for (int step = 0; step < 13; step++)
        node_step(&before, 0);
    nodes_save(&before, folder);
    nodes_load(&after, folder);
    after.each[0].node.step = 13;
    for (int step = 13; step < 40; step++)
        node_step(&after, 0);
    cr_expect_arr_eq(after.each[0].params, whole.each[0].params, NUMEL * sizeof(float));
    temp_remove(folder);
    nodes_release(&whole);
    nodes_release(&before);
    nodes_release(&after);
}

/* After 13 steps a change is under way; the server has merged it already, and must not do so again
 * when it is sent again. */
Test(decoupled, a_checkpoint_has_what_is_under_way)
{
    expect_continues(40);
}

/* The run of 13 steps has not sent the change of step 12, whose answer would come after its end. */
Test(decoupled, a_finished_run_goes_on_with_the_change_that_it_has_not_sent)
{
    expect_continues(13);
}

/* A checkpoint whose nodes come to step 13 one after the other: node 0 has gone on and sent a change
 * when the server's part is written. When it repeats that, the change does not count again, so it
 * gets the same outer parameters. */
Test(decoupled, changes_that_are_sent_again_count_once)
{
    static const char *const options =
        "{H: 6, fragments: 1, delay: 0, optimizer: {name: adamw, lr: 0.05}}";
    char folder[64];
    nodes before, after;
    nodes_init(&before, 2, NUMEL, BATCH, 40, "decoupled_diloco", options);
    nodes_init(&after, 2, NUMEL, BATCH, 40, "decoupled_diloco", options);
    temp_folder(folder, sizeof folder);
    for (uint32_t r = 2; r-- > 0;) {
        for (int step = 0; step < 13; step++)
            node_step(&before, r);
        nodes_save_one(&before, r, folder);
    }
    for (int step = 13; step < 18; step++)
        node_step(&before, 0);
    nodes_save_server(&before, folder);
    nodes_load(&after, folder);
    for (int step = 13; step < 18; step++)
        node_step(&after, 0);
    cr_expect_arr_eq(after.each[0].params, before.each[0].params, NUMEL * sizeof(float));
    temp_remove(folder);
    nodes_release(&before);
    nodes_release(&after);
}
