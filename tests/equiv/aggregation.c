/* Robust aggregation: each rule against a plain implementation, its identities with the mean, and a
 * run in which one of eight nodes sends wrong values. Each test owns its nodes. Read next:
 * strategies/aggregate.h; tests/support/nodes.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/rng.h>

#include "base/config_edit.h"
#include "support/nodes.h"

enum {
    NUMEL = 203, /* not divisible by the numbers of nodes below, so that shards differ in size */
    BATCH = 2,
    H = 5,
    STEPS = 50,
    FAULTY = 5 /* the node that sends wrong values */
};

/* --- Plain rules ------------------------------------------------------------------------------ */

typedef float vectors[NODES_MAX][NUMEL];
typedef void rule(const vectors theta, const float *before, uint32_t count, float *out);

static int
compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The values of a coordinate that lie between the `trim` smallest and the `trim` largest, added in
 * the order of ranks. The test has no equal values. */
static float
plain_trimmed(const vectors theta, uint32_t count, size_t j, uint32_t trim)
{
    float sorted[NODES_MAX], sum = 0;
    for (uint32_t r = 0; r < count; r++)
        sorted[r] = theta[r][j];
    qsort(sorted, count, sizeof *sorted, compare);
    for (uint32_t r = 0; r < count; r++)
        if (theta[r][j] >= sorted[trim] && theta[r][j] <= sorted[count - 1 - trim])
            sum += theta[r][j];
    return sum / (float)(count - 2 * trim);
}

static void
trim_two(const vectors theta, const float *before, uint32_t count, float *out)
{
    (void)before;
    for (size_t j = 0; j < NUMEL; j++)
        out[j] = plain_trimmed(theta, count, j, 2);
}

static void
median(const vectors theta, const float *before, uint32_t count, float *out)
{
    (void)before;
    for (size_t j = 0; j < NUMEL; j++)
        out[j] = plain_trimmed(theta, count, j, (count - 1) / 2);
}

static double
squared_distance(const float *a, const float *b)
{
    double sum = 0;
    for (size_t j = 0; j < NUMEL; j++)
        sum += ((double)a[j] - (double)b[j]) * ((double)a[j] - (double)b[j]);
    return sum;
}

static int
compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Krum with f = 1. */
static void
best_of(uint32_t m, const vectors theta, uint32_t count, float *out)
{
    double scores[NODES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        double distances[NODES_MAX];
        for (uint32_t j = 0; j < count; j++)
            distances[j] = squared_distance(theta[i], theta[j]);
        qsort(distances, count, sizeof *distances, compare_double);
        for (uint32_t j = 1; j <= count - 1 - 2; j++) /* the first is its own */
            scores[i] += distances[j];
    }
    memset(out, 0, NUMEL * sizeof *out);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t better = 0;
        for (uint32_t j = 0; j < count; j++)
            better += scores[j] < scores[i];
        for (size_t j = 0; better < m && j < NUMEL; j++)
            out[j] += theta[i][j];
    }
    for (size_t j = 0; j < NUMEL; j++)
        out[j] /= (float)m;
}

static void
krum(const vectors theta, const float *before, uint32_t count, float *out)
{
    (void)before;
    best_of(1, theta, count, out);
}

static void
krum_of_three(const vectors theta, const float *before, uint32_t count, float *out)
{
    (void)before;
    best_of(3, theta, count, out);
}

static void
multi_krum(const vectors theta, const float *before, uint32_t count, float *out)
{
    (void)before;
    best_of(count - 3, theta, count, out);
}

static void
clip_to(double limit, const vectors theta, const float *before, uint32_t count, float *out)
{
    double sum[NUMEL] = {0};
    for (uint32_t i = 0; i < count; i++) {
        double norm = sqrt(squared_distance(theta[i], before));
        for (size_t j = 0; j < NUMEL; j++)
            sum[j] += fmin(1, limit / norm) * ((double)theta[i][j] - (double)before[j]);
    }
    for (size_t j = 0; j < NUMEL; j++)
        out[j] = (float)((double)before[j] + sum[j] / count);
}

