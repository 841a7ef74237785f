/* A strategy whose nodes keep only their shards of units (tests/plugins/sharded.c). Its numbers are
 * those of ddp, to the bit, in training, evaluations, the average, the result and after a resume;
 * and no node has all units at any time. Each test owns its trainer. Read next:
 * include/exogym/units.h, shards.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/points.h"
#include "support/temp.h"
#include "support/token_rows.h"

enum {
    STEPS = 7,
    BATCH = 4,
    BLOCK = 6,
    VOCABULARY = 13,
    SAMPLES = 160,
    EVALUATIONS = 8
};

#define ADAMW                                                                                      \
    "{optimizer: {name: adamw, lr: 0.01, groups: [{max_dims: 1, weight_decay: 0}]}, "              \
    "lr_scheduler: {name: cosine, "                                                                \
    "warmup_steps: 2}}"

/* The same curve for runs of any length. */
#define ADAMW_UNTIL                                                                                \
    "{optimizer: {name: adamw, lr: 0.01}, lr_scheduler: {name: cosine, max_steps: 14}}"

static exo_err err;

/* The figures that a fit reports. */
struct figures {
    exo_fit_result result;
    double local[EVALUATIONS], global[EVALUATIONS];
    float loss[EVALUATIONS];
    size_t count;
};

static void
load_plugin(void)
{
    cr_assert_eq(exo_plugin_load(EXO_TEST_BINARY_DIR "/tests/plugins/sharded.so", &err), EXO_OK,
                 "%s", err.text);
}

TestSuite(sharded, .init = load_plugin, .timeout = 120);

static void
note(void *context, const exo_progress *p)
{
    struct figures *f = context;
    if (!p->evaluated || f->count == EVALUATIONS)
        return;
    f->local[f->count] = p->local_loss;
    f->global[f->count] = p->global_loss;
    f->loss[f->count++] = p->train_loss;
}

static exo_fit_opts
opts_of(uint32_t nodes)
{
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = nodes;
    opts.batch_size = BATCH;
    opts.max_steps = STEPS;
    opts.val_interval = 3;
    opts.val_size = 10;
    opts.save_dir = NULL;
    return opts;
}

