/* DiLoCo's family: streaming_diloco, sparseloco and eager_diloco against plain implementations and
 * the histories of torchft, and their identities. Each test owns its nodes. Read next:
 * strategies/exchange.h; tests/support/nodes.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/codec.h>

#include "golden/torchft_golden.h"
#include "support/nodes.h"

enum {
    NUMEL = 1003, /* not divisible by the numbers of nodes and fragments below */
    BATCH = 2,
    STEPS = 50,
    NODES = 3
};

/* --- Plain nodes ------------------------------------------------------------------------------ */

/* An optimizer of SGD with Nesterov momentum, as torch.optim has it. */
struct plain_outer {
    float theta[NUMEL], buffer[NUMEL], lr, momentum;
};

static void
outer_step(struct plain_outer *o, size_t j, float gradient)
{
    o->buffer[j] = o->momentum * o->buffer[j] + gradient;
    o->theta[j] -= o->lr * (gradient + o->momentum * o->buffer[j]);
}

static void
outer_init(struct plain_outer *o, float lr, float momentum)
{
    *o = (struct plain_outer){.lr = lr, .momentum = momentum};
    nodes_initial(NUMEL, o->theta);
}

/* The inner step of all nodes: SGD with rate 0.1. */
static void
inner_steps(float theta[][NUMEL], uint64_t t)
{
    static float grads[NUMEL];
    for (uint64_t i = 0; i < NODES; i++) {
        nodes_gradient(NUMEL, theta[i], (t * NODES + i) * BATCH, BATCH, grads);
        for (size_t j = 0; j < NUMEL; j++)
            theta[i][j] -= 0.1f * grads[j];
    }
}

/* The values that the other end decodes. */
static void
through(const char *codec, float *values, size_t count)
{
    exo_codec *c = NULL;
    static uint8_t bytes[8 * NUMEL + 64];
    size_t size = 0;
    cr_assert_eq(exo_codec_parse(&c, codec, NULL), EXO_OK);
    cr_assert_leq(exo_codec_bound(c, count), sizeof bytes);
    cr_assert_eq(exo_codec_encode(c, NULL, values, count, bytes, &size, NULL), EXO_OK);
    cr_assert_eq(exo_codec_decode(c, NULL, bytes, size, values, count, NULL), EXO_OK);
    exo_codec_free(&c);
}

static void
expect_equal(const nodes *n, float theta[][NUMEL], uint64_t step)
{
    for (uint32_t i = 0; i < n->count; i++)
        for (size_t j = 0; j < NUMEL; j++)
            cr_assert_eq(n->each[i].params[j], theta[i][j],
                         "after step %d, node %u, %zu: %.9g, expected %.9g", (int)step, i, j,
                         (double)n->each[i].params[j], (double)theta[i][j]);
}

/* --- Streaming DiLoCo ------------------------------------------------------------------------- */

enum {
    H = 8,
    PARTS = 3, /* which does not divide the 5 units of the nodes, nor H */
    DELAY = 2
};

struct streaming {
    float theta[NODES][NUMEL];
    struct plain_outer outer;
    float mean[NUMEL];   /* of the pseudo-gradients under way */
    uint64_t end[PARTS]; /* the step after which a fragment's mean is applied */
};

/* The parameters of a fragment; returns their number. Fragment p has the units p, p + 3, .... */
static size_t
fragment(size_t part, size_t *out)
{
    size_t count = 0;
    for (size_t unit = part; unit < NODES_UNITS; unit += PARTS) {
        size_t first, length;
        exo_shard(NUMEL, NODES_UNITS, (uint32_t)unit, &first, &length);
        for (size_t j = first; j < first + length; j++)
            out[count++] = j;
    }
    return count;
}

static void
begin_fragment(struct streaming *s, size_t part)
{
    static size_t at[NUMEL];
    static float sent[NUMEL];
    size_t count = fragment(part, at);
    for (uint32_t i = 0; i < NODES; i++) {
        for (size_t k = 0; k < count; k++)
            sent[k] = s->outer.theta[at[k]] - s->theta[i][at[k]];
        through("e3m0", sent, count);
        for (size_t k = 0; k < count; k++)
            s->mean[at[k]] = i == 0 ? sent[k] : s->mean[at[k]] + sent[k];
    }
    for (size_t k = 0; k < count; k++)
        s->mean[at[k]] /= (float)NODES;
}

static void
end_fragment(struct streaming *s, size_t part)
{
    static size_t at[NUMEL];
    size_t count = fragment(part, at);
    for (size_t k = 0; k < count; k++) {
        size_t j = at[k];
        outer_step(&s->outer, j, s->mean[j]);
        for (uint32_t i = 0; i < NODES; i++)
            s->theta[i][j] = s->outer.theta[j] + 0.5f * (s->theta[i][j] - s->outer.theta[j]);
    }
}