static void
clip(const vectors theta, const float *before, uint32_t count, float *out)
{
    clip_to(0.9, theta, before, count, out);
}

static void
clip_to_median(const vectors theta, const float *before, uint32_t count, float *out)
{
    double norms[NODES_MAX];
    for (uint32_t i = 0; i < count; i++)
        norms[i] = sqrt(squared_distance(theta[i], before));
    qsort(norms, count, sizeof *norms, compare_double);
    clip_to((norms[(count - 1) / 2] + norms[count / 2]) / 2, theta, before, count, out);
}

static void
expect_rule(uint32_t count, const char *aggregate, rule *plain, double tolerance)
{
    static vectors theta;
    static float before[NUMEL], grads[NUMEL];
    nodes n;
    char options[160];
    snprintf(options, sizeof options, "{H: 5, aggregate: %s, optimizer: {name: sgd, lr: 0.1}}",
             aggregate);
    nodes_init(&n, count, NUMEL, BATCH, STEPS, "local_sgd", options);
    nodes_initial(NUMEL, before);
    for (uint64_t round = 0; round < STEPS / H; round++) {
        for (uint32_t i = 0; i < count; i++) {
            memcpy(theta[i], before, sizeof before);
            for (uint64_t t = round * H; t < (round + 1) * H; t++) {
                nodes_gradient(NUMEL, theta[i], (t * count + i) * BATCH, BATCH, grads);
                for (size_t j = 0; j < NUMEL; j++)
                    theta[i][j] -= 0.1f * grads[j];
            }
        }
        static float after[NUMEL];
        plain((const float(*)[NUMEL])theta, before, count, after);
        memcpy(before, after, sizeof before);
        nodes_train(&n, H);
        for (uint32_t i = 0; i < count; i++)
            for (size_t j = 0; j < NUMEL; j++)
                cr_assert_leq(fabs((double)n.each[i].params[j] - (double)before[j]), tolerance,
                              "%s, round %d, node %u: %.9g, expected %.9g", aggregate, (int)round,
                              i, (double)n.each[i].params[j], (double)before[j]);
    }
    nodes_release(&n);
}

Test(aggregation, each_rule_is_the_plain_one)
{
    expect_rule(5, "{name: trimmed_mean, trim: 2}", trim_two, 0);
    expect_rule(8, "{name: trimmed_mean, trim: 2}", trim_two, 0);
    expect_rule(7, "median", median, 0);
    expect_rule(4, "median", median, 0);
    expect_rule(7, "{name: krum, f: 1, m: 1}", krum, 0);
    expect_rule(7, "{name: krum, f: 1, m: 3}", krum_of_three, 0);
    expect_rule(8, "krum", multi_krum, 0);
    expect_rule(5, "krum", multi_krum, 0);
    expect_rule(8, "{name: norm_clip, max_norm: 0.9}", clip, 1e-5);
    expect_rule(8, "norm_clip", clip_to_median, 1e-5);
    expect_rule(5, "norm_clip", clip_to_median, 1e-5);
}

/* --- Identities ------------------------------------------------------------------------------- */

/* The largest difference of a parameter between two runs. */
static double
difference(uint32_t count, const char *a_name, const char *a_options, const char *b_name,
           const char *b_options)
{
    nodes a, b;
    double largest = 0;
    nodes_init(&a, count, NUMEL, BATCH, 24, a_name, a_options);
    nodes_init(&b, count, NUMEL, BATCH, 24, b_name, b_options);
    nodes_train(&a, 24);
    nodes_train(&b, 24);
    for (uint32_t r = 0; r < count; r++)
        for (size_t j = 0; j < NUMEL; j++)
            largest =
                fmax(largest, fabs((double)a.each[r].params[j] - (double)b.each[r].params[j]));
    nodes_release(&a);
    nodes_release(&b);
    return largest;
}

