/* Compositions: every strategy that is a list of exchanges has the bits and the bytes of `compose`
 * with this list, and each piece follows its rule. Each test owns its nodes. Read next:
 * tests/support/nodes.h; docs/strategies.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/nodes.h"

enum {
    NUMEL = 503, /* not divisible by the numbers of nodes below, so that shards differ in size */
    BATCH = 2,
    STEPS = 24
};

static void
expect_same(uint32_t count, const char *a_name, const char *a_options, const char *b_name,
            const char *b_options)
{
    nodes a, b;
    nodes_init(&a, count, NUMEL, BATCH, STEPS, a_name, a_options);
    nodes_init(&b, count, NUMEL, BATCH, STEPS, b_name, b_options);
    nodes_train(&a, STEPS);
    nodes_train(&b, STEPS);
    for (uint32_t r = 0; r < count; r++)
        cr_expect_arr_eq(a.each[r].params, b.each[r].params, NUMEL * sizeof(float),
                         "%s %s, %s %s: node %u of %u", a_name, a_options, b_name, b_options, r,
                         count);
    cr_expect_eq(nodes_bytes(&a), nodes_bytes(&b), "%s %s", a_name, a_options);
    nodes_release(&a);
    nodes_release(&b);
}

static uint32_t
equal_to_first(const nodes *n, size_t coordinate)
{
    uint32_t equal = 0;
    for (uint32_t r = 1; r < n->count; r++)
        equal += n->each[0].params[coordinate] == n->each[r].params[coordinate];
    return equal;
}

/* The coordinates that are the same on all nodes. */
static size_t
shared(const nodes *n)
{
    size_t count = 0;
    for (size_t j = 0; j < n->numel; j++)
        count += equal_to_first(n, j) == n->count - 1;
    return count;
}

/* --- Named strategies and their lists --------------------------------------------------------- */

#define INNER    ", optimizer: {name: adamw, lr: 0.01}}"
#define NESTEROV "{name: outer, optimizer: {name: sgd, lr: 0.7, momentum: 0.9, nesterov: true}}"

