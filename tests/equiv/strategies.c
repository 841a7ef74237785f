/* Identities between strategies, over N nodes with a synthetic loss. The reference of each identity
 * is the strategy's rule. Each test owns its nodes. Read next: tests/support/nodes.h;
 * docs/strategies.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>

#include "support/nodes.h"
#include "support/sanitized.h"

enum {
    NUMEL = 1003, /* not divisible by the numbers of nodes below, so that shards differ in size */
    NODES = 4,
    BATCH = 3,
    STEPS = 24
};

/* The largest absolute difference of a parameter between node 0 of `a` and node 0 of `b`. */
static float
distance(const nodes *a, const nodes *b)
{
    float largest = 0;
    for (size_t j = 0; j < a->numel; j++) {
        float d = fabsf(a->each[0].params[j] - b->each[0].params[j]);
        largest = d > largest || isnan(d) ? d : largest;
    }
    return largest;
}

static void
expect_nodes_equal(const nodes *n, const char *what)
{
    for (uint32_t r = 1; r < n->count; r++)
        cr_expect_arr_eq(n->each[0].params, n->each[r].params, n->numel * sizeof(float),
                         "%s: node %u", what, r);
}

static void
expect_nodes_differ(const nodes *n, const char *what)
{
    for (uint32_t r = 1; r < n->count; r++)
        cr_expect(memcmp(n->each[0].params, n->each[r].params, n->numel * sizeof(float)) != 0,
                  "%s: node %u", what, r);
}

/* --- Rounds ----------------------------------------------------------------------------------- */

/* EXO Gym counts its first step as 0 and averages after the steps H + 1, 2 H + 1, ...: this is
 * offset 1. */
Test(strategies, rounds_come_after_the_offset)
{
    static const char *const names[] = {"diloco", "fedavg"};
    static const bool meets[][8] = {
        {0, 0, 1, 0, 0, 1, 0, 0}, {0, 0, 0, 1, 0, 0, 1, 0}, {0, 0, 0, 0, 0, 0, 0, 1}};
    static const unsigned offsets[] = {0, 1, 5};
    for (size_t i = 0; i < 2; i++)
        for (size_t o = 0; o < 3; o++) {
            nodes n;
            char options[64];
            snprintf(options, sizeof options, "{H: 3, offset: %u, optimizer: sgd}", offsets[o]);
            nodes_init(&n, NODES, NUMEL, BATCH, STEPS, names[i], options);
            for (unsigned step = 0; step < 8; step++) {
                nodes_train(&n, 1);
                if (meets[o][step])
                    expect_nodes_equal(&n, options);
                else
                    expect_nodes_differ(&n, options);
            }
            nodes_release(&n);
        }
}

/* --- DDP -------------------------------------------------------------------------------------- */

/* The two runs sum gradients in different orders. They differ by a few units in the last place,
 * about 1e-6 of their size. */
Test(strategies, ddp_is_one_node_with_n_times_the_batch)
{
    static const char *const options[] = {
        "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}",
        "{optimizer: {name: adamw, lr: 0.01}, max_norm: 1.0, lr_scheduler: lambda_cosine, "
        "warmup_steps: 5, cosine_anneal: true}",
    };
    for (size_t i = 0; i < 2; i++) {
        nodes many, one;
        nodes_init(&many, NODES, NUMEL, BATCH, STEPS, "ddp", options[i]);
        nodes_init(&one, 1, NUMEL, NODES * BATCH, STEPS, "ddp", options[i]);
        nodes_train(&many, STEPS);
        nodes_train(&one, STEPS);
        expect_nodes_equal(&many, options[i]);
        cr_expect_leq(distance(&many, &one), 2e-6f, "%s: %g", options[i],
                      (double)distance(&many, &one));
        nodes_release(&many);
        nodes_release(&one);
    }
}

Test(strategies, ddp_nodes_stay_equal_and_learn)
{
    nodes n;
    float start[NUMEL], before[NUMEL], after[NUMEL];
    nodes_init(&n, 3, NUMEL, BATCH, STEPS, "ddp", "{}");
    nodes_initial(NUMEL, start);
    nodes_train(&n, STEPS);
    expect_nodes_equal(&n, "ddp");
    nodes_gradient(NUMEL, start, 0, 500, before);
    nodes_gradient(NUMEL, n.each[0].params, 0, 500, after);
    double norm_before = 0, norm_after = 0;
    for (size_t j = 0; j < NUMEL; j++) {
        norm_before += (double)before[j] * (double)before[j];
        norm_after += (double)after[j] * (double)after[j];
    }
    cr_expect_lt(norm_after, norm_before);
    nodes_release(&n);
}

