/* Runs whose nodes have parts of a decoder have the numbers of runs whose nodes have all of it, send
 * what the closed form says, and go on where they were. The tests own their runs. Read next:
 * actors/replica.h; tests/unit/tensor_parallel.c. */
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

#define SGD   "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"
#define ADAMW "optimizer: {name: adamw, lr: 0.01}"

enum {
    STEPS = 5,
    SAMPLES = 6,
    LENGTH = 12,
    WIDTH = 32,
    LAYERS = 2,
    INNER = 48,
    VOCABULARY = 51
};

static void
prepare(struct run *r, uint32_t nodes, uint32_t tensor, const char *more)
{
    char text[256];
    snprintf(text, sizeof text,
             "{layers: %d, width: %d, heads: 4, inner: %d, vocabulary: %d, context: 16%s}", LAYERS,
             WIDTH, INNER, VOCABULARY, more);
    run_init(r, "gpt", text, token_rows_new(200, LENGTH, VOCABULARY),
             token_rows_new(20, LENGTH, VOCABULARY));
    r->opts.num_nodes = nodes;
    r->opts.tensor = tensor;
    r->opts.batch_size = SAMPLES;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 1;
}

/* The bytes that a node sends in a run, the mean over the nodes: sums of all rows after the embedding
 * and twice a block, and as many in backward; two numbers a row of the head; and ddp's mean of the
 * gradients of its part, or that of its parameters in `rounds`. With sequence parallelism, for each minibatch, also the sum of the gradients
 * of norms and biases that all members have. A clipped step adds the squared norm of each part; muon
 * gathers the four matrices of each block. */
static double
closed_form(const struct run *r, const char *options, uint64_t rounds)
{
    const double t = r->opts.tensor, copies = r->opts.num_nodes / r->opts.tensor;
    const double rows = SAMPLES * LENGTH;
    double numel = 0;
    for (uint32_t p = 0; p < r->opts.tensor; p++) {
        exo_model *part = NULL;
        cr_assert_eq(exo_model_part(&part, r->model, p, r->opts.tensor, NULL), EXO_OK);
        numel += (double)exo_model_numel(part) / t;
        exo_model_drop(&part);
    }
    double sums = (4 * LAYERS + 2) * 2 * (t - 1) / t * 4 * rows * WIDTH + 8 * (t - 1) * rows;
    if (r->opts.sequence)
        sums += 2 * (t - 1) / t * 4 * (6 * LAYERS + 2) * WIDTH *
                (double)(r->opts.batch_size / r->opts.minibatch_size);
    if (strstr(options, "max_norm"))
        sums += 8 * (t - 1);
    if (strstr(options, "muon"))
        sums += 4 * (t - 1) / t * LAYERS * WIDTH * (3 * WIDTH + WIDTH + 2 * INNER);
    const double exchanges = rounds > 0 ? (double)rounds : STEPS;
    return STEPS * sums + exchanges * 2 * (copies - 1) / copies * 4 * numel;
}

static void
expect_close(double got, double wanted, const char *what, const struct run *r)
{
    cr_expect_float_eq(got, wanted, 1e-5 * fabs(wanted), "%u nodes, tensor %u: %s %.9g, not %.9g",
                       r->opts.num_nodes, r->opts.tensor, what, got, wanted);
}

static void
compare_as(uint32_t nodes, uint32_t tensor, bool sequence, size_t minibatch, const char *strategy,
           uint64_t rounds, const char *options)
{
    struct run whole, parts;
    prepare(&whole, nodes / tensor, 1, "");
    prepare(&parts, nodes, tensor, "");
    whole.opts.minibatch_size = parts.opts.minibatch_size = minibatch;
    parts.opts.sequence = sequence;
    run_must_fit(&whole, strategy, options);
    run_must_fit(&parts, strategy, options);
    for (int s = 1; s <= STEPS; s++)
        expect_close(parts.loss[s], whole.loss[s], "loss", &parts);
    cr_expect_lt(parts.loss[STEPS], parts.loss[1], "it learns");
    expect_close(parts.result.local_loss, whole.result.local_loss, "local loss", &parts);
    expect_close(parts.result.global_loss, whole.result.global_loss, "global loss", &parts);
    double off =
        numbers_distance(exo_params_values(parts.result.params),
                         exo_params_values(whole.result.params), exo_model_numel(whole.model));
    cr_expect_lt(off, 1e-5, "%u nodes, tensor %u, %s: the model is off by %g", nodes, tensor,
                 options, off);
    double bytes = closed_form(&parts, options, rounds);
    cr_expect_float_eq((double)parts.result.bytes_sent, bytes, 0.5 + 1e-9 * bytes,
                       "%u nodes, tensor %u: %llu bytes, expected %.1f", nodes, tensor,
                       (unsigned long long)parts.result.bytes_sent, bytes);
    cr_expect_float_eq((double)parts.result.traffic.payload_bytes, bytes * nodes, 0.5);
    run_release(&whole);
    run_release(&parts);
}