Test(outer, streaming_diloco_is_the_papers_algorithm)
{
    static struct streaming s;
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, STEPS, "streaming_diloco",
               "{H: 8, fragments: 3, delay: 2, optimizer: {name: sgd, lr: 0.1}}");
    outer_init(&s.outer, 0.4f, 0.9f);
    for (uint32_t i = 0; i < NODES; i++)
        nodes_initial(NUMEL, s.theta[i]);
    for (uint64_t t = 0; t < STEPS; t++) {
        inner_steps(s.theta, t);
        for (size_t p = 0; p < PARTS; p++) {
            uint64_t shift = (p + 1) * H / PARTS;
            if (t + 1 >= shift && (t + 1 - shift) % H == 0) {
                begin_fragment(&s, p);
                s.end[p] = t + DELAY;
            }
            if (t > 0 && s.end[p] == t)
                end_fragment(&s, p);
        }
        nodes_train(&n, 1);
        expect_equal(&n, s.theta, t);
    }
    nodes_release(&n);
}

/* The gradients of torchft's test are 2 at each step. torchft sends a fragment `delay` steps before
 * the end of its interval, and this project at the end, so that the histories agree if a step
 * without a change comes first for each step of the delay. All replicas are equal there, so one is
 * enough. */
Test(outer, streaming_diloco_has_the_histories_of_torchft)
{
    for (size_t c = 0; c < sizeof torchft_cases / sizeof *torchft_cases; c++) {
        nodes n;
        char options[200];
        const uint64_t delay = (uint64_t)torchft_cases[c].delay;
        snprintf(options, sizeof options,
                 "{H: 6, fragments: 2, delay: %d, alpha: %g, codec: raw, outer_optimizer: {name: "
                 "sgd, lr: 2}, optimizer: {name: sgd, lr: 1}}",
                 (int)delay, (double)torchft_cases[c].alpha);
        nodes_init(&n, 1, 2, 1, 40, "streaming_diloco", options);
        exo_node *node = &n.each[0].node;
        float *theta = n.each[0].params, *grads = n.each[0].grads;
        theta[0] = theta[1] = 1;
        exo_strategy_free(&n.each[0].strategy); /* it has begun with other parameters */
        exo_optim_free(&node->optim);
        cr_assert_eq(exo_strategy_parse(&n.each[0].strategy, "streaming_diloco", options, NULL),
                     EXO_OK);
        cr_assert_eq(exo_strategy_start(n.each[0].strategy, node, NULL), EXO_OK);
        for (uint64_t t = 0; t + 1 < torchft_cases[c].steps + delay; t++, node->step++) {
            grads[0] = grads[1] = t < delay ? 0 : 2;
            cr_assert_eq(exo_strategy_step(n.each[0].strategy, node, NULL), EXO_OK);
            for (size_t j = 0; t >= delay && j < 2; j++)
                cr_expect_eq(theta[j], torchft_cases[c].history[t + 1 - delay][j],
                             "%s: step %d, layer %zu: %g", options, (int)t, j, (double)theta[j]);
        }
        nodes_release(&n);
    }
}

/* --- SparseLoCo ------------------------------------------------------------------------------- */

Test(outer, sparseloco_is_the_papers_algorithm)
{
    static const char *const codec =
        "[{name: topk, k: 64, block: 4096, error_feedback: false}, bins]";
    static float theta[NODES][NUMEL], left[NODES][NUMEL], sent[NUMEL], mean[NUMEL];
    static struct plain_outer outer;
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, STEPS, "sparseloco",
               "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    outer_init(&outer, 1, 0);
    for (uint32_t i = 0; i < NODES; i++)
        nodes_initial(NUMEL, theta[i]);
    for (uint64_t t = 0; t < STEPS; t++) {
        inner_steps(theta, t);
        for (uint32_t i = 0; (t + 1) % 5 == 0 && i < NODES; i++) {
            for (size_t j = 0; j < NUMEL; j++)
                sent[j] = left[i][j] = 0.95f * left[i][j] + (outer.theta[j] - theta[i][j]);
            through(codec, sent, NUMEL);
            size_t zeros = 0;
            for (size_t j = 0; j < NUMEL; j++) {
                zeros += sent[j] == 0;
                left[i][j] -= sent[j];
                mean[j] = i == 0 ? sent[j] : mean[j] + sent[j];
            }
            cr_expect_eq(zeros, NUMEL - 64);
        }
        for (size_t j = 0; (t + 1) % 5 == 0 && j < NUMEL; j++) {
            outer.theta[j] -= mean[j] / (float)NODES;
            for (uint32_t i = 0; i < NODES; i++)
                theta[i][j] = outer.theta[j];
        }
        nodes_train(&n, 1);
        expect_equal(&n, theta, t);
    }
    nodes_release(&n);
}