static exo_model *
small_gpt(const char *more)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    char text[256];
    snprintf(text, sizeof text, "{vocabulary: %d, context: %d, width: 8, heads: 2, layers: 2%s}",
             VOCABULARY, BLOCK, more);
    cr_assert_eq(exo_config_parse(&doc, "gpt", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

/* Makes a trainer of a decoder, or of the perceptron if `gpt` is NULL. */
static exo_trainer *
trainer_of(exo_model *gpt)
{
    exo_model *model = gpt ? gpt : points_mlp();
    exo_dataset *train =
        gpt ? token_rows_new(SAMPLES, BLOCK, VOCABULARY) : points_new(SAMPLES, 1, SIZE_MAX);
    exo_dataset *val = gpt ? token_rows_new(20, BLOCK, VOCABULARY) : points_new(20, 2, SIZE_MAX);
    exo_trainer *trainer = NULL;
    cr_assert_eq(exo_trainer_new(&trainer, model, train, val, &err), EXO_OK, "%s", err.text);
    exo_model_drop(&model);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
    return trainer;
}

static void
fit(exo_trainer *trainer, const char *strategy, const char *options, const exo_fit_opts *opts,
    struct figures *out)
{
    exo_fit_opts own = *opts;
    *out = (struct figures){0};
    own.progress = note;
    own.context = out;
    err = (exo_err){0};
    cr_assert_eq(exo_trainer_fit_text(trainer, strategy, options, &own, &out->result, &err), EXO_OK,
                 "%s: %s", strategy, err.text);
}

static void
expect_equal(const struct figures *a, const struct figures *b)
{
    cr_expect_str_eq(a->result.sha256, b->result.sha256);
    cr_assert_eq(a->count, b->count);
    cr_expect_gt(a->count, 1);
    for (size_t i = 0; i < a->count; i++) {
        cr_expect_eq(a->local[i], b->local[i], "local loss %zu: %.17g, %.17g", i, a->local[i],
                     b->local[i]);
        cr_expect_eq(a->global[i], b->global[i], "global loss %zu: %.17g, %.17g", i, a->global[i],
                     b->global[i]);
        /* the training loss is NaN before the first step */
        cr_expect(a->loss[i] == b->loss[i] || i == 0, "training loss %zu", i);
    }
}

/* Trains with both strategies and the same options; returns the bytes that a node sends with
 * `sharded`. */
static uint64_t
expect_as_ddp(exo_trainer *trainer, const char *options, const exo_fit_opts *opts)
{
    struct figures ddp, sharded;
    fit(trainer, "ddp", options, opts, &ddp);
    fit(trainer, "sharded", options, opts, &sharded);
    expect_equal(&ddp, &sharded);
    exo_params_free(&ddp.result.params);
    exo_params_free(&sharded.result.params);
    return sharded.result.bytes_sent;
}

/* --- The numbers of ddp ----------------------------------------------------------------------- */

/* The mean bytes that a node sends in all steps, if all nodes together send N - 1 times `elements`
 * in a step. */
static uint64_t
bytes_of(uint32_t nodes, size_t elements)
{
    double all = (double)(nodes - 1) * (double)elements * sizeof(float) * STEPS;
    return (uint64_t)floor(all / nodes + 0.5);
}

Test(sharded, a_perceptron_is_trained_as_by_ddp)
{
    const size_t fc1 = 8 * 16 + 16, fc2 = 16 * 3 + 3;
    for (uint32_t nodes = 1; nodes <= 5; nodes++) {
        exo_trainer *trainer = trainer_of(NULL);
        const exo_fit_opts opts = opts_of(nodes);
        /* fc1 is gathered in forward and in backward; fc2 is still there when backward begins.
         * Evaluations are not counted. */
        cr_expect_eq(expect_as_ddp(trainer, ADAMW, &opts), bytes_of(nodes, 3 * fc1 + 2 * fc2),
                     "%u nodes", nodes);
        exo_trainer_free(&trainer);
    }
}

Test(sharded, optimizers_with_any_state_are_those_of_ddp)
{
    static const char *const options[] = {
        "{optimizer: {name: sgd, lr: 0.1, momentum: 0.9, nesterov: true}}",
        "{optimizer: {name: rmsprop, lr: 0.01, centered: true}}",
        "{optimizer: {name: adagrad, lr: 0.1, initial_accumulator_value: 0.1}}",
    };
    exo_trainer *trainer = trainer_of(NULL);
    const exo_fit_opts opts = opts_of(3);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        expect_as_ddp(trainer, options[i], &opts);
    exo_trainer_free(&trainer);
}

Test(sharded, a_decoder_is_trained_as_by_ddp)
{
    static const char *const kinds[] = {"", ", tied: false, checkpoint: true",
                                        ", frozen: [blocks.0.*]"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t nodes = 2; nodes <= 3; nodes++) {
            exo_trainer *trainer = trainer_of(small_gpt(kinds[i]));
            exo_fit_opts opts = opts_of(nodes);
            opts.minibatch_size = nodes == 2 ? BATCH / 2 : BATCH;
            expect_as_ddp(trainer, ADAMW, &opts);
            exo_trainer_free(&trainer);
        }
}

Test(sharded, threads_do_not_matter)
{
    exo_trainer *trainer = trainer_of(small_gpt(""));
    const exo_fit_opts opts = opts_of(4);
    for (unsigned threads = 1; threads <= 3; threads++) {
        exo_set_num_threads(threads);
        expect_as_ddp(trainer, ADAMW, &opts);
    }
    exo_trainer_free(&trainer);
}

/* --- Checkpoints ------------------------------------------------------------------------------ */

static size_t
checkpoint_bytes(const char *folder, uint32_t rank)
{
    char command[256], line[32] = "";
    snprintf(command, sizeof command,
             "stat -c %%s '%s'/run/checkpoints/step_*/node_%u.safetensors 2>/dev/null | tail -1",
             folder, rank);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    cr_expect_not_null(fgets(line, sizeof line, pipe), "%s gives nothing", command);
    pclose(pipe);
    return (size_t)strtoull(line, NULL, 10);
}

Test(sharded, goes_on_from_a_checkpoint_of_shards)
{
    struct figures whole, first, rest;
    char folder[64];
    exo_trainer *trainer = trainer_of(small_gpt(""));
    exo_fit_opts opts = opts_of(3);
    temp_folder(folder, sizeof folder);
    opts.max_steps = 2 * STEPS;
    fit(trainer, "ddp", ADAMW_UNTIL, &opts, &whole);
    opts.save_dir = folder;
    opts.run_name = "run";
    opts.max_steps = STEPS;
    opts.final_checkpoint = true;
    opts.correlation_interval = 3;
    fit(trainer, "sharded", ADAMW_UNTIL, &opts, &first);
    /* A checkpoint has the parameters and two moments of one node in three. */
    cr_expect_lt(checkpoint_bytes(folder, 1),
                 exo_params_numel(first.result.params) * 3 * sizeof(float) / 2);
    opts.max_steps = 2 * STEPS;
    opts.resume = true;
    fit(trainer, "sharded", ADAMW_UNTIL, &opts, &rest);
    cr_expect_str_eq(rest.result.sha256, whole.result.sha256);
    cr_expect_eq(rest.result.global_loss, whole.result.global_loss);
    exo_params_free(&whole.result.params);
    exo_params_free(&first.result.params);
    exo_params_free(&rest.result.params);
    exo_trainer_free(&trainer);
    temp_remove(folder);
}

/* --- Errors ----------------------------------------------------------------------------------- */

static exo_status
step(void *self, exo_node *node, exo_err *reason)
{
    (void)self;
    return exo_node_inner_step(node, reason);
}

static exo_status
keep(void *self, exo_node *node, size_t unit, exo_err *reason)
{
    (void)self;
    (void)node;
    (void)unit;
    (void)reason;
    return EXO_OK;
}

Test(sharded, a_class_that_keeps_units_must_gather_them)
{
    static const exo_strategy_class half = {.name = "half", .step = step, .keep = keep};
    cr_expect_eq(exo_strategy_register(&half, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "before_use"), "%s", err.text);
}

Test(sharded, an_option_that_it_cannot_have_ends_the_run)
{
    exo_trainer *trainer = trainer_of(NULL);
    const exo_fit_opts opts = opts_of(2);
    exo_fit_result result = {0};
    cr_expect_eq(exo_trainer_fit_text(trainer, "sharded", "{max_norm: 1}", &opts, &result, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "max_norm"), "%s", err.text);
    exo_trainer_free(&trainer);
}
