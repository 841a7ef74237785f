/* Runs whose nodes have stages of a decoder have the numbers of runs whose nodes have all of it, send
 * what the closed form says, and go on where they were. The tests own their runs. Read next:
 * actors/replica_pipeline.c; tests/unit/pipeline_parallel.c. */
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
    SAMPLES = 6,
    LENGTH = 12,
    WIDTH = 16,
    LAYERS = 4,
    VOCABULARY = 51
};

static void
prepare(struct run *r, uint32_t nodes, uint32_t stages, const char *more)
{
    char text[256];
    snprintf(text, sizeof text,
             "{layers: %d, width: %d, heads: 2, inner: 24, vocabulary: %d, context: 16%s}", LAYERS,
             WIDTH, VOCABULARY, more);
    run_init(r, "gpt", text, token_rows_new(200, LENGTH, VOCABULARY),
             token_rows_new(10, LENGTH, VOCABULARY));
    r->opts.num_nodes = nodes;
    r->opts.pipeline = stages;
    r->opts.batch_size = SAMPLES;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 1; /* each step is reported */
}

/* The bytes that all nodes send in a run: of each copy the results between stages and their
 * gradients, 2 (P - 1) M x minibatch x tokens x width numbers, and the sum of a tied embedding's
 * gradients; of a clipped step the squared norms of the stages; and ddp's mean of the gradients of each
 * stage, or of their parameters in `rounds`. */
static double
closed_form(const struct run *r, bool tied, bool clips, uint64_t rounds)
{
    const double stages = r->opts.pipeline, copies = r->opts.num_nodes / r->opts.pipeline;
    double numel = tied ? VOCABULARY * WIDTH : 0;
    numel += (double)exo_model_numel(r->model);
    double between = 2 * (stages - 1) * SAMPLES * LENGTH * WIDTH;
    double embedding = tied ? 2.0 * VOCABULARY * WIDTH : 0;
    const double exchanges = rounds > 0 ? (double)rounds : STEPS;
    if (clips)
        between += 2 * stages * (stages - 1);
    return 4 * (STEPS * copies * (between + embedding) + exchanges * 2 * (copies - 1) * numel);
}

static void
expect_close(double got, double wanted, const char *what, const struct run *r)
{
    cr_expect_float_eq(got, wanted, 1e-5 * fabs(wanted), "%u nodes, pipeline %u: %s %.9g, not %.9g",
                       r->opts.num_nodes, r->opts.pipeline, what, got, wanted);
}

struct shape {
    uint32_t nodes, stages;
    size_t minibatch;
};

static void
compare_as(const struct shape *shape, bool tied, const char *model, const char *strategy,
           uint64_t rounds, const char *options)
{
    const bool clips = strstr(options, "max_norm");
    struct run whole, stages;
    char more[128];
    snprintf(more, sizeof more, ", tied: %s%s", tied ? "true" : "false", model);
    prepare(&whole, shape->nodes / shape->stages, 1, more);
    prepare(&stages, shape->nodes, shape->stages, more);
    whole.opts.minibatch_size = stages.opts.minibatch_size = shape->minibatch;
    run_must_fit(&whole, strategy, options);
    run_must_fit(&stages, strategy, options);
    for (int s = 1; s <= STEPS; s++)
        expect_close(stages.loss[s], whole.loss[s], "loss", &stages);
    cr_expect_lt(stages.loss[STEPS], stages.loss[1], "it learns");
    expect_close(stages.result.local_loss, whole.result.local_loss, "local loss", &stages);
    expect_close(stages.result.global_loss, whole.result.global_loss, "global loss", &stages);
    double off =
        numbers_distance(exo_params_values(stages.result.params),
                         exo_params_values(whole.result.params), exo_model_numel(whole.model));
    cr_expect_lt(off, 1e-5, "%u nodes, pipeline %u, %s: the model is off by %g", shape->nodes,
                 shape->stages, options, off);
    if (!tied && !clips) /* no sum has another order */
        cr_expect_str_eq(stages.result.sha256, whole.result.sha256, "%u nodes, pipeline %u, %zu",
                         shape->nodes, shape->stages, shape->minibatch);
    double bytes = closed_form(&stages, tied, clips, rounds);
    cr_expect_float_eq((double)stages.result.traffic.payload_bytes, bytes, 0.5,
                       "%u nodes, pipeline %u: %llu bytes, expected %.0f", shape->nodes,
                       shape->stages, (unsigned long long)stages.result.traffic.payload_bytes,
                       bytes);
    run_release(&whole);
    run_release(&stages);
}