/* --- DiLoCo ----------------------------------------------------------------------------------- */

/* outer - 1 (outer - mean) equals the mean except for the rounding of the difference and of the
 * step: two roundings a round. */
Test(strategies, diloco_with_outer_sgd_of_rate_1_is_fedavg)
{
    nodes diloco, fedavg;
    nodes_init(&diloco, NODES, NUMEL, BATCH, STEPS, "diloco",
               "{H: 4, outer_optimizer: {name: sgd, lr: 1, momentum: 0}, optimizer: {name: sgd, "
               "lr: 0.1}}");
    nodes_init(&fedavg, NODES, NUMEL, BATCH, STEPS, "fedavg",
               "{H: 4, optimizer: {name: sgd, lr: 0.1}}");
    for (int round = 0; round < STEPS / 4; round++) {
        nodes_train(&diloco, 4);
        nodes_train(&fedavg, 4);
        expect_nodes_equal(&diloco, "after a round");
        cr_expect_leq(distance(&diloco, &fedavg), 1e-6f, "%g", (double)distance(&diloco, &fedavg));
    }
    nodes_release(&diloco);
    nodes_release(&fedavg);
}

/* mean(theta - lr g_i) = theta - lr mean(g): the same sum, rounded at different places. */
Test(strategies, diloco_of_one_step_with_inner_sgd_is_ddp)
{
    nodes diloco, ddp;
    nodes_init(&diloco, NODES, NUMEL, BATCH, STEPS, "diloco",
               "{H: 1, outer_optimizer: {name: sgd, lr: 1}, optimizer: {name: sgd, lr: 0.1}}");
    nodes_init(&ddp, NODES, NUMEL, BATCH, STEPS, "ddp", "optimizer: {name: sgd, lr: 0.1}");
    nodes_train(&diloco, STEPS);
    nodes_train(&ddp, STEPS);
    cr_expect_leq(distance(&diloco, &ddp), 2e-6f, "%g", (double)distance(&diloco, &ddp));
    nodes_release(&diloco);
    nodes_release(&ddp);
}

Test(strategies, muloco_with_adamw_is_diloco)
{
    nodes diloco, muloco;
    nodes_init(&diloco, NODES, NUMEL, BATCH, STEPS, "diloco", "{H: 4, optimizer: adamw}");
    nodes_init(&muloco, NODES, NUMEL, BATCH, STEPS, "muloco", "{H: 4, optimizer: adamw}");
    nodes_train(&diloco, STEPS);
    nodes_train(&muloco, STEPS);
    cr_expect_eq(distance(&diloco, &muloco), 0.0f);
    cr_expect_eq(nodes_bytes(&diloco), nodes_bytes(&muloco));
    nodes_release(&diloco);
    nodes_release(&muloco);
}

/* With an outer rate of 0 every round ends where it began. This needs an outer copy that local
 * steps do not change. */
Test(strategies, diloco_keeps_an_outer_copy_of_its_own)
{
    nodes n;
    float start[NUMEL];
    nodes_init(&n, 3, NUMEL, BATCH, STEPS, "diloco", "{H: 3, outer_optimizer: {name: sgd, lr: 0}}");
    nodes_initial(NUMEL, start);
    for (int round = 0; round < 4; round++) {
        nodes_train(&n, 2);
        expect_nodes_differ(&n, "between rounds");
        cr_expect(memcmp(n.each[0].params, start, sizeof start) != 0);
        nodes_train(&n, 1);
        cr_expect_arr_eq(n.each[0].params, start, sizeof start);
        expect_nodes_equal(&n, "after a round");
    }
    nodes_release(&n);
}

/* The paper's algorithm, written plainly: on one thread, over whole buffers, in double. Each
 * coordinate's pseudo-gradient of every round must be nonzero, and the strategy must follow the
 * reference. */
