/* Runs whose nodes have parts of stages of a decoder, with some of the tokens each, have the numbers of
 * runs whose nodes have all of it, send what the closed forms say, and go on where they were. The tests own
 * their runs. Read next: actors/replica_share.c; tests/equiv/pipeline_parallel.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/parallel.h>

#include "support/numbers.h"
#include "support/run.h"
#include "support/sanitized.h"
#include "support/token_rows.h"

enum {
    STEPS = 3,
    SAMPLES = 4,
    LENGTH = 12,
    WIDTH = 16,
    LAYERS = 3,
    HEADS = 4,
    INNER = 24,
    VOCABULARY = 51
};

/* copies x tensor x pipeline x context nodes. */
struct shape {
    uint32_t copies, tensor, pipeline, context;
    bool sequence;
    size_t minibatch;
};

static void
prepare(struct run *r, const struct shape *shape, const char *more)
{
    char text[256];
    snprintf(text, sizeof text,
             "{layers: %d, width: %d, heads: %d, inner: %d, vocabulary: %d, context: 16%s}", LAYERS,
             WIDTH, HEADS, INNER, VOCABULARY, more);
    run_init(r, "gpt", text, token_rows_new(200, LENGTH, VOCABULARY),
             token_rows_new(10, LENGTH, VOCABULARY));
    r->opts.num_nodes = shape->copies * shape->tensor * shape->pipeline * shape->context;
    r->opts.tensor = shape->tensor;
    r->opts.pipeline = shape->pipeline;
    r->opts.context_parallel = shape->context;
    r->opts.sequence = shape->sequence;
    r->opts.batch_size = SAMPLES;
    r->opts.minibatch_size = shape->minibatch;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 1; /* each step is reported */
}

/* The parameters of all parts and stages; blocks: only those of blocks. */
static double
count_parameters(const struct run *r, const struct shape *s, bool blocks)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->tensor * s->pipeline; i++) {
        exo_model *model = NULL;
        const exo_share share = {.part = i % s->tensor,
                                 .parts = s->tensor > 1 ? s->tensor : 0,
                                 .members = s->context > 1 ? s->context : 0,
                                 .stage = i / s->tensor,
                                 .stages = s->pipeline > 1 ? s->pipeline : 0};
        exo_err err = {0};
        cr_assert_eq(exo_model_share(&model, r->model, &share, &err), EXO_OK, "%s", err.text);
        for (size_t u = 0; u < exo_model_num_units(model); u++) {
            const exo_unit_info *unit = &exo_model_units(model)[u];
            sum += !blocks || strstr(unit->name, "block") ? (double)unit->count : 0;
        }
        exo_model_drop(&model);
    }
    return sum;
}

/* The bytes of all nodes of a copy in a step, for R rows: see docs/models.md. Under autocast what goes
 * between cut layers, and keys, values and their gradients, have 2 bytes each; the rest stays fp32. */
static double
closed_form(const struct run *r, const struct shape *s, bool tied, bool clips, bool muon)
{
    const double t = s->tensor, p = s->pipeline, c = s->context, rows = SAMPLES * LENGTH;
    const double minibatches = (double)(SAMPLES / s->minibatch), each = r->opts.autocast ? 2 : 4;
    /* Parts: sums of rows, twice a block, after the embedding and before the head; two numbers a row of
     * the head; by sequence, the gradients of norms and of two biases a block. */
    double bytes = ((4 * LAYERS + 1) * each + 4) * 2 * (t - 1) * rows * WIDTH;
    bytes += 8 * t * (t - 1) * rows;
    if (s->sequence)
        bytes += c * minibatches * 2 * (t - 1) * 4 * (6 * LAYERS + 2) * WIDTH;
    /* Stages: activations and their gradients, which each part has whole; a tied embedding's gradient. */
    bytes += 8 * (p - 1) * rows * WIDTH * (s->sequence ? 1 : t);
    if (tied && p > 1)
        bytes += c * 8 * VOCABULARY * WIDTH;
    /* Tokens: keys and values, and the sums of all gradients and of the loss. */
    bytes += (c - 1) * (each * 6 * LAYERS * rows * WIDTH +
                        8 * minibatches * (count_parameters(r, s, false) + t));
    if (clips)
        bytes += c * 8 * t * p * (t * p - 1);
    if (muon)
        bytes += c * 4 * (t - 1) * LAYERS * WIDTH * (4 * WIDTH + 2 * INNER);
    return bytes;
}