/* --- Eager DiLoCo ----------------------------------------------------------------------------- */

static void
eager_round(struct plain_outer *outers, float theta[][NUMEL], float last[][NUMEL], bool first)
{
    for (size_t j = 0; j < NUMEL; j++) {
        float mean = last[0][j];
        for (uint32_t i = 1; i < NODES; i++)
            mean += last[i][j];
        mean /= (float)NODES;
        for (uint32_t i = 0; i < NODES; i++) {
            float own = outers[i].theta[j] - theta[i][j];
            float others = mean - last[i][j] / (float)NODES;
            last[i][j] = own;
            outer_step(&outers[i], j, own / (float)NODES + (first ? 0 : others));
            theta[i][j] = outers[i].theta[j];
        }
    }
}

Test(outer, eager_diloco_is_the_papers_algorithm)
{
    static float theta[NODES][NUMEL], last[NODES][NUMEL];
    static struct plain_outer outers[NODES];
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, STEPS, "eager_diloco",
               "{H: 5, optimizer: {name: sgd, lr: 0.1}}");
    for (uint32_t i = 0; i < NODES; i++) {
        nodes_initial(NUMEL, theta[i]);
        outer_init(&outers[i], 0.7f, 0.9f);
    }
    for (uint64_t t = 0; t < STEPS; t++) {
        inner_steps(theta, t);
        if ((t + 1) % 5 == 0)
            eager_round(outers, theta, last, t + 1 == 5);
        nodes_train(&n, 1);
        expect_equal(&n, theta, t);
    }
    /* ten rounds, of which nobody waits for the last one's changes */
    cr_expect_eq(nodes_bytes(&n), 9 * 2 * (NODES - 1) * NUMEL * sizeof(float));
    nodes_release(&n);
}

/* --- The outer momentum ----------------------------------------------------------------------- */

/* The momentum grows from 0 in 20 steps and falls to 0 in 40. */
static float
momentum_at(uint64_t t)
{
    double factor = t < 20 ? (double)t / 20 : 1 - (double)(t - 20) / 40;
    return (float)(0.9 * (double)(float)factor);
}

Test(outer, the_momentum_of_diloco_follows_its_schedule)
{
    static float theta[NODES][NUMEL];
    static struct plain_outer outer;
    nodes n;
    nodes_init(&n, NODES, NUMEL, BATCH, STEPS, "diloco",
               "{H: 5, outer_momentum: {name: linear, warmup_steps: 20, max_steps: 60}, optimizer: "
               "{name: sgd, lr: 0.1}}");
    outer_init(&outer, 0.7f, 0);
    for (uint32_t i = 0; i < NODES; i++)
        nodes_initial(NUMEL, theta[i]);
    for (uint64_t t = 0; t < STEPS; t++) {
        inner_steps(theta, t);
        outer.momentum = momentum_at(t);
        for (size_t j = 0; (t + 1) % 5 == 0 && j < NUMEL; j++) {
            float mean = (theta[0][j] + theta[1][j] + theta[2][j]) / (float)NODES;
            outer_step(&outer, j, outer.theta[j] - mean);
            for (uint32_t i = 0; i < NODES; i++)
                theta[i][j] = outer.theta[j];
        }
        nodes_train(&n, 1);
        expect_equal(&n, theta, t);
    }
    nodes_release(&n);
}

/* --- Identities ------------------------------------------------------------------------------- */

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
    nodes_release(&a);
    nodes_release(&b);
}

#define OUTER "outer_optimizer: {name: sgd, lr: 0.4, momentum: 0.9, nesterov: true}"

Test(outer, without_delay_they_are_diloco)
{
    for (uint32_t count = 1; count <= 4; count++) {
        expect_same(count, "streaming_diloco", "{H: 7, fragments: 1, delay: 0, codec: raw}",
                    "diloco", "{H: 7, " OUTER "}");
        expect_same(count, "eager_diloco", "{H: 7, delay: 0}", "diloco", "H: 7");
    }
    expect_same(1, "eager_diloco", "H: 7", "diloco", "H: 7");
}

Test(outer, a_constant_momentum_is_no_schedule)
{
    expect_same(3, "diloco", "{H: 7, outer_momentum: {name: constant}}", "diloco", "H: 7");
    expect_same(3, "diloco", "{H: 7, outer_momentum: {name: linear, max_steps: 40}}", "compose",
                "exchanges: [{every: 7, apply: {name: outer, momentum: {name: linear, max_steps: "
                "40}}}]");
}