Test(strategies, diloco_is_the_papers_algorithm)
{
    enum {
        H = 5,
        ROUNDS = 5
    };
    static float theta[NODES][NUMEL], grads[NUMEL];
    static double outer[NUMEL], momentum[NUMEL];
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, H * ROUNDS, "diloco",
               "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    for (int i = 0; i < NODES; i++)
        nodes_initial(NUMEL, theta[i]);
    for (size_t j = 0; j < NUMEL; j++)
        outer[j] = (double)theta[0][j];

    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t t = round * H; t < (round + 1) * H; t++) {
            for (uint64_t i = 0; i < NODES; i++) {
                nodes_gradient(NUMEL, theta[i], (t * NODES + i) * BATCH, BATCH, grads);
                for (size_t j = 0; j < NUMEL; j++)
                    theta[i][j] -= 0.1f * grads[j];
            }
        }
        double least = HUGE_VAL, difference = 0;
        for (size_t j = 0; j < NUMEL; j++) {
            double mean = 0;
            for (int i = 0; i < NODES; i++)
                mean += (double)theta[i][j] / NODES;
            double delta = outer[j] - mean;
            least = fmin(least, fabs(delta));
            momentum[j] = round == 0 ? delta : 0.9 * momentum[j] + delta;
            outer[j] -= 0.7 * (delta + 0.9 * momentum[j]);
            for (int i = 0; i < NODES; i++)
                theta[i][j] = (float)outer[j];
        }
        cr_expect_gt(least, 0.0, "no coordinate of a pseudo-gradient is zero");

        nodes_train(&n, H);
        for (size_t j = 0; j < NUMEL; j++)
            difference = fmax(difference, fabs((double)n.each[0].params[j] - outer[j]));
        cr_expect_leq(difference, 3e-6, "round %d: %g", (int)round, difference);
        expect_nodes_equal(&n, "after a round");
    }
    nodes_release(&n);
}

Test(strategies, more_nodes_than_parameters_leave_shards_empty)
{
    nodes n;
    nodes_init(&n, 5, 3, BATCH, STEPS, "diloco", "H: 2");
    nodes_train(&n, 6);
    expect_nodes_equal(&n, "diloco");
    cr_expect_eq(nodes_bytes(&n), 3 * 2 * 4 * 3 * sizeof(float)); /* 3 rounds of 2 (N - 1) Psi */
    nodes_release(&n);
}

/* --- SPARTA ----------------------------------------------------------------------------------- */

/* The same numbers are summed in the same order, so the bits are the same. */
Test(strategies, sparta_of_p_1_is_fedavg_every_step)
{
    static const char *const options[] = {
        "{p: 1, optimizer: {name: adamw, lr: 0.01}}",
        "{p: 1, selector: shuffled_sequential, optimizer: {name: adamw, lr: 0.01}}",
        "{p: 1, selector: partitioned, optimizer: {name: adamw, lr: 0.01}}",
        "{p: 1, interval: 3, optimizer: {name: adamw, lr: 0.01}}",
    };
    for (size_t i = 0; i < 4; i++) {
        nodes sparta, fedavg;
        nodes_init(&sparta, NODES, NUMEL, BATCH, STEPS, "sparta", options[i]);
        nodes_init(&fedavg, NODES, NUMEL, BATCH, STEPS, "fedavg",
                   i < 3 ? "optimizer: {name: adamw, lr: 0.01}"
                         : "{H: 3, optimizer: {name: adamw, lr: 0.01}}");
        nodes_train(&sparta, STEPS);
        nodes_train(&fedavg, STEPS);
        cr_expect_arr_eq(sparta.each[0].params, fedavg.each[0].params, NUMEL * sizeof(float), "%s",
                         options[i]);
        expect_nodes_equal(&sparta, options[i]);
        nodes_release(&sparta);
        nodes_release(&fedavg);
    }
}

Test(strategies, sparta_averages_the_selected_coordinates_and_no_others)
{
    nodes sparta, alone;
    nodes_init(&sparta, NODES, NUMEL, BATCH, STEPS, "sparta",
               "{p: 0.1, optimizer: {name: sgd, lr: 0.1}}");
    nodes_init(&alone, NODES, NUMEL, BATCH, STEPS, "diloco",
               "{H: 1000, optimizer: {name: sgd, lr: 0.1}}");
    nodes_train(&sparta, 1);
    nodes_train(&alone, 1);

    exo_selector *selector = NULL;
    const uint32_t *selected = NULL;
    cr_assert_eq(
        exo_selector_new(&selector, EXO_SELECT_RANDOM, 0.1, NUMEL, sparta.each[0].node.seed, NULL),
        EXO_OK);
    size_t n = exo_selector_round(selector, 0, &selected);
    cr_assert_gt(n, 0);
    for (uint32_t r = 0; r < NODES; r++) {
        size_t next = 0;
        for (size_t j = 0; j < NUMEL; j++) {
            float own = alone.each[r].params[j], mean = 0;
            if (next < n && selected[next] == j) {
                for (int i = 0; i < NODES; i++)
                    mean += alone.each[i].params[j];
                cr_expect_eq(sparta.each[r].params[j], mean / NODES);
                next++;
            } else {
                cr_expect_eq(sparta.each[r].params[j], own);
            }
        }
    }
    exo_selector_free(&selector);
    nodes_release(&sparta);
    nodes_release(&alone);
}