static void
expect_close(double got, double wanted, const char *what, const struct shape *s)
{
    cr_expect_float_eq(got, wanted, 1e-5 * fabs(wanted),
                       "%u x tensor %u%s, pipeline %u, context %u: %s %.9g, not %.9g", s->copies,
                       s->tensor, s->sequence ? " (sequence)" : "", s->pipeline, s->context, what,
                       got, wanted);
}

/* `rounds`: those in which copies take the mean of all parameters; ddp's are the steps. A gather, or a sum that
 * each keeps a shard of, is half a round. */
static void
compare(const struct shape *shape, const char *model, const char *strategy, double rounds,
        const char *options)
{
    struct run whole, shares;
    const struct shape one = {shape->copies, 1, 1, 1, false, shape->minibatch};
    prepare(&whole, &one, model);
    prepare(&shares, shape, model);
    run_must_fit(&whole, strategy, options);
    run_must_fit(&shares, strategy, options);
    for (int s = 1; s <= STEPS; s++)
        expect_close(shares.loss[s], whole.loss[s], "loss", shape);
    cr_expect_lt(shares.loss[STEPS], shares.loss[1], "it learns");
    expect_close(shares.result.local_loss, whole.result.local_loss, "local loss", shape);
    expect_close(shares.result.global_loss, whole.result.global_loss, "global loss", shape);
    double off =
        numbers_distance(exo_params_values(shares.result.params),
                         exo_params_values(whole.result.params), exo_model_numel(whole.model));
    cr_expect_lt(off, 1e-5, "%u x tensor %u, pipeline %u, context %u, %s: the model is off by %g",
                 shape->copies, shape->tensor, shape->pipeline, shape->context, options, off);
    double bytes = STEPS * shape->copies *
                       closed_form(&shares, shape, !strstr(model, "tied: false"),
                                   strstr(options, "max_norm"), strstr(options, "muon")) +
                   8.0 * rounds * shape->context * (shape->copies - 1) *
                       count_parameters(&shares, shape, false);
    if (strcmp(strategy, "fsdp") == 0 && strstr(options, "muon"))
        bytes += 4.0 * STEPS * shape->context * (shape->copies - 1) *
                 count_parameters(&shares, shape, true);
    expect_close((double)shares.result.traffic.payload_bytes, bytes, "bytes", shape);
    cr_expect_float_eq((double)shares.result.traffic.payload_bytes, bytes, 0.5);
    run_release(&whole);
    run_release(&shares);
}

#define SGD "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"

static double
squares_between(exo_params *a, exo_params *b, size_t i)
{
    const float *x = exo_params_at(a, i), *y = exo_params_at(b, i);
    double sum = 0;
    for (size_t e = 0; e < exo_params_info(a, i)->numel; e++)
        sum += pow((double)x[e] - (double)y[e], 2);
    return sum;
}

/* Under autocast the partial results of t parts, and the gradients of foreign keys and values, are rounded
 * to bf16 besides what one node rounds, and fp32 sums in another order let other numbers be rounded up. Each
 * of these errors is one of bf16, 2^-9, as those of one node are, and they do not depend on each other. So
 * each parameter is about as far from one node under bf16 as that one is from fp32: 1.5 to 2.4 times as far
 * where it was measured. */
static void
expect_rounding(struct run *shares, struct run *whole, struct run *exact, const struct shape *s)
{
    exo_params *got = shares->result.params, *wanted = whole->result.params;
    for (size_t i = 0; i < exo_params_count(got); i++) {
        const double rounding = squares_between(wanted, exact->result.params, i);
        const double off = squares_between(got, wanted, i);
        cr_expect_leq(off, 16 * rounding,
                      "%u x tensor %u, pipeline %u, context %u: %s is off by %g, not %g", s->copies,
                      s->tensor, s->pipeline, s->context, exo_params_info(got, i)->name, sqrt(off),
                      sqrt(rounding));
    }
}