Test(compositions, named_strategies_are_lists_of_exchanges)
{
    static const struct {
        const char *name, *options, *list;
    } cases[] = {
        {"ddp", "{max_norm: 1" INNER, "{exchanges: [{what: gradients}], max_norm: 1" INNER},
        {"ddp", "{bucket_size: 400 B" INNER,
         "{exchanges: [{what: gradients, bucket_size: 400 B}]" INNER},
        {"fedavg", "{H: 3" INNER, "{exchanges: [{what: parameters, every: 3}]" INNER},
        {"fedavg", "{H: 3, offset: 2" INNER, "{exchanges: [{every: 3, offset: 2}]" INNER},
        {"fedavg", "{H: 3, offset: 1, island_size: 2" INNER,
         "{exchanges: [{every: 3, offset: 1, partners: {name: islands, island_size: 2}}]" INNER},
        {"fedavg", "{H: 2, island_size: 2" INNER,
         "{exchanges: [{every: 2, partners: pairs}]" INNER},
        {"fedavg", "{H: 4, aggregate: {name: trimmed_mean, trim: 1}" INNER,
         "{exchanges: [{every: 4, aggregate: trimmed_mean}]" INNER},
        {"diloco", "{H: 5, aggregate: {name: krum, f: 0, m: 2}" INNER,
         "{exchanges: [{every: 5, aggregate: {name: krum, f: 0, m: 2}, apply: " NESTEROV
         "}]" INNER},
        {"local_sgd", "{H: 4" INNER, "{exchanges: [{every: 4, apply: mean}]" INNER},
        {"local_sgd", "{optimizer: {name: adamw, lr: 0.01}}", "{exchanges: [{every: 10}]" INNER},
        {"diloco", "{H: 5" INNER, "{exchanges: [{every: 5, apply: outer}]" INNER},
        {"diloco", "{H: 5" INNER, "{exchanges: [{every: 5, apply: " NESTEROV "}]" INNER},
        {"diloco", "{H: 4, offset: 2, outer_optimizer: {name: adam, lr: 0.05}" INNER,
         "{exchanges: [{every: 4, offset: 2, apply: {name: outer, optimizer: {name: adam, lr: "
         "0.05}}}]" INNER},
        {"sparta", "{p: 0.2" INNER, "{exchanges: [{select: {name: random, p: 0.2}}]" INNER},
        {"sparta", "{p: 0.1, selector: partitioned, interval: 2" INNER,
         "{exchanges: [{every: 2, select: {name: partitioned, p: 0.1}}]" INNER},
        {"sparta", "{p: 0.1, selector: shuffled_sequential, interval: 2, delay: 3" INNER,
         "{exchanges: [{every: 2, delay: 3, select: {name: shuffled_sequential, p: 0.1}}]" INNER},
        {"sparta_diloco", "{p: 0.1, sparta_interval: 2, H: 6" INNER,
         "{exchanges: [{every: 2, select: {name: random, p: 0.1}}, {every: 6, apply: " NESTEROV
         "}]" INNER},
        {"noloco", "{H: 5" INNER,
         "{exchanges: [{every: 5, partners: pairs, apply: {name: outer, optimizer: {name: sgd, lr: "
         "0.7, momentum: 0.5}}}]" INNER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t count = 3; count <= 4; count++)
            expect_same(count, cases[i].name, cases[i].options, "compose", cases[i].list);
}

Test(compositions, some_named_strategies_are_others)
{
    for (uint32_t count = 1; count <= 4; count++) {
        expect_same(count, "local_sgd", "{H: 3" INNER, "fedavg", "{H: 3" INNER);
        expect_same(count, "sparta_diloco", "{p: 0, H: 5" INNER, "diloco", "{H: 5" INNER);
        expect_same(count, "sparta_diloco", "{p: 0.2, sparta_interval: 2, H: 1000" INNER, "sparta",
                    "{p: 0.2, interval: 2" INNER);
        expect_same(count, "sparta_diloco", "{p: 0.2, sparta_interval: 1000, H: 5" INNER, "diloco",
                    "{H: 5" INNER);
    }
    expect_same(2, "noloco", "{H: 4, outer_optimizer: {name: sgd, lr: 0.7, momentum: 0.9}" INNER,
                "diloco", "{H: 4, outer_optimizer: {name: sgd, lr: 0.7, momentum: 0.9}" INNER);
    /* of equal nodes, the mean is what each has */
    expect_same(3, "compose",
                "{exchanges: [{every: 4}, {every: 4, select: {name: random, p: 1}}]" INNER,
                "compose",
                "{exchanges: [{every: 4, select: {name: random, p: 1}}, {every: "
                "4}]" INNER);
}

/* The list of a gradient and a parameter exchange is the strategy islands with one node or all
 * nodes in an island: ddp, and then diloco among nodes that are already equal. */
Test(compositions, gradients_come_before_the_step_and_parameters_after_it)
{
    expect_same(4, "compose", "{exchanges: [{what: gradients}, {every: 3, apply: outer}]" INNER,
                "islands", "{island_size: 4, across: {name: diloco, H: 3}" INNER);
}

/* --- Pieces ----------------------------------------------------------------------------------- */

/* Nodes are equal after a mean over all of them. An outer step after it starts from outer
 * parameters that differ, because pairs have taken a step without the mean before. */
Test(compositions, exchanges_run_in_the_order_of_the_list)
{
    nodes last, first;
    nodes_init(&last, 4, NUMEL, BATCH, STEPS, "compose",
               "exchanges: [{partners: pairs, apply: outer}, {every: 2}]");
    nodes_init(&first, 4, NUMEL, BATCH, STEPS, "compose",
               "exchanges: [{every: 2}, {partners: pairs, apply: outer}]");
    nodes_train(&last, 4);
    nodes_train(&first, 4);
    cr_expect_eq(shared(&last), NUMEL);
    cr_expect_lt(shared(&first), NUMEL);
    nodes_release(&last);
    nodes_release(&first);
}

/* Two exchanges of half of the coordinates share about three quarters of them: 8 standard
 * deviations are 78. */
Test(compositions, exchanges_of_one_list_draw_different_coordinates)
{
    nodes n;
    nodes_init(&n, 3, NUMEL, BATCH, STEPS, "compose",
               "exchanges: [{select: {name: random, p: 0.5}}, {select: {name: random, p: 0.5}}]");
    nodes_train(&n, 1);
    cr_expect_float_eq((double)shared(&n), 0.75 * NUMEL, 78, "%zu of %d", shared(&n), NUMEL);
    nodes_release(&n);
}

static void
expect_mix(const char *pieces, float alpha)
{
    nodes mixed, alone;
    char options[200];
    snprintf(options, sizeof options,
             "{exchanges: [{%s, apply: {name: mix, alpha: %g}}], optimizer: {name: sgd, lr: 0.1}}",
             pieces, (double)alpha);
    nodes_init(&mixed, 3, NUMEL, BATCH, STEPS, "compose", options);
    nodes_init(&alone, 3, NUMEL, BATCH, STEPS, "fedavg",
               "{H: 1000, optimizer: {name: sgd, lr: 0.1}}");
    nodes_train(&mixed, 1);
    nodes_train(&alone, 1);
    for (size_t j = 0; j < NUMEL; j++) {
        float sum = alone.each[0].params[j] + alone.each[1].params[j] + alone.each[2].params[j];
        float mean = sum / 3.0f;
        for (uint32_t r = 0; r < 3; r++) {
            float own = alone.each[r].params[j];
            float want = alpha > 0 ? mean + alpha * (own - mean) : mean;
            cr_expect_eq(mixed.each[r].params[j], want, "%s: %.9g, expected %.9g", options,
                         (double)mixed.each[r].params[j], (double)want);
        }
    }
    nodes_release(&mixed);
    nodes_release(&alone);
}

Test(compositions, a_mix_keeps_alpha_of_the_own_values)
{
    expect_mix("every: 1", 0.25f);
    expect_mix("every: 1", 0.0f);
    expect_mix("select: {name: random, p: 1}", 0.75f);
    expect_same(3, "compose", "{exchanges: [{every: 3, apply: {name: mix, alpha: 0}}]" INNER,
                "fedavg", "{H: 3" INNER);
    expect_same(3, "compose",
                "{exchanges: [{every: 2, delay: 1, apply: {name: mix, alpha: 0}}]" INNER, "sparta",
                "{p: 1, interval: 2, delay: 1" INNER);
}

/* --- NoLoCo ----------------------------------------------------------------------------------- */

struct plain {
    float theta[NUMEL];
    double phi[NUMEL], m[NUMEL];
};

/* A round of NoLoCo as its paper has it, with one coefficient eta: of node i with the nodes of
 * `pair`. Returns the smallest pseudo-gradient |theta - phi| of a coordinate. */
static double
plain_round(struct plain *next, const struct plain *all, const uint32_t *pair, uint32_t i)
{
    const double mu = 0.5, eta = 0.7;
    double least = HUGE_VAL;
    for (size_t j = 0; j < NUMEL; j++) {
        const struct plain *a = &all[pair[0]], *b = &all[pair[1]];
        double change =
            ((double)a->theta[j] - a->phi[j]) / 2 + ((double)b->theta[j] - b->phi[j]) / 2;
        double mean_phi = (a->phi[j] + b->phi[j]) / 2;
        least = fmin(least, fabs((double)all[i].theta[j] - all[i].phi[j]));
        next->m[j] = mu * all[i].m[j] + eta * change + eta * (mean_phi - all[i].phi[j]);
        next->phi[j] = all[i].phi[j] + next->m[j];
        next->theta[j] = (float)next->phi[j];
    }
    return least;
}

static void
plain_steps(struct plain *all, uint32_t count, uint64_t from, uint64_t to)
{
    static float grads[NUMEL];
    for (uint64_t t = from; t < to; t++)
        for (uint32_t i = 0; i < count; i++) {
            nodes_gradient(NUMEL, all[i].theta, (t * count + i) * BATCH, BATCH, grads);
            for (size_t j = 0; j < NUMEL; j++)
                all[i].theta[j] -= 0.1f * grads[j];
        }
}

static void
expect_close(const nodes *n, const struct plain *all, uint64_t round)
{
    for (uint32_t i = 0; i < n->count; i++) {
        double difference = 0;
        for (size_t j = 0; j < NUMEL; j++)
            difference =
                fmax(difference, fabs((double)n->each[i].params[j] - (double)all[i].theta[j]));
        cr_expect_leq(difference, 5e-6, "%u nodes, round %d, node %u: %g", n->count, (int)round, i,
                      difference);
    }
}

/* 50 steps. Each round has pseudo-gradients that are not zero. A node without a partner keeps what
 * it has. */
static void
expect_noloco(uint32_t count)
{
    enum {
        H = 5,
        ROUNDS = 10
    };
    static struct plain all[NODES_MAX], next[NODES_MAX];
    uint32_t alone = 0;
    nodes n;
    nodes_init(&n, count, NUMEL, BATCH, H * ROUNDS, "noloco",
               "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < count; i++) {
        nodes_initial(NUMEL, all[i].theta);
        for (size_t j = 0; j < NUMEL; j++)
            all[i].phi[j] = (double)all[i].theta[j];
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        plain_steps(all, count, round * H, (round + 1) * H);
        memcpy(next, all, sizeof next);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t pair[NODES_MAX];
            if (exo_island(NODES_SEED, round, count, 2, i, pair) == 2)
                cr_expect_gt(plain_round(&next[i], all, pair, i), 0.0);
            else
                alone++;
        }
        memcpy(all, next, sizeof all);
        nodes_train(&n, H);
        expect_close(&n, all, round);
    }
    cr_expect_eq(alone, count % 2 * ROUNDS);
    nodes_release(&n);
}