/* theta after step u is the mean of the nodes' parameters after the inner step u - 2. */
Test(strategies, sparta_with_a_delay_applies_the_means_of_that_many_steps_ago)
{
    enum {
        DELAY = 2,
        LENGTH = 6
    };
    static float theta[NODES][NUMEL], kept[LENGTH][NODES][NUMEL], grads[NUMEL];
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, LENGTH, "sparta",
               "{p: 1, delay: 2, optimizer: {name: sgd, lr: 0.1}}");
    for (int i = 0; i < NODES; i++)
        nodes_initial(NUMEL, theta[i]);
    for (uint64_t t = 0; t < LENGTH; t++) {
        for (uint64_t i = 0; i < NODES; i++) {
            nodes_gradient(NUMEL, theta[i], (t * NODES + i) * BATCH, BATCH, grads);
            for (size_t j = 0; j < NUMEL; j++)
                theta[i][j] -= 0.1f * grads[j];
            memcpy(kept[t][i], theta[i], sizeof theta[i]);
        }
        for (size_t j = 0; t >= DELAY && j < NUMEL; j++) {
            float sum = 0;
            for (int i = 0; i < NODES; i++)
                sum += kept[t - DELAY][i][j];
            for (int i = 0; i < NODES; i++)
                theta[i][j] = sum / NODES;
        }
        nodes_train(&n, 1);
        for (int i = 0; i < NODES; i++)
            cr_expect_arr_eq(n.each[i].params, theta[i], sizeof theta[i], "step %d node %d", (int)t,
                             i);
    }
    nodes_release(&n);
}

/* --- Islands ---------------------------------------------------------------------------------- */

/* Checks all islands of a round: every rank is in one island, and all members of an island compute
 * the same island. */
static void
expect_partition(uint32_t num_nodes, uint32_t island_size, uint64_t round)
{
    uint32_t alone = 0, left_over = num_nodes % island_size;
    for (uint32_t rank = 0; rank < num_nodes; rank++) {
        uint32_t island[64], again[64];
        uint32_t count = exo_island(7, round, num_nodes, island_size, rank, island);
        bool inside = false;
        cr_assert(count >= 1 && count <= island_size && count <= num_nodes);
        for (uint32_t i = 0; i < count; i++) {
            cr_assert(island[i] < num_nodes && (i == 0 || island[i - 1] < island[i]));
            inside = inside || island[i] == rank;
            cr_assert_eq(exo_island(7, round, num_nodes, island_size, island[i], again), count);
            cr_assert_arr_eq(again, island, count * sizeof *island);
        }
        cr_assert(inside);
        cr_assert(count == island_size || count == left_over);
        alone += count < island_size;
    }
    cr_assert_eq(alone, left_over, "those left over are in one island");
}

Test(strategies, the_islands_of_a_round_partition_the_nodes)
{
    for (uint64_t round = 0; round < 20; round++) {
        expect_partition(1, 2, round);
        expect_partition(4, 2, round);
        expect_partition(7, 3, round);
        expect_partition(6, 6, round);
        expect_partition(64, 5, round);
    }
}

/* Among 4 nodes in pairs, a node meets each of the 3 others in a third of the rounds. */
Test(strategies, islands_are_shuffled_for_each_round_by_the_seed)
{
    enum {
        ROUNDS = 900
    };
    uint32_t met[4] = {0}, other_seed = 0, pair[4], other[4];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        cr_assert_eq(exo_island(7, round, 4, 2, 1, pair), 2);
        met[pair[0] == 1 ? pair[1] : pair[0]]++;
        exo_island(8, round, 4, 2, 1, other);
        other_seed += memcmp(pair, other, 2 * sizeof *pair) != 0;
    }
    cr_expect_eq(met[1], 0);
    for (uint32_t r = 0; r < 4; r++) /* 5 standard deviations */
        cr_expect(r == 1 || fabs(met[r] - ROUNDS / 3.0) < 5 * sqrt(ROUNDS * 2.0 / 9),
                  "%u met in %u rounds", r, met[r]);
    cr_expect_gt(other_seed, ROUNDS / 2);
}

/* FedAvg in islands, written plainly: after a round a node's theta is the mean over its island,
 * summed in the order of ranks. */
static void
simulate_islands(uint32_t num_nodes, uint32_t island_size, uint64_t interval, uint64_t steps,
                 float theta[][NUMEL])
{
    static float grads[NUMEL], before[NODES_MAX][NUMEL];
    for (uint64_t t = 0; t < steps; t++) {
        for (uint32_t i = 0; i < num_nodes; i++) {
            nodes_gradient(NUMEL, theta[i], (t * num_nodes + i) * BATCH, BATCH, grads);
            for (size_t j = 0; j < NUMEL; j++)
                theta[i][j] -= 0.1f * grads[j];
            memcpy(before[i], theta[i], sizeof before[i]);
        }
        for (uint32_t i = 0; i < num_nodes && (t + 1) % interval == 0; i++) {
            uint32_t island[NODES_MAX];
            uint32_t count =
                exo_island(NODES_SEED, t / interval, num_nodes, island_size, i, island);
            for (size_t j = 0; j < NUMEL; j++) {
                float sum = before[island[0]][j];
                for (uint32_t k = 1; k < count; k++)
                    sum += before[island[k]][j];
                theta[i][j] = sum / (float)count;
            }
        }
    }
}