static void
compare_in_bf16(const struct shape *shape, const char *model, const char *strategy, int rounds)
{
    struct run exact, whole, shares;
    const struct shape one = {shape->copies, 1, 1, 1, false, shape->minibatch};
    const bool tied = !strstr(model, "tied: false");
    const char *options = strcmp(strategy, "diloco") == 0 ? "{H: 3, " SGD "}"
                          : strcmp(strategy, "fsdp") == 0
                              ? "{sharding_strategy: shard_grad_op, prefetch: true, " SGD "}"
                              : "{" SGD "}";
    char hash[65];
    prepare(&exact, &one, model);
    prepare(&whole, &one, model);
    prepare(&shares, shape, model);
    whole.opts.autocast = shares.opts.autocast = EXO_AUTOCAST_BF16;
    run_must_fit(&exact, strategy, options);
    run_must_fit(&whole, strategy, options);
    run_must_fit(&shares, strategy, options);
    expect_rounding(&shares, &whole, &exact, shape);
    if (shape->tensor * shape->context == 1 && !tied) /* no sum has another order */
        cr_expect_str_eq(shares.result.sha256, whole.result.sha256);
    const double bytes = STEPS * shape->copies * closed_form(&shares, shape, tied, false, false) +
                         8.0 * rounds * shape->context * (shape->copies - 1) *
                             count_parameters(&shares, shape, false);
    cr_expect_float_eq((double)shares.result.traffic.payload_bytes, bytes, 0.5,
                       "%llu bytes, not %.0f",
                       (unsigned long long)shares.result.traffic.payload_bytes, bytes);
    memcpy(hash, shares.result.sha256, sizeof hash);
    run_must_fit(&shares, strategy, options);
    cr_expect_str_eq(shares.result.sha256, hash, "the same bits again");
    run_release(&exact);
    run_release(&whole);
    run_release(&shares);
}

Test(parallel_axes, autocast_rounds_as_on_one_node)
{
    static const struct shape shapes[] = {{1, 2, 1, 1, false, 4},
                                          {1, 1, 2, 1, false, 2},
                                          {1, 1, 1, 3, false, 4},
                                          {1, 4, 1, 1, true, 4},
                                          {2, 2, 2, 2, true, 2}};
    static const char *const models[] = {", position: rotary", ", tied: false"};
    for (size_t i = 0; numbers_bf16_runs() && i < sizeof shapes / sizeof *shapes; i++)
        compare_in_bf16(&shapes[i], models[i % 2], shapes[i].copies > 1 ? "diloco" : "ddp",
                        shapes[i].copies > 1 ? 1 : STEPS);
}

Test(parallel_axes, autocast_goes_with_shards_of_what_nodes_have)
{
    static const struct shape shapes[] = {
        {2, 1, 2, 1, false, 2}, {2, 2, 2, 2, true, 2}, {2, 2, 1, 1, false, 4}};
    for (size_t i = 0; numbers_bf16_runs() && i < sizeof shapes / sizeof *shapes; i += one_of(2))
        compare_in_bf16(&shapes[i], i % 2 ? ", position: rotary" : ", tied: false", "fsdp", STEPS);
}

