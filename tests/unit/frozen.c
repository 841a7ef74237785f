/* Frozen parameters: no strategy changes or sends them, checkpoints keep them, and the other
 * parameters learn as with a learning rate of 0 for these. The tests own their runs. Read next:
 * exogym/model.h, exogym/trainer.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/numbers.h"
#include "support/points.h"
#include "support/run.h"

/* POINTS_DIM, POINTS_CLASSES and further options */
#define MLP "{in: %d, out: %d, hidden: [16, 12]%s}"

static exo_status
mlp(const char *options, exo_model **out, exo_err *err)
{
    char text[256];
    exo_config_doc *doc = NULL;
    snprintf(text, sizeof text, MLP, POINTS_DIM, POINTS_CLASSES, options);
    exo_status st = exo_config_parse(&doc, "job.yaml", text, err);
    if (st == EXO_OK)
        st = exo_model_new_named(out, "mlp", exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

static exo_model *
mlp_must(const char *options)
{
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(mlp(options, &model, &err), EXO_OK, "%s", err.text);
    return model;
}

static size_t
frozen_count(const exo_model *model)
{
    size_t count = 0;
    for (size_t i = 0; i < exo_model_num_infos(model); i++)
        count += exo_model_infos(model)[i].frozen;
    return count;
}

/* The first layer has 8 x 16 weights and 16 biases. */
#define FIRST ", frozen: [fc1.*]"
enum {
    FIRST_NUMEL = 8 * 16 + 16
};

Test(frozen, what_matches_is_no_parameter_of_the_flat_buffer)
{
    exo_model *all = mlp_must(""), *rest = mlp_must(FIRST), *one = mlp_must(", frozen: fc2.bias");
    cr_expect_eq(frozen_count(all), 0);
    cr_expect_eq(frozen_count(rest), 2);
    cr_expect_eq(frozen_count(one), 1);
    cr_expect_eq(exo_model_numel(rest) + FIRST_NUMEL, exo_model_numel(all));
    cr_expect_eq(exo_model_buffer_numel(rest), FIRST_NUMEL);

    exo_params *a = NULL, *b = NULL;
    cr_assert_eq(exo_model_params(all, 7, &a, NULL), EXO_OK);
    cr_assert_eq(exo_model_params(rest, 7, &b, NULL), EXO_OK);
    cr_expect_eq(exo_params_frozen_numel(b), FIRST_NUMEL);
    for (size_t i = 0; i < exo_params_count(a); i++)
        cr_expect_arr_eq(exo_params_at(a, i), exo_params_at(b, i),
                         exo_params_info(a, i)->numel * sizeof(float),
                         "%s begins as it does without freezing", exo_params_info(a, i)->name);
    exo_params_free(&a);
    exo_params_free(&b);
    exo_model_drop(&all);
    exo_model_drop(&rest);
    exo_model_drop(&one);
}

Test(frozen, mistakes_are_named_with_their_place)
{
    static const struct {
        const char *options, *reason;
    } cases[] = {
        {", frozen: fc9.*", "fc9.*"},
        {", frozen: [fc1.weight, fc9.*]", "job.yaml:1:56"},
        {", frozen: ['*']", "all of the model's parameters"},
        {", frozen: [[fc1.weight]]", "a pattern"},
        {", frozen: {a: b}", "frozen"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *model = NULL;
        exo_err err = {0};
        cr_expect_eq(mlp(cases[i].options, &model, &err), EXO_INVAL, "%s", cases[i].options);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "'%s' gave '%s'", cases[i].options,
                           err.text);
        cr_expect_not_null(strstr(err.text, "job.yaml:1:"), "%s", err.text);
    }
}

/* --- Training --------------------------------------------------------------------------------- */

static void
prepare(struct run *r, const char *options, uint32_t nodes)
{
    char text[128];
    snprintf(text, sizeof text, MLP, POINTS_DIM, POINTS_CLASSES, options);
    run_init(r, "mlp", text, points_new(200, 1, SIZE_MAX), points_new(64, 2, SIZE_MAX));
    r->opts.num_nodes = nodes;
    r->opts.batch_size = 4;
    r->opts.max_steps = 6;
    r->opts.val_interval = 3;
}

static const struct {
    const char *name, *options;
} strategies[] = {
    {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
    {"ddp", "{max_norm: 0.5, optimizer: {name: sgd, lr: 0.1, weight_decay: 0.1}}"},
    {"fsdp", "{sharding_strategy: full_shard}"},
    {"diloco", "{H: 2, optimizer: {name: adamw, lr: 0.01}}"},
    {"fedavg", "{H: 2}"},
    {"muloco", "{H: 2}"},
    {"sparta", "{p: 0.3}"},
    {"sparta_diloco", "{p: 0.3, H: 2}"},
    {"streaming_diloco", "{H: 2, fragments: 2, delay: 1}"},
    {"sparseloco", "{H: 2}"},
    {"eager_diloco", "{H: 2}"},
    {"noloco", "{H: 2}"},
    {"demo", "{k: 4, chunk: 16, weight_decay: 0.1}"},
    {"onebit_adam", "{freeze_step: 2}"},
    {"powersgd", "{rank: 2}"},
    {"quantized", "{chunk: 16}"},
};

/* The sum of seven equal numbers, divided by seven, is not always that number. So no strategy may
 * average frozen parameters. */
Test(frozen, stays_as_it_begins_under_every_strategy)
{
    static const uint32_t counts[] = {1, 3, 7};
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            struct run r;
            exo_params *initial = NULL;
            prepare(&r, FIRST, counts[c]);
            run_must_fit(&r, strategies[s].name, strategies[s].options);
            cr_assert_eq(exo_model_params(r.model, r.opts.seed, &initial, NULL), EXO_OK);
            for (size_t i = 0; i < exo_params_count(initial); i++) {
                const exo_param_info *info = exo_params_info(initial, i);
                bool same = memcmp(exo_params_at(initial, i), exo_params_at(r.result.params, i),
                                   info->numel * sizeof(float)) == 0;
                cr_expect_eq(same, info->frozen, "%s, %u nodes: %s", strategies[s].name, counts[c],
                             info->name);
            }
            exo_params_free(&initial);
            run_release(&r);
        }
    }
}

Test(frozen, is_not_sent)
{
    struct run all, rest;
    prepare(&all, "", 4);
    prepare(&rest, FIRST, 4);
    run_must_fit(&all, "ddp", "{}");
    run_must_fit(&rest, "ddp", "{}");
    uint64_t each = 2 * 3 * 4 * 6 / 4; /* 2 (N - 1) / N of four bytes in six steps */
    cr_expect_eq(all.result.bytes_sent, each * exo_model_numel(all.model));
    cr_expect_eq(rest.result.bytes_sent, each * exo_model_numel(rest.model));
    run_release(&all);
    run_release(&rest);
}

/* A learning rate of 0 for a group also leaves the group unchanged. The other parameters then see
 * the same values and learn the same. */
Test(frozen, the_others_learn_as_beside_a_rate_of_zero)
{
    struct run frozen, slow;
    prepare(&frozen, FIRST, 2);
    prepare(&slow, "", 2);
    run_must_fit(&frozen, "ddp", "{optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}}");
    run_must_fit(
        &slow, "ddp",
        "{optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1, groups: [{match: fc1.*, lr: 0}]}}");
    for (size_t i = 0; i < exo_params_count(frozen.result.params); i++) {
        const exo_param_info *info = exo_params_info(frozen.result.params, i);
        cr_expect_arr_eq(exo_params_at(frozen.result.params, i),
                         exo_params_at(slow.result.params, i), info->numel * sizeof(float), "%s",
                         info->name);
    }
    run_release(&frozen);
    run_release(&slow);
}

/* muloco: its optimizer has several kinds of moments. */
Test(frozen, is_kept_by_a_run_that_is_stopped_and_resumed)
{
    struct run r;
    prepare(&r, FIRST, 3);
    run_expect_resume(&r, "muloco", "{H: 2}", 4, NULL);
    run_release(&r);
}

Test(frozen, a_group_that_takes_only_what_is_frozen_is_a_mistake)
{
    struct run r;
    prepare(&r, FIRST, 2);
    cr_expect_eq(run_fit(&r, "ddp", "{optimizer: {groups: [{match: fc1.*, weight_decay: 0}]}}"),
                 EXO_INVAL);
    cr_expect_not_null(strstr(r.err.text, "fc1.*"), "%s", r.err.text);
    run_release(&r);
}

/* --- Gradients -------------------------------------------------------------------------------- */

enum {
    LENGTH = 6
};

static exo_model *
decoder(const char *options)
{
    char text[256];
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_err err = {0};
    snprintf(text, sizeof text, "{%sheads: 2, width: 16, vocabulary: 11, context: 8, %s}",
             strstr(options, "layers") ? "" : "layers: 2, ", options);
    cr_assert_eq(exo_config_parse(&doc, "job.yaml", text, &err), EXO_OK);
    cr_assert_eq(exo_model_new_named(&model, "gpt", exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

/* Returns the size of the tape's memory. */
static size_t
backward(exo_model *model, exo_params *params, bool autocast)
{
    static int32_t tokens[] = {1, 2, 3, 4, 5, 6}, targets[] = {2, 3, 4, 5, 6, 7};
    const exo_batch batch = {
        .size = 1,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
    exo_tape *tape = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    exo_params_zero_grads(params);
    exo_tape_begin(tape, params, &(exo_pass){.train = true, .grad = true, .autocast = autocast});
    exo_tensor *loss = exo_model_loss(model, tape, &batch);
    cr_assert_not_null(loss);
    cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, &err), EXO_OK, "%s", err.text);
    size_t bytes = exo_tape_bytes(tape);
    exo_tape_free(&tape);
    return bytes;
}

static void
expect_same_gradients(const char *kind, const char *frozen, bool autocast)
{
    char options[200];
    snprintf(options, sizeof options, "%s, frozen: [%s]", kind, frozen);
    exo_model *all = decoder(kind), *some = decoder(options);
    exo_params *a = NULL, *b = NULL;
    cr_assert_eq(exo_model_params(all, 3, &a, NULL), EXO_OK);
    cr_assert_eq(exo_model_params(some, 3, &b, NULL), EXO_OK);
    backward(all, a, autocast);
    backward(some, b, autocast);
    size_t compared = 0;
    for (size_t i = 0; i < exo_params_count(a); i++) {
        const exo_param_info *learned = exo_params_info(b, i);
        if (learned->frozen)
            continue;
        cr_expect_arr_eq(exo_params_grads(a) + exo_params_info(a, i)->offset,
                         exo_params_grads(b) + learned->offset, learned->numel * sizeof(float),
                         "%s, %s: %s", kind, frozen, learned->name);
        compared++;
    }
    cr_expect(compared > 0 && compared < exo_params_count(a));
    exo_params_free(&a);
    exo_params_free(&b);
    exo_model_drop(&all);
    exo_model_drop(&some);
}

Test(frozen, the_other_gradients_are_the_same_to_the_bit)
{
    static const char *const kinds[] = {"tied: true", "tied: false", "checkpoint: true",
                                        "norm: rms, gated: true, bias: false"};
    static const char *const frozen[] = {
        "embedding.*", "blocks.0.*",    "'*.weight'",          "'*norm*'",
        "blocks.*",    "'*attention*'", "'*mlp.down*', norm.*"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t f = 0; f < sizeof frozen / sizeof *frozen; f++) {
            if (strstr(kinds[k], "bias: false") && strstr(frozen[f], ".weight"))
                continue; /* all parameters would be frozen */
            expect_same_gradients(kinds[k], frozen[f], false);
            if (numbers_bf16_runs())
                expect_same_gradients(kinds[k], frozen[f], true);
        }
    expect_same_gradients("tied: false", "head.weight", false);
}

/* A checkpoint around a block without gradients saves nothing: its buffers are freed at once. */
Test(frozen, blocks_take_no_more_memory_than_learned_ones)
{
    static const char *const kinds[] = {"layers: 6, tied: false, checkpoint: true",
                                        "layers: 6, tied: false, checkpoint: true, frozen: "
                                        "[embedding.*, position.*, 'blocks.[0-4].*']"};
    size_t bytes[2];
    for (int k = 0; k < 2; k++) {
        exo_model *model = decoder(kinds[k]);
        exo_params *params = NULL;
        cr_assert_eq(exo_model_params(model, 3, &params, NULL), EXO_OK);
        bytes[k] = backward(model, params, false);
        exo_params_free(&params);
        exo_model_drop(&model);
    }
    cr_expect_leq(bytes[1], bytes[0], "%zu bytes, with nothing frozen %zu", bytes[1], bytes[0]);
}