Test(strategies, fedavg_in_islands_is_the_plain_simulation)
{
    static const struct {
        uint32_t num_nodes, island_size;
        uint64_t interval;
    } cases[] = {{4, 2, 1}, {4, 2, 3}, {7, 3, 2}, {5, 4, 2}, {3, 2, 1}, {8, 8, 2}, {2, 2, 1}};
    static float theta[NODES_MAX][NUMEL];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char options[128];
        nodes n;
        uint32_t num_nodes = cases[c].num_nodes;
        snprintf(options, sizeof options,
                 "{H: %d, island_size: %u, optimizer: {name: sgd, lr: 0.1}}",
                 (int)cases[c].interval, cases[c].island_size);
        nodes_init(&n, num_nodes, NUMEL, BATCH, STEPS, "fedavg", options);
        for (uint32_t i = 0; i < num_nodes; i++)
            nodes_initial(NUMEL, theta[i]);
        simulate_islands(num_nodes, cases[c].island_size, cases[c].interval, STEPS, theta);
        nodes_train(&n, STEPS);
        for (uint32_t i = 0; i < num_nodes; i++)
            cr_expect_arr_eq(n.each[i].params, theta[i], sizeof theta[i], "%u nodes, %s: node %u",
                             num_nodes, options, i);
        nodes_release(&n);
    }
}

Test(strategies, an_island_of_all_nodes_is_fedavg_without_islands)
{
    nodes plain, one;
    nodes_init(&plain, NODES, NUMEL, BATCH, STEPS, "fedavg", "{H: 3}");
    nodes_init(&one, NODES, NUMEL, BATCH, STEPS, "fedavg", "{H: 3, island_size: 4}");
    nodes_train(&plain, STEPS);
    nodes_train(&one, STEPS);
    expect_nodes_equal(&one, "one island");
    cr_expect_arr_eq(plain.each[0].params, one.each[0].params, NUMEL * sizeof(float));
    cr_expect_eq(nodes_bytes(&plain), nodes_bytes(&one));
    nodes_release(&plain);
    nodes_release(&one);
}

/* --- Traffic ---------------------------------------------------------------------------------- */

static uint64_t
bytes_of(uint32_t count, size_t numel, uint64_t steps, const char *name, const char *options)
{
    nodes n;
    nodes_init(&n, count, numel, 1, steps, name, options);
    nodes_train(&n, steps);
    uint64_t bytes = nodes_bytes(&n);
    nodes_release(&n);
    return bytes;
}

Test(strategies, bytes_are_the_closed_forms)
{
    for (uint32_t count = 1; count <= 4; count++) {
        const uint64_t all_reduce = 2 * (count - 1) * NUMEL * sizeof(float); /* of all nodes */
        /* of the islands of two nodes; an odd node is alone and sends nothing */
        const uint64_t pairs = count / 2 * 2 * NUMEL * sizeof(float);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "ddp", "{}"), 7 * all_reduce);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "fedavg", "H: 3"), 2 * all_reduce);
        if (count >= 2)
            cr_expect_eq(bytes_of(count, NUMEL, 7, "fedavg", "{H: 3, island_size: 2}"), 2 * pairs);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "diloco", "H: 3"), 2 * all_reduce,
                     "two whole rounds in seven steps");
        cr_expect_eq(bytes_of(count, NUMEL, 7, "local_sgd", "H: 3"), 2 * all_reduce);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "noloco", "H: 3"), 2 * pairs);
        cr_expect_eq(
            bytes_of(count, NUMEL, 20, "sparta_diloco", "{p: 0.1, selector: partitioned, H: 7}"),
            (2 + 2) * all_reduce);
        cr_expect_eq(bytes_of(count, NUMEL, 6, "compose",
                              "exchanges: [{what: gradients}, {every: 3}, {every: 2, partners: "
                              "pairs, apply: mix}]"),
                     (6 + 2) * all_reduce + 3 * pairs);
        cr_expect_eq(bytes_of(count, NUMEL, 20, "sparta", "{p: 0.1, selector: partitioned}"),
                     2 * all_reduce);
        cr_expect_eq(bytes_of(count, NUMEL, 20, "sparta",
                              "{p: 0.1, selector: shuffled_sequential, interval: 2}"),
                     all_reduce, "ten rounds are a cycle");
    }
}