static void
compare(uint32_t nodes, uint32_t tensor, bool sequence, size_t minibatch, const char *options)
{
    compare_as(nodes, tensor, sequence, minibatch, "ddp", 0, options);
}

Test(tensor_parallel, runs_have_the_numbers_of_whole_models)
{
    static const uint32_t counts[][2] = {{2, 2}, {4, 2}, {4, 4}, {6, 2}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i += one_of(2)) {
        for (int sequence = 0; sequence < 2; sequence++) {
            compare(counts[i][0], counts[i][1], sequence, SAMPLES,
                    "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}");
            compare(counts[i][0], counts[i][1], sequence, 2, "optimizer: {name: sgd, lr: 0.1}");
        }
    }
    for (int sequence = 0; sequence < 2; sequence++)
        compare(4, 2, sequence, SAMPLES, "{bucket_size: 4 kB, optimizer: {name: sgd, lr: 0.1}}");
}

Test(tensor_parallel, means_of_parameters_go_among_the_copies)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        compare_as(4, 2, sequence, SAMPLES, "diloco", 2,
                   "{H: 2, optimizer: {name: sgd, lr: 0.1, momentum: 0.9}}");
        compare_as(6, 2, sequence, 3, "fedavg", 5, "{H: 1, optimizer: {name: sgd, lr: 0.1}}");
    }
}

Test(tensor_parallel, clipping_takes_the_norm_of_all_parts)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        compare(4, 2, sequence, SAMPLES,
                "{max_norm: 0.05, optimizer: {name: sgd, lr: 1, momentum: 0.9}}");
        compare(4, 4, sequence, 3, "{max_norm: 1000, optimizer: {name: sgd, lr: 0.1}}");
    }
    compare_as(4, 2, false, SAMPLES, "diloco", 2,
               "{H: 2, max_norm: 0.05, optimizer: {name: sgd, lr: 1}}");
}

Test(tensor_parallel, muon_steps_whole_matrices)
{
    static const char muon[] = "optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}";
    for (int sequence = 0; sequence < 2; sequence++)
        compare(4, 2, sequence, SAMPLES, muon);
    compare(4, 4, false, 2, muon);
    compare_as(4, 2, false, SAMPLES, "muloco", 2,
               "{H: 2, max_norm: 0.05, optimizer: {name: muon, lr: 0.02, adamw: {eps: 1e-2}}}");
}

/* Copies that shard their parts have the bits of copies that have all of them. */
static void
compare_shards(uint32_t nodes, uint32_t tensor, bool sequence, size_t minibatch,
               const char *sharding, const char *more)
{
    struct run ddp, fsdp;
    char options[256];
    prepare(&ddp, nodes, tensor, "");
    prepare(&fsdp, nodes, tensor, "");
    ddp.opts.minibatch_size = fsdp.opts.minibatch_size = minibatch;
    ddp.opts.sequence = fsdp.opts.sequence = sequence;
    snprintf(options, sizeof options, "{%s}", more);
    run_must_fit(&ddp, "ddp", options);
    snprintf(options, sizeof options, "{%s, %s}", sharding, more);
    run_must_fit(&fsdp, "fsdp", options);
    if (!strstr(more, "max_norm")) /* a norm is the sum of other sums */
        cr_expect_str_eq(fsdp.result.sha256, ddp.result.sha256, "%u nodes, tensor %u: %s", nodes,
                         tensor, options);
    cr_expect_lt(numbers_distance(exo_params_values(fsdp.result.params),
                                  exo_params_values(ddp.result.params), exo_model_numel(ddp.model)),
                 2e-6, "%u nodes, tensor %u: %s", nodes, tensor, options);
    expect_close(fsdp.result.global_loss, ddp.result.global_loss, "global loss", &fsdp);
    if (strstr(sharding, "shard_grad_op") || strstr(sharding, "no_shard"))
        cr_expect_eq(fsdp.result.bytes_sent, ddp.result.bytes_sent, "as much as ddp");
    else
        cr_expect_gt(fsdp.result.bytes_sent, ddp.result.bytes_sent, "units are gathered twice");
    run_release(&ddp);
    run_release(&fsdp);
}

