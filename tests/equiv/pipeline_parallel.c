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
#include "support/temp.h"
#include "support/token_rows.h"

enum {
    STEPS = 4,
    SAMPLES = 6,
    LENGTH = 12,
    WIDTH = 16,
    LAYERS = 4,
    VOCABULARY = 51
};

struct run {
    exo_model *model;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;
    float loss[STEPS + 1]; /* by step */
    const char *strategy;  /* NULL: ddp */
    uint64_t rounds;       /* in which copies exchange parameters; 0: gradients, in each step */
    bool clips;
    exo_err err;
};

static void
note(void *context, const exo_progress *p)
{
    struct run *r = context;
    if (p->step >= 1 && p->step <= STEPS)
        r->loss[p->step] = p->train_loss;
}

static void
run_init(struct run *r, uint32_t nodes, uint32_t stages, const char *more)
{
    char text[256];
    exo_config_doc *doc = NULL;
    *r = (struct run){.train = token_rows_new(200, LENGTH, VOCABULARY),
                      .val = token_rows_new(10, LENGTH, VOCABULARY),
                      .opts = exo_fit_opts_init()};
    snprintf(text, sizeof text,
             "{layers: %d, width: %d, heads: 2, inner: 24, vocabulary: %d, context: 16%s}", LAYERS,
             WIDTH, VOCABULARY, more);
    cr_assert_eq(exo_config_parse(&doc, "model", text, NULL), EXO_OK);
    cr_assert_eq(exo_model_new_named(&r->model, "gpt", exo_config_root(doc), &r->err), EXO_OK, "%s",
                 r->err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_trainer_new(&r->trainer, r->model, r->train, r->val, &r->err), EXO_OK, "%s",
                 r->err.text);
    r->opts.num_nodes = nodes;
    r->opts.pipeline = stages;
    r->opts.batch_size = SAMPLES;
    r->opts.max_steps = STEPS;
    r->opts.val_interval = 1; /* each step is reported */
    r->opts.save_dir = NULL;
    r->opts.progress = note;
    r->opts.context = r;
}

static void
run_release(struct run *r)
{
    exo_params_free(&r->result.params);
    exo_trainer_free(&r->trainer);
    exo_dataset_drop(&r->train);
    exo_dataset_drop(&r->val);
    exo_model_drop(&r->model);
}

static exo_status
fit(struct run *r, const char *strategy, const char *options)
{
    exo_params_free(&r->result.params);
    return exo_trainer_fit_text(r->trainer, strategy, options, &r->opts, &r->result, &r->err);
}

static void
must_fit(struct run *r, const char *options)
{
    exo_status st = fit(r, r->strategy ? r->strategy : "ddp", options);
    cr_assert_eq(st, EXO_OK, "%u nodes, pipeline %u, %s: %s", r->opts.num_nodes, r->opts.pipeline,
                 options, r->err.text);
}

/* The bytes that all nodes send in a run: of each copy the results between stages and their
 * gradients, 2 (P - 1) M x minibatch x tokens x width numbers, and the sum of a tied embedding's
 * gradients; of a clipped step the squared norms of the stages; and ddp's mean of the gradients of each
 * stage. */
static double
closed_form(const struct run *r, bool tied)
{
    const double stages = r->opts.pipeline, copies = r->opts.num_nodes / r->opts.pipeline;
    double numel = tied ? VOCABULARY * WIDTH : 0;
    numel += (double)exo_model_numel(r->model);
    double between = 2 * (stages - 1) * SAMPLES * LENGTH * WIDTH;
    double embedding = tied ? 2.0 * VOCABULARY * WIDTH : 0;
    const double exchanges = r->rounds ? (double)r->rounds : STEPS;
    if (r->clips)
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
    struct run whole, stages;
    char more[128];
    snprintf(more, sizeof more, ", tied: %s%s", tied ? "true" : "false", model);
    run_init(&whole, shape->nodes / shape->stages, 1, more);
    run_init(&stages, shape->nodes, shape->stages, more);
    whole.opts.minibatch_size = stages.opts.minibatch_size = shape->minibatch;
    whole.strategy = stages.strategy = strategy;
    stages.rounds = rounds;
    stages.clips = strstr(options, "max_norm");
    must_fit(&whole, options);
    must_fit(&stages, options);
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
    if (!tied && !stages.clips) /* no sum has another order */
        cr_expect_str_eq(stages.result.sha256, whole.result.sha256, "%u nodes, pipeline %u, %zu",
                         shape->nodes, shape->stages, shape->minibatch);
    double bytes = closed_form(&stages, tied);
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
    compare_as(shape, tied, model, NULL, 0, options);
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
    char folder[64], whole[65];
    temp_folder(folder, sizeof folder);
    run_init(&r, 4, 2, "");
    r.opts.minibatch_size = 2;
    must_fit(&r, "optimizer: adamw");
    memcpy(whole, r.result.sha256, sizeof whole);
    uint64_t bytes = r.result.bytes_sent;
    r.opts.save_dir = folder;
    r.opts.run_name = "run";
    r.opts.max_steps = 2;
    must_fit(&r, "optimizer: adamw");
    r.opts.resume = true;
    r.opts.max_steps = STEPS;
    r.opts.pipeline = 1;
    cr_expect_neq(fit(&r, "ddp", "optimizer: adamw"), EXO_OK, "a checkpoint has its stages");
    r.opts.pipeline = 2;
    must_fit(&r, "optimizer: adamw");
    cr_expect_str_eq(r.result.sha256, whole);
    cr_expect_eq(r.result.bytes_sent, bytes);
    run_release(&r);
    temp_remove(folder);
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
        run_init(&r, cases[i].nodes, cases[i].stages, cases[i].model);
        cr_expect_neq(fit(&r, cases[i].strategy, cases[i].options), EXO_OK);
        cr_expect_not_null(strstr(r.err.text, cases[i].reason), "case %zu: %s", i, r.err.text);
        run_release(&r);
    }
    struct run r;
    run_init(&r, 4, 2, "");
    r.opts.minibatch_size = EXO_MINIBATCH_AUTO;
    cr_expect_eq(fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "microbatches"), "%s", r.err.text);
    r.opts.minibatch_size = 0;
    r.opts.elastic.min_nodes = 1;
    cr_expect_eq(fit(&r, "ddp", ""), EXO_UNSUPPORTED);
    cr_expect_not_null(strstr(r.err.text, "elastic"), "%s", r.err.text);
    run_release(&r);
}