/* A round of a rule among n nodes: n (n - 1) shards of the longest length, the new shards, and numbers
 * of 8 bytes: krum's distances, norm_clip's norms. */
Test(strategies, bytes_of_robust_rules_are_the_closed_forms)
{
    for (uint64_t n = 3; n <= 7; n++) {
        const uint32_t count = (uint32_t)n;
        const uint64_t shards = 4 * (n * (n - 1) * ((NUMEL + n - 1) / n) + (n - 1) * NUMEL);
        const uint64_t distances = 8 * n * n * (n - 1) * (n - 1) / 2, norms = 8 * n * n * (n - 1);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "diloco", "{H: 3, aggregate: median}"), 2 * shards);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "local_sgd", "{H: 3, aggregate: trimmed_mean}"),
                     2 * shards);
        cr_expect_eq(bytes_of(count, NUMEL, 7, "fedavg", "{H: 2, aggregate: {name: krum, f: 0}}"),
                     3 * (shards + distances));
        cr_expect_eq(bytes_of(count, NUMEL, 7, "muloco", "{H: 7, aggregate: norm_clip}"),
                     shards + norms);
    }
}

/* Rounds in the background send what others do, but for those that would end after the run. */
Test(strategies, bytes_of_rounds_in_the_background_are_the_closed_forms)
{
    for (uint32_t count = 1; count <= 4; count++) {
        const uint64_t all_reduce = 2 * (count - 1) * NUMEL * sizeof(float);
        cr_expect_eq(bytes_of(count, NUMEL, 20, "muloco", "H: 3"), 6 * all_reduce);
        cr_expect_eq(bytes_of(count, NUMEL, 20, "eager_diloco", "H: 3"), 5 * all_reduce,
                     "nobody waits for the last one's changes");
        for (uint64_t steps = 19; steps <= 20; steps++)
            cr_expect_eq(bytes_of(count, NUMEL, steps, "streaming_diloco",
                                  "{H: 6, fragments: 1, codec: raw, delay: 2}"),
                         (steps == 20 ? 3 : 2) * all_reduce);
    }
}

Test(strategies, each_node_sends_its_share)
{
    nodes n;
    nodes_init(&n, NODES, 1000, 1, 6, "diloco", "H: 2");
    nodes_train(&n, 6);
    for (uint32_t r = 0; r < NODES; r++)
        cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent,
                     3 * 2 * 1000 * sizeof(float) * (NODES - 1) / NODES);
    nodes_release(&n);
}

/* 7 nodes in islands of 3 make two islands of 3, and an island of one node, which changes every
 * round. */
Test(strategies, each_node_sends_its_share_of_its_island)
{
    enum {
        ROUNDS = 6,
        SIZE = 600
    };
    nodes n;
    nodes_init(&n, 7, SIZE, 1, ROUNDS, "fedavg", "island_size: 3");
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t before[7];
        for (uint32_t r = 0; r < 7; r++)
            before[r] = exo_group_stats(n.each[r].group).bytes_sent;
        nodes_train(&n, 1);
        for (uint32_t r = 0; r < 7; r++) {
            uint32_t island[7], count = exo_island(NODES_SEED, round, 7, 3, r, island);
            cr_expect_eq(exo_group_stats(n.each[r].group).bytes_sent - before[r],
                         2 * SIZE * sizeof(float) * (count - 1) / count);
        }
    }
    nodes_release(&n);
}

