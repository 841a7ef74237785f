/* Runs whose nodes have parts of each sequence have the numbers of runs whose nodes have whole sequences,
 * under any strategy, send what the closed form says, and go on where they were. The tests own their runs.
 * Read next: actors/replica.h; tests/unit/context_parallel.c. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/parallel.h>

#include "support/numbers.h"
#include "support/run.h"
#include "support/token_rows.h"

enum {
    STEPS = 4,
    SAMPLES = 4,
    LENGTH = 12,
    WIDTH = 16,
    LAYERS = 2,
    VOCABULARY = 51
};

static void
prepare(struct run *r, uint32_t nodes, uint32_t context, const char *more)
{
    char text[256];
    snprintf(text, sizeof text,
             "{layers: %d, width: %d, heads: 2, inner: 24, vocabulary: %d, context: 16%s}", LAYERS,
             WIDTH, VOCABULARY, more);
    run_init(r, "gpt", text, token_rows_new(200, LENGTH, VOCABULARY),
             token_rows_new(20, LENGTH, VOCABULARY));
    r->opts.num_nodes = nodes;
    r->opts.context_parallel = context;
    r->opts.batch_size = SAMPLES;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 1;
}

/* The bytes that all nodes of a group send in their passes of a run. Each layer's keys and values go to
 * each other node twice, and their gradients once; in each minibatch the gradients of all parameters and
 * the loss are summed. */
static double
closed_form(const struct run *r)
{
    const double others = r->opts.context_parallel - 1;
    const double minibatches = SAMPLES / (double)r->opts.minibatch_size;
    return 4 * STEPS * others *
           (3.0 * LAYERS * SAMPLES * LENGTH * 2 * WIDTH +
            2 * minibatches * ((double)exo_model_numel(r->model) + 1));
}

static void
expect_close(double got, double wanted, const char *what, const struct run *r)
{
    cr_expect_float_eq(got, wanted, 1e-5 * fabs(wanted), "%u nodes, context %u: %s %.9g, not %.9g",
                       r->opts.num_nodes, r->opts.context_parallel, what, got, wanted);
}

static void
compare(uint32_t nodes, uint32_t context, size_t minibatch, const char *strategy,
        const char *options)
{
    struct run whole, parts;
    prepare(&whole, nodes / context, 1, "");
    prepare(&parts, nodes, context, "");
    whole.opts.minibatch_size = parts.opts.minibatch_size = minibatch;
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
    cr_expect_lt(off, 1e-5, "%u nodes, context %u, %s %s: the model is off by %g", nodes, context,
                 strategy, options, off);
    /* what the strategy sends among the nodes with the same tokens, and the passes of each group */
    double bytes = context * (double)whole.result.traffic.payload_bytes +
                   nodes / context * closed_form(&parts);
    cr_expect_float_eq((double)parts.result.traffic.payload_bytes, bytes, 0.5,
                       "%u nodes, context %u, %s: %llu bytes, expected %.1f", nodes, context,
                       strategy, (unsigned long long)parts.result.traffic.payload_bytes, bytes);
    run_release(&whole);
    run_release(&parts);
}

#define SGD "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"

Test(context_parallel, runs_have_the_numbers_of_whole_sequences)
{
    static const uint32_t counts[][2] = {{2, 2}, {3, 3}, {4, 2}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        compare(counts[i][0], counts[i][1], SAMPLES, "ddp", SGD);
        compare(counts[i][0], counts[i][1], 2, "ddp", "{max_norm: 0.5, " SGD "}");
    }
    compare(4, 2, SAMPLES, "ddp", "{bucket_size: 4 kB, " SGD "}");
}

Test(context_parallel, any_strategy_goes_among_the_groups)
{
    compare(4, 2, SAMPLES, "diloco", "{H: 2, " SGD "}");
    compare(6, 3, SAMPLES, "fedavg", "{H: 2, " SGD "}");
    compare(4, 2, SAMPLES, "sparta", "{p: 0.3, " SGD "}");
    compare(4, 2, SAMPLES, "noloco", "{H: 2, " SGD "}");
    compare(4, 2, SAMPLES, "streaming_diloco", "{H: 2, fragments: 2, delay: 1, " SGD "}");
}

Test(context_parallel, a_resumed_run_has_the_bits_of_one_that_was_left_alone)
{
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.autocast = numbers_bf16_runs() ? EXO_AUTOCAST_BF16 : EXO_AUTOCAST_NONE;
    run_expect_resume(&r, "diloco", "{H: 2, optimizer: adamw}", 3, &r.opts.context_parallel);
    run_release(&r);
}

/* The second copy has other sequences than the first. */
static exo_status
make_uneven(void *context, uint32_t rank, uint32_t num_nodes, bool train, exo_dataset **out,
            exo_err *err)
{
    (void)context;
    (void)num_nodes;
    (void)err;
    *out = token_rows_new(40, train && rank == 1 ? LENGTH - 2 : LENGTH, VOCABULARY);
    return EXO_OK;
}

Test(context_parallel, the_data_of_every_node_must_have_sequences_that_can_be_shared)
{
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.factory = (exo_dataset_factory){.make = make_uneven};
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_INVAL);
    cr_expect_not_null(strstr(r.err.text, "twice as many must divide sequences of 10 tokens"), "%s",
                       r.err.text);
    run_release(&r);
}

Test(context_parallel, what_does_not_go_together_is_named)
{
    static const struct {
        uint32_t nodes, context;
        const char *model, *strategy, *reason;
    } cases[] = {
        {4, 3, "", "ddp", "context 3 does not divide num_nodes 4"},
        {4, 4, "", "ddp", "twice as many must divide sequences of 12 tokens"},
        {2, 2, ", dropout: 0.1", "ddp", "dropout"},
        {2, 2, ", position: alibi", "ddp", "alibi"},
        {4, 2, "", "async_diloco", "the strategy 'async_diloco'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r;
        prepare(&r, cases[i].nodes, cases[i].context, cases[i].model);
        cr_expect_neq(run_fit(&r, cases[i].strategy, ""), EXO_OK);
        cr_expect_not_null(strstr(r.err.text, cases[i].reason), "case %zu: %s", i, r.err.text);
        run_release(&r);
    }
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.elastic.min_nodes = 1;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "elastic"), "%s", r.err.text);
    run_release(&r);
}