Test(aggregation, a_rule_that_leaves_nobody_out_is_the_mean)
{
    static const char *const all[] = {"{name: trimmed_mean, trim: 0}", "{name: krum, f: 0, m: 5}"};
    for (size_t i = 0; i < 2; i++) {
        char fedavg[96], diloco[96], compose[128];
        snprintf(fedavg, sizeof fedavg, "{H: 3, aggregate: %s}", all[i]);
        snprintf(diloco, sizeof diloco, "{H: 4, aggregate: %s}", all[i]);
        snprintf(compose, sizeof compose,
                 "exchanges: [{every: 2, delay: 1, select: {name: random, p: 0.3}, aggregate: %s}]",
                 all[i]);
        cr_expect_eq(difference(5, "fedavg", fedavg, "fedavg", "H: 3"), 0);
        cr_expect_eq(difference(5, "diloco", diloco, "diloco", "H: 4"), 0);
        cr_expect_eq(difference(5, "compose", compose, "sparta", "{p: 0.3, interval: 2, delay: 1}"),
                     0);
    }
    cr_expect_eq(difference(2, "diloco", "{H: 3, aggregate: median}", "diloco", "H: 3"), 0);
    cr_expect_eq(difference(1, "diloco", "{H: 3, aggregate: krum}", "diloco", "H: 3"), 0);
    cr_expect_eq(difference(5, "fedavg", "{H: 2, island_size: 2, aggregate: median}", "fedavg",
                            "{H: 2, island_size: 2}"),
                 0);
    cr_expect_leq(difference(4, "diloco", "{H: 3, aggregate: {name: norm_clip, max_norm: 1e6}}",
                             "diloco", "H: 3"),
                  1e-5);
    cr_expect_eq(difference(4, "compose",
                            "exchanges: [{every: 3, partners: pairs, aggregate: median, apply: "
                            "outer}]",
                            "compose", "exchanges: [{every: 3, partners: pairs, apply: outer}]"),
                 0);
    cr_expect_gt(difference(5, "fedavg", "{H: 3, aggregate: median}", "fedavg", "H: 3"), 1e-4);
}

/* --- A node with wrong values ----------------------------------------------------------------- */

/* A strategy whose node FAULTY sends noise, or a multiple of the negative, in place of its values:
 * it changes the parameters between the inner step and the round. Options: fault, strategy. */
struct faulty {
    exo_strategy *strategy;
    size_t fault;
    uint64_t every;
};

enum {
    NOISE,
    NEGATIVE
};

static exo_status
faulty_init(void *self, exo_config *config, exo_err *err)
{
    static const char *const faults[] = {[NOISE] = "noise", [NEGATIVE] = "negative", NULL};
    struct faulty *f = self;
    const char *name = NULL;
    exo_config *map = exo_config_get(config, "strategy");
    exo_status st = exo_config_choice(config, "fault", NOISE, faults, &f->fault, err);
    if (st == EXO_OK)
        st = exo_config_string(map, "name", NULL, &name, err);
    return st == EXO_OK ? exo_strategy_new(&f->strategy, name, map, err) : st;
}

static exo_status
faulty_start(void *self, exo_node *node, exo_err *err)
{
    exo_optim_free(&node->optim);
    return exo_strategy_start(((struct faulty *)self)->strategy, node, err);
}

static exo_status
faulty_step(void *self, exo_node *node, exo_err *err)
{
    const struct faulty *f = self;
    exo_status st = exo_node_inner_step(node, err);
    float *theta = exo_array_host(node->params);
    for (size_t j = 0; node->rank == FAULTY && (node->step + 1) % H == 0 && j < node->numel; j++) {
        exo_rng rng;
        exo_rng_init(&rng, 3, EXO_RNG_USER, (uint32_t)node->step, j);
        theta[j] = f->fault == NOISE ? 200 * exo_rng_uniform(&rng) - 100 : -20 * theta[j];
    }
    node->stepped = true; /* it is not taken twice */
    return st == EXO_OK ? exo_strategy_step(f->strategy, node, err) : st;
}