Test(strategies, sparta_sends_what_it_selects)
{
    exo_selector *selector = NULL;
    const uint32_t *selected = NULL;
    uint64_t coordinates = 0;
    cr_assert_eq(exo_selector_new(&selector, EXO_SELECT_RANDOM, 0.05, NUMEL, 11, NULL), EXO_OK);
    for (uint64_t round = 0; round < 10; round++)
        coordinates += exo_selector_round(selector, round, &selected);
    exo_selector_free(&selector);
    cr_expect_eq(bytes_of(NODES, NUMEL, 10, "sparta", "p: 0.05"),
                 2 * (NODES - 1) * coordinates * sizeof(float));
    cr_expect_float_eq((double)coordinates, 0.05 * NUMEL * 10, 5 * sqrt(0.05 * 0.95 * NUMEL * 10),
                       "p Psi on average");
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

Test(strategies, a_run_goes_on_from_any_step_with_the_same_bits)
{
    static const struct {
        const char *name, *options;
    } cases[] = {
        {"ddp",
         "{max_norm: 0.5, lr_scheduler: lambda_cosine, warmup_steps: 3, cosine_anneal: true}"},
        {"diloco", "{H: 3}"},
        {"diloco", "{H: 2, outer_optimizer: {name: adam, lr: 0.05}, optimizer: {name: sgd, "
                   "momentum: 0.9, lr: 0.1}}"},
        {"fedavg", "{H: 2, island_size: 2}"},
        {"islands", "{island_size: 2, across: {name: diloco, H: 2}}"},
        {"islands", "{island_size: 2, across: {name: sparta_diloco, p: 0.2, H: 2}}"},
        {"local_sgd", "{H: 3}"},
        {"local_sgd", "{H: 3, aggregate: norm_clip}"},
        {"diloco", "{H: 3, aggregate: median}"},
        {"muloco", "{H: 2, optimizer: sgd, aggregate: {name: krum, f: 0, m: 2}}"},
        {"noloco", "{H: 2}"},
        {"sparta_diloco", "{p: 0.2, sparta_interval: 2, delay: 1, H: 3}"},
        {"streaming_diloco", "{H: 4, delay: 2}"},
        {"streaming_diloco", "{H: 4, fragments: 2, delay: 3, codec: raw}"},
        {"compose", "{exchanges: [{every: 4, delay: 6, select: {name: fragments, count: 3}}]}"},
        {"compose",
         "{exchanges: [{every: 3, delay: 2, codec: int8, feedback: 0.9, apply: outer}]}"},
        {"sparseloco", "{H: 3}"},
        {"diloco", "{H: 3, outer_momentum: {name: wsd, warmup_steps: 4, decay_steps: 5}}"},
        {"eager_diloco", "{H: 3}"},
        {"compose", "{exchanges: [{what: gradients}, {every: 3, apply: outer}]}"},
        {"compose", "{exchanges: [{every: 3, delay: 2, apply: {name: mix, alpha: 0.3}}, {every: 2, "
                    "select: {name: partitioned, p: 0.2}, apply: mix}, {every: 4, partners: pairs, "
                    "apply: outer}]}"},
        {"demo", "{k: 3, chunk: 8, beta: 0.9}"},
        {"onebit_adam", "{freeze_step: 4, optimizer: {lr: 0.01}}"},
        {"powersgd", "{rank: 2}"},
        {"quantized", "{}"},
        {"quantized", "{error_feedback: true, chunk: 7}"},
        {"islands", "{island_size: 2, inside: powersgd, across: {name: diloco, H: 2}}"},
        {"sparta", "{p: 0.2}"},
        {"sparta", "{p: 0.2, selector: shuffled_sequential}"},
        {"sparta", "{p: 0.2, selector: partitioned, interval: 2}"},
        {"sparta", "{p: 0.2, delay: 3, interval: 2}"},
    };
    enum {
        LENGTH = 12
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        nodes whole;
        nodes_init(&whole, 3, NUMEL, BATCH, LENGTH, cases[c].name, cases[c].options);
        nodes_train(&whole, LENGTH);
        for (uint64_t stop = 1; stop < LENGTH; stop += 2 * one_of(3)) {
            char folder[] = "/tmp/exogym-equiv-XXXXXX", command[64];
            cr_assert_not_null(mkdtemp(folder));
            nodes before, after;
            nodes_init(&before, 3, NUMEL, BATCH, LENGTH, cases[c].name, cases[c].options);
            nodes_train(&before, stop);
            nodes_save(&before, folder);
            nodes_release(&before);

            nodes_init(&after, 3, NUMEL, BATCH, LENGTH, cases[c].name, cases[c].options);
            nodes_load(&after, folder);
            nodes_train(&after, LENGTH - stop);
            for (uint32_t r = 0; r < 3; r++)
                cr_expect_arr_eq(whole.each[r].params, after.each[r].params, NUMEL * sizeof(float),
                                 "%s %s stopped after %d", cases[c].name, cases[c].options,
                                 (int)stop);
            nodes_release(&after);
            snprintf(command, sizeof command, "rm -rf '%s'", folder);
            cr_expect_eq(system(command), 0);
        }
        nodes_release(&whole);
    }
}

/* --- Islands ---------------------------------------------------------------------------------- */

static void
expect_same_bits(const char *what, uint32_t count, const char *a_name, const char *a_options,
                 const char *b_name, const char *b_options)
{
    nodes a, b;
    nodes_init(&a, count, NUMEL, BATCH, STEPS, a_name, a_options);
    nodes_init(&b, count, NUMEL, BATCH, STEPS, b_name, b_options);
    nodes_train(&a, STEPS);
    nodes_train(&b, STEPS);
    for (uint32_t r = 0; r < count; r++)
        cr_expect_arr_eq(a.each[r].params, b.each[r].params, NUMEL * sizeof(float), "%s: node %u",
                         what, r);
    nodes_release(&a);
    nodes_release(&b);
}

/* With islands of one node only the strategy across acts; with one island of all nodes, only the
 * strategy inside. */
Test(strategies, islands_are_each_of_their_parts_at_the_ends)
{
    expect_same_bits("one node an island", 3, "islands",
                     "{island_size: 1, across: {name: diloco, H: 5}}", "diloco", "{H: 5}");
    expect_same_bits("one node an island", 4, "islands",
                     "{island_size: 1, across: {name: sparta, p: 0.2}}", "sparta", "{p: 0.2}");
    expect_same_bits("one island, and no round", 4, "islands",
                     "{island_size: 4, across: {name: diloco, H: 1000}}", "ddp", "{}");
    expect_same_bits(
        "in buckets", 4, "islands",
        "{island_size: 2, inside: {name: ddp, bucket_size: 400 B}, across: {name: diloco, H: 3}}",
        "islands", "{island_size: 2, across: {name: diloco, H: 3}}");
}

/* With plain SGD, averaging the parameters after every step equals a step with the mean
 * gradient. */
Test(strategies, islands_that_meet_at_every_step_are_ddp_of_all)
{
    static const char *const across[] = {
        "{name: fedavg, H: 1}",
        "{name: diloco, H: 1, outer_optimizer: {name: sgd, lr: 1.0, momentum: 0}}"};
    /* size 3 makes an island of 3 nodes and one of 1 */
    for (size_t i = 0; i < 2; i++)
        for (uint32_t size = 1; size <= 3; size++) {
            char options[160];
            nodes islands, all;
            snprintf(options, sizeof options,
                     "{island_size: %u, across: %s, optimizer: {name: sgd, lr: 0.1}}", size,
                     across[i]);
            nodes_init(&islands, NODES, NUMEL, BATCH, STEPS, "islands", options);
            nodes_init(&all, NODES, NUMEL, BATCH, STEPS, "ddp", "optimizer: {name: sgd, lr: 0.1}");
            nodes_train(&islands, STEPS);
            nodes_train(&all, STEPS);
            expect_nodes_equal(&islands, options);
            cr_expect_leq(distance(&islands, &all), 2e-6f, "%s: %g", options,
                          (double)distance(&islands, &all));
            nodes_release(&islands);
            nodes_release(&all);
        }
}

/* Two islands of two nodes with batch B learn as two nodes with batch 2 B. Between two rounds the
 * nodes of an island are equal, and different islands differ. */
Test(strategies, an_island_is_one_node_with_a_larger_batch)
{
    static const char *const across = "{name: diloco, H: 4}";
    char options[128];
    nodes islands, nodes_of_two;
    snprintf(options, sizeof options,
             "{island_size: 2, across: %s, optimizer: {name: sgd, lr: 0.1}}", across);
    nodes_init(&islands, 4, NUMEL, BATCH, STEPS, "islands", options);
    nodes_init(&nodes_of_two, 2, NUMEL, 2 * BATCH, STEPS, "diloco",
               "{H: 4, optimizer: {name: sgd, lr: 0.1}}");
    nodes_train(&islands, STEPS);
    nodes_train(&nodes_of_two, STEPS);
    cr_expect_leq(distance(&islands, &nodes_of_two), 2e-6f, "%g",
                  (double)distance(&islands, &nodes_of_two));
    nodes_release(&nodes_of_two);
    nodes_release(&islands);

    nodes_init(&islands, 4, NUMEL, BATCH, STEPS, "islands", options);
    nodes_train(&islands, 6);
    for (uint32_t first = 0; first < 4; first += 2)
        cr_expect_arr_eq(islands.each[first].params, islands.each[first + 1].params,
                         NUMEL * sizeof(float));
    cr_expect(memcmp(islands.each[0].params, islands.each[2].params, NUMEL * sizeof(float)) != 0);
    nodes_release(&islands);
}

/* The traffic is the all-reduce of each island at every step, and the all-reduce over all nodes at
 * every round. */
Test(strategies, islands_send_what_their_parts_send)
{
    const uint64_t psi = NUMEL * sizeof(float);
    cr_expect_eq(bytes_of(4, NUMEL, 6, "islands", "{island_size: 2, across: {name: diloco, H: 3}}"),
                 6 * 2 * 2 * psi + 2 * 2 * 3 * psi);
    cr_expect_eq(bytes_of(5, NUMEL, 6, "islands", "{island_size: 3, across: {name: fedavg, H: 6}}"),
                 6 * (2 * 2 + 2 * 1) * psi + 2 * 4 * psi, "islands of three and of two");
}