static void
compare(const struct shape *shape, bool tied, const char *model, const char *options)
{
    compare_as(shape, tied, model, "ddp", 0, options);
}

#define SGD "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}"

Test(pipeline_parallel, runs_have_the_numbers_of_whole_models)
{
    /* fewer minibatches than stages, as many, more; 4 layers in 3 stages */
    static const struct shape shapes[] = {{2, 2, 2}, {4, 2, 1}, {3, 3, 6}, {4, 4, 2}, {6, 3, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        compare(&shapes[i], false, "", SGD);
        compare(&shapes[i], true, "", SGD);
    }
}

Test(pipeline_parallel, layers_of_all_kinds_go)
{
    const struct shape shape = {4, 2, 2};
    compare(&shape, true, "", "{bucket_size: 2 kB, " SGD "}");
    compare(&shape, false, ", checkpoint: true", SGD);
    compare(&shape, false, ", position: alibi, embedding_norm: true, values: true", SGD);
    compare(&shape, false, ", position: rotary, norm: rms, gated: true, bias: false", SGD);
}

Test(pipeline_parallel, means_of_parameters_go_among_the_copies)
{
    const struct shape shape = {4, 2, 2}, more = {6, 2, 3};
    for (int tied = 0; tied < 2; tied++) {
        compare_as(&shape, tied, "", "diloco", 2, "{H: 2, " SGD "}");
        compare_as(&more, tied, "", "fedavg", 4, "{H: 1, " SGD "}");
    }
}

Test(pipeline_parallel, clipping_takes_the_norm_of_all_stages)
{
    const struct shape shape = {4, 2, 2}, more = {4, 4, 3};
    for (int tied = 0; tied < 2; tied++) {
        compare(&shape, tied, "", "{max_norm: 0.05, optimizer: {name: sgd, lr: 1, momentum: 0.9}}");
        compare(&more, tied, "", "{max_norm: 1000, optimizer: {name: sgd, lr: 0.1}}");
    }
}

Test(pipeline_parallel, muon_steps_the_matrices_of_a_stage)
{
    const struct shape shape = {4, 2, 2};
    compare(&shape, false, "",
            "optimizer: {name: muon, lr: 0.02, matrices: all, adamw: {lr: 0.01, eps: 1e-2}}");
    compare(&shape, true, "", "optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01, eps: 1e-2}}");
}

Test(pipeline_parallel, a_resumed_run_has_the_bits_of_one_that_was_left_alone)
{
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.minibatch_size = 2;
    run_expect_resume(&r, "ddp", "optimizer: adamw", 2, &r.opts.pipeline);
    run_release(&r);
}

Test(pipeline_parallel, what_does_not_go_together_is_named)
{
    static const struct {
        uint32_t nodes, stages;
        const char *model, *strategy, *options, *reason;
    } cases[] = {
        {4, 3, "", "ddp", "", "pipeline 3 does not divide num_nodes 4"},
        {5, 5, "", "ddp", "", "the model has only 4 layers"},
        {2, 2, ", dropout: 0.1", "ddp", "", "dropout"},
        {4, 2, "", "fsdp", "{group_size: 1, across: sparseloco}",
         "parallel.pipeline does not go with the strategy 'fsdp'"},
        {4, 2, "", "decoupled_diloco", "", "the strategy 'decoupled_diloco'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r;
        prepare(&r, cases[i].nodes, cases[i].stages, cases[i].model);
        cr_expect_neq(run_fit(&r, cases[i].strategy, cases[i].options), EXO_OK);
        cr_expect_not_null(strstr(r.err.text, cases[i].reason), "case %zu: %s", i, r.err.text);
        run_release(&r);
    }
    struct run r;
    prepare(&r, 4, 2, "");
    r.opts.minibatch_size = EXO_MINIBATCH_AUTO;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "microbatches"), "%s", r.err.text);
    r.opts.minibatch_size = 0;
    r.opts.elastic.min_nodes = 1;
    cr_expect_eq(run_fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "elastic"), "%s", r.err.text);
    run_release(&r);
}