static void
faulty_release(void *self)
{
    exo_strategy_free(&((struct faulty *)self)->strategy);
}

static const exo_strategy_class faulty = {.name = "faulty",
                                          .state_size = sizeof(struct faulty),
                                          .init = faulty_init,
                                          .start = faulty_start,
                                          .step = faulty_step,
                                          .release = faulty_release};

/* The mean loss of node 0 over samples that no node trains on. */
static double
loss_of(const nodes *n)
{
    double sum = 0;
    for (uint64_t k = 100000; k < 100032; k++) {
        exo_rng rng;
        exo_rng_init(&rng, NODES_SEED, EXO_RNG_USER, 0, k);
        for (size_t j = 0; j < NUMEL; j++) {
            double a = 0.5 + (double)exo_rng_uniform(&rng),
                   b = 4 * (double)exo_rng_uniform(&rng) - 2;
            sum += a * log(cosh((double)n->each[0].params[j] - b)) / 32;
        }
    }
    return sum;
}

static double
loss_with(const char *fault, const char *strategy)
{
    nodes n;
    char options[256];
    if (fault)
        snprintf(options, sizeof options, "{fault: %s, strategy: %s}", fault, strategy);
    else
        snprintf(options, sizeof options, "%s", strategy);
    nodes_init(&n, 8, NUMEL, BATCH, STEPS, fault ? "faulty" : "local_sgd", options);
    nodes_train(&n, STEPS);
    double loss = loss_of(&n);
    nodes_release(&n);
    return isfinite(loss) ? loss : HUGE_VAL;
}

Test(aggregation, one_of_eight_nodes_with_wrong_values_does_no_harm)
{
    static const char *const faults[] = {"noise", "negative"};
    static const char *const bear[] = {"{name: trimmed_mean, trim: 1}", "median", "krum",
                                       "{name: krum, m: 1}"};
    cr_assert_eq(exo_strategy_register(&faulty, NULL), EXO_OK);
    double clean = loss_with(NULL, "{name: local_sgd, H: 5, optimizer: {name: sgd, lr: 0.1}}");
    for (size_t f = 0; f < 2; f++) {
        double mean =
            loss_with(faults[f], "{name: local_sgd, H: 5, optimizer: {name: sgd, lr: 0.1}}");
        cr_expect_gt(mean, 3 * clean, "%s: %g, clean %g", faults[f], mean, clean);
        for (size_t i = 0; i < sizeof bear / sizeof *bear; i++) {
            static const char *const names[] = {"local_sgd", "diloco"};
            for (size_t k = 0; k < 2; k++) {
                char strategy[200];
                snprintf(strategy, sizeof strategy,
                         "{name: %s, H: 5, aggregate: %s, optimizer: {name: sgd, lr: 0.1}}",
                         names[k], bear[i]);
                double loss = loss_with(faults[f], strategy);
                cr_expect_lt(loss, 1.1 * clean, "%s %s: %g, clean %g", faults[f], strategy, loss,
                             clean);
            }
        }
    }
}

/* A change is shortened to the median of the norms, so one node moves the mean by at most an eighth
 * of that. The noise is a change of a norm of about 800. */
Test(aggregation, a_clipped_change_is_small)
{
    cr_assert_eq(exo_strategy_register(&faulty, NULL), EXO_OK);
    double clean = loss_with(NULL, "{name: local_sgd, H: 5, optimizer: {name: sgd, lr: 0.1}}");
    double clipped = loss_with("noise", "{name: local_sgd, H: 5, aggregate: norm_clip, optimizer: "
                                        "{name: sgd, lr: 0.1}}");
    cr_expect_lt(clipped, 1.1 * clean, "%g, clean %g", clipped, clean);
}