Test(tensor_parallel, copies_may_shard_their_parts)
{
    for (int sequence = 0; sequence < 2; sequence++) {
        compare_shards(4, 2, sequence, SAMPLES, "sharding_strategy: shard_grad_op", SGD);
        compare_shards(4, 2, sequence, 2, "sharding_strategy: full_shard, prefetch: true", ADAMW);
        compare_shards(6, 2, sequence, 3, "sharding_strategy: full_shard", "max_norm: 0.05, " SGD);
    }
}

/* Shards are gathered to slices, and these to matrices. */
Test(tensor_parallel, shards_of_parts_go_with_muon)
{
    static const char muon[] = "optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}";
    compare_shards(6, 2, false, SAMPLES, "sharding_strategy: full_shard", muon);
    compare_shards(4, 2, true, 2, "sharding_strategy: full_shard, prefetch: true", muon);
    compare_shards(4, 2, false, SAMPLES, "sharding_strategy: no_shard", muon);
}

Test(tensor_parallel, a_resumed_run_has_the_bits_of_one_that_was_left_alone)
{
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.autocast = numbers_bf16_runs() ? EXO_AUTOCAST_BF16 : EXO_AUTOCAST_NONE;
    run_expect_resume(&r, "ddp", "optimizer: adamw", 2, &r.opts.tensor);
    run_release(&r);
}

Test(tensor_parallel, what_does_not_go_together_is_named)
{
    static const struct {
        uint32_t nodes, tensor;
        const char *model, *strategy, *options, *reason;
    } cases[] = {
        {4, 3, "", "ddp", "", "tensor 3 does not divide num_nodes 4"},
        {8, 8, "", "ddp", "", "must divide the model's heads"},
        {2, 2, ", dropout: 0.1", "ddp", "", "dropout"},
        {4, 2, "", "fsdp", "{group_size: 2, across: async_diloco}", "async_diloco"},
        {4, 2, "", "fsdp", "{group_size: 1, across: sparta}", "takes some at a time"},
        {4, 2, "", "fsdp", "{group_size: 1, across: {name: sparta_diloco, p: 0.3, H: 2}}",
         "takes some at a time"},
        {4, 2, "", "fsdp",
         "{group_size: 1, across: {name: streaming_diloco, H: 2, fragments: 2, codec: raw}}",
         "takes some at a time"},
        {4, 2, "", "decoupled_diloco", "", "the strategy 'decoupled_diloco'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r;
        prepare(&r, cases[i].nodes, cases[i].tensor, cases[i].model);
        cr_expect_neq(run_fit(&r, cases[i].strategy, cases[i].options), EXO_OK);
        cr_expect_not_null(strstr(r.err.text, cases[i].reason), "case %zu: %s", i, r.err.text);
        run_release(&r);
    }
    struct run r;
    prepare(&r, 2, 1, "");
    r.opts.sequence = true;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_INVAL);
    cr_expect_not_null(strstr(r.err.text, "goes with parallel.tensor"), "%s", r.err.text);
    run_release(&r);
    prepare(&r, 2, 2, "");
    exo_dataset_drop(&r.train);
    exo_trainer_free(&r.trainer);
    r.train = token_rows_new(200, 9, VOCABULARY);
    cr_assert_eq(exo_trainer_new(&r.trainer, r.model, r.train, r.val, &r.err), EXO_OK);
    r.opts.sequence = true;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_INVAL);
    cr_expect_not_null(strstr(r.err.text, "must divide sequences of 9 tokens"), "%s", r.err.text);
    run_release(&r);
    prepare(&r, 2, 2, "");
    r.opts.correlation_interval = 1;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "correlation_interval"), "%s", r.err.text);
    r.opts.correlation_interval = 0;
    r.opts.elastic.min_nodes = 1;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "elastic"), "%s", r.err.text);
    run_release(&r);
}