Test(compositions, noloco_is_the_papers_algorithm)
{
    expect_noloco(3);
    expect_noloco(4);
}

/* A pair sends its parameters to each other, half of them as sums: Psi elements a node. The one
 * that is left over sends nothing. */
Test(compositions, a_pair_of_noloco_sends_its_parameters)
{
    enum {
        ROUNDS = 6,
        EVEN = 500
    };
    nodes n;
    nodes_init(&n, 5, EVEN, 1, ROUNDS, "noloco", "H: 1");
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t before[5];
        for (uint32_t r = 0; r < 5; r++)
            before[r] = exo_group_stats(n.each[r].group).bytes_sent;
        nodes_train(&n, 1);
        for (uint32_t r = 0; r < 5; r++) {
            uint32_t pair[5], count = exo_island(NODES_SEED, round, 5, 2, r, pair);
            cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent - before[r],
                         count == 2 ? EVEN * sizeof(float) : 0);
        }
    }
    nodes_release(&n);
}

/* --- SPARTA and DiLoCo ------------------------------------------------------------------------ */

/* Between DiLoCo's rounds, nodes share what SPARTA has averaged last; after one they are equal.
 * With an outer rate of 0 a round of DiLoCo ends where the first began, so its outer parameters are
 * a copy that neither local steps nor SPARTA change. */
Test(compositions, sparta_diloco_averages_a_part_and_then_all)
{
    nodes n;
    float start[NUMEL];
    nodes_init(&n, 3, NUMEL, BATCH, STEPS, "sparta_diloco",
               "{p: 0.25, sparta_interval: 2, H: 3, outer_optimizer: {name: sgd, lr: 0}}");
    nodes_initial(NUMEL, start);
    for (int round = 0; round < 2; round++) {
        nodes_train(&n, 2); /* 2, 5 */
        cr_expect(round == 1 || (shared(&n) > NUMEL / 8 && shared(&n) < NUMEL / 2), "%zu",
                  shared(&n));
        cr_expect(memcmp(n.each[0].params, start, sizeof start) != 0);
        nodes_train(&n, 1);
        cr_expect_eq(shared(&n), NUMEL);
        cr_expect_arr_eq(n.each[0].params, start, sizeof start);
    }
    nodes_release(&n);
}