Test(parallel_axes, parts_of_stages_have_the_numbers_of_whole_models)
{
    /* copies, tensor, pipeline, context, sequence, minibatch */
    static const struct shape shapes[] = {{1, 2, 2, 1, false, 2},
                                          {2, 2, 2, 1, true, 1},
                                          {1, 4, 3, 1, true, 1},
                                          {2, 2, 3, 1, false, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += one_of(2)) {
        compare(&shapes[i], "", "ddp", STEPS, SGD);
        compare(&shapes[i], ", tied: false, position: rotary, norm: layer", "ddp", STEPS, SGD);
    }
}

Test(parallel_axes, some_tokens_of_parts_and_stages_have_the_numbers_of_whole_models)
{
    static const struct shape shapes[] = {{1, 2, 1, 2, false, 4}, {1, 2, 1, 3, true, 2},
                                          {1, 1, 2, 2, false, 2}, {1, 1, 3, 3, false, 1},
                                          {2, 2, 2, 2, true, 2},  {1, 2, 2, 2, false, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += one_of(3))
        compare(&shapes[i], i % 2 ? ", tied: false" : "", "ddp", STEPS, SGD);
}

Test(parallel_axes, clipping_muon_and_means_of_parameters_go_with_them)
{
    static const struct shape parts = {2, 2, 2, 1, false, 2}, all = {2, 2, 2, 2, true, 2};
    static const char clip[] = "{max_norm: 0.05, optimizer: {name: sgd, lr: 1}}";
    static const char muon[] =
        "{max_norm: 1, optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}}";
    compare(&parts, "", "ddp", STEPS, clip);
    compare(&all, "", "ddp", STEPS, clip);
    compare(&parts, "", "ddp", STEPS, muon);
    compare(&all, "", "ddp", STEPS, muon);
    compare(&parts, "", "diloco", 1, "{H: 3, " SGD "}");
    compare(&all, ", tied: false", "fedavg", STEPS, "{H: 1, " SGD "}");
}

/* Copies that shard what their nodes have: the optimizer's state and gradients, and, while no pass runs,
 * parameters. They send what ddp sends. */
Test(parallel_axes, copies_may_shard_their_parts)
{
    static const struct shape shapes[] = {{2, 1, 2, 1, false, 1},
                                          {2, 1, 1, 2, false, 2},
                                          {2, 2, 2, 2, true, 2},
                                          {3, 1, 3, 1, false, 2},
                                          {2, 2, 1, 2, false, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += one_of(2)) {
        compare(&shapes[i], i % 2 ? ", tied: false" : "", "fsdp", STEPS,
                "{sharding_strategy: shard_grad_op, prefetch: true, " SGD "}");
        if (shapes[i].pipeline > 1) /* the units of a stage stay open in a step */
            compare(&shapes[i], "", "fsdp", STEPS, "{sharding_strategy: full_shard, " SGD "}");
    }
}

/* Under full_shard a pass gathers each unit twice: the embedding before it reads rows of it and before the
 * head, which is tied to it. Backward of its rows reads none, also where tokens or parts sum its gradient. */
Test(parallel_axes, copies_may_shard_the_parameters_of_their_parts)
{
    static const struct shape shapes[] = {
        {2, 1, 1, 2, false, 2}, {3, 2, 1, 1, true, 2}, {2, 2, 1, 2, true, SAMPLES}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += one_of(2)) {
        const int passes = (int)(SAMPLES / shapes[i].minibatch);
        compare(&shapes[i], "", "fsdp", STEPS * (2 * passes + 1) / 2.0,
                "{sharding_strategy: full_shard, " SGD "}");
    }
}

/* Muon gathers the units of blocks among the copies, and then the slices of matrices among the parts. */
Test(parallel_axes, muon_goes_with_shards_of_them)
{
    static const char muon[] = "{sharding_strategy: shard_grad_op, "
                               "optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}}";
    static const struct shape shapes[] = {
        {3, 1, 3, 1, false, 2}, {2, 2, 2, 2, true, 2}, {2, 2, 1, 2, false, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += one_of(2))
        compare(&shapes[i], i % 2 ? ", tied: false" : "", "fsdp", STEPS, muon);
}

Test(parallel_axes, a_resumed_run_has_the_bits_of_one_that_was_left_alone)
{
    static const struct shape shapes[] = {{1, 2, 2, 2, true, 2}, {2, 2, 2, 1, true, 2}};
    for (int shards = 0; shards < 2; shards++) {
        struct run r;
        prepare(&r, &shapes[shards], "");
        run_expect_resume(&r, shards ? "fsdp" : "ddp", "optimizer: adamw", 2, NULL);
        run_release(&r);
    }
}