/* Of equal rules that round differently. */
static void
expect_close(const char *a_name, const char *a_options, const char *b_name, const char *b_options)
{
    nodes a, b;
    double largest = 0;
    nodes_init(&a, NODES, NUMEL, BATCH, STEPS, a_name, a_options);
    nodes_init(&b, NODES, NUMEL, BATCH, STEPS, b_name, b_options);
    nodes_train(&a, STEPS);
    nodes_train(&b, STEPS);
    for (uint32_t r = 0; r < NODES; r++)
        for (size_t j = 0; j < NUMEL; j++)
            largest =
                fmax(largest, fabs((double)a.each[r].params[j] - (double)b.each[r].params[j]));
    cr_expect_leq(largest, 5e-6, "%s %s: %g", a_name, a_options, largest);
    nodes_release(&a);
    nodes_release(&b);
}

#define INNER "optimizer: {name: sgd, lr: 0.1}}"

Test(outer, with_every_value_sent_they_are_diloco)
{
    static const char *const all = "{name: topk, ratio: 1, error_feedback: false}";
    char sparse[200], streaming[200];
    snprintf(sparse, sizeof sparse, "{H: 5, codec: %s, " INNER, all);
    snprintf(streaming, sizeof streaming, "{H: 5, fragments: 1, delay: 0, codec: %s, " INNER, all);
    expect_close("sparseloco", sparse, "fedavg", "{H: 5, " INNER);
    expect_close("streaming_diloco", streaming, "diloco", "{H: 5, " OUTER ", " INNER);
    /* all of the local values stay */
    expect_close("streaming_diloco", "{H: 5, fragments: 3, delay: 2, alpha: 1, " INNER, "fedavg",
                 "{H: 1000, " INNER);
}

/* Two fragments with H 6 have a round every 3 steps, in turn. Fragment 0 has the units 0, 2 and 4. A
 * local step later, nodes differ in what the other one has. */
Test(outer, each_fragment_is_averaged_at_its_own_steps)
{
    nodes streaming;
    nodes_init(&streaming, NODES, NUMEL, BATCH, STEPS, "compose",
               "exchanges: [{every: 6, select: {name: fragments, count: 2}}]");
    for (int round = 0; round < 4; round++) {
        nodes_train(&streaming, 3);
        for (uint32_t u = 0; u < NODES_UNITS; u++) {
            size_t first, count, equal = 0;
            exo_shard(NUMEL, NODES_UNITS, u, &first, &count);
            for (size_t j = first; j < first + count; j++)
                equal += streaming.each[0].params[j] == streaming.each[1].params[j];
            cr_expect_eq(equal == count, (int)(u % 2) == round % 2, "round %d, unit %u: %zu of %zu",
                         round, u, equal, count);
        }
    }
    nodes_release(&streaming);
}

/* --- Traffic ---------------------------------------------------------------------------------- */

/* E3M0: half a byte a value and two bytes for each block of 128, and a check of four bytes. */
Test(outer, encoded_bytes_are_the_closed_form)
{
    nodes n;
    uint64_t bytes = 0;
    nodes_init(&n, NODES, NUMEL, BATCH, 16, "streaming_diloco", "{H: 8, fragments: 5, delay: 0}");
    nodes_train(&n, 16);
    for (uint32_t u = 0; u < NODES_UNITS; u++) {
        size_t first, count;
        exo_shard(NUMEL, NODES_UNITS, u, &first, &count);
        bytes += (count + 1) / 2 + 2 * ((count + 127) / 128) + 4;
    }
    cr_expect_eq(nodes_bytes(&n), 2 * NODES * (NODES - 1) * bytes);
    nodes_release(&n);

    /* a round that would end after the run does not begin */
    for (uint64_t steps = 9; steps <= 10; steps++) {
        nodes_init(&n, NODES, NUMEL, BATCH, steps, "streaming_diloco",
                   "{H: 8, fragments: 1, delay: 2}");
        nodes_train(&n, steps);
        cr_expect_eq(nodes_bytes(&n),
                     steps < 10
                         ? 0
                         : NODES * (NODES - 1) * ((NUMEL + 1) / 2 + 2 * ((NUMEL + 127) / 128) + 4));
        nodes_release(&n);
    }

    /* 64 values of 1003: an index of 10 bits, 2 bits, 4 means of 2 bytes, and the check */
    nodes_init(&n, NODES, NUMEL, BATCH, 10, "sparseloco", "{H: 5}");
    nodes_train(&n, 10);
    cr_expect_eq(nodes_bytes(&n), 2 * NODES * (NODES - 1) * (64 * 10 / 8 + 16 + 8 + 4));
    nodes_release(&n);
}
