/* LoRA: a model with A and B computes as the merged model does, in passes and in generation, to the
 * bit; its gradients are those of the factors; and the weight is rebuilt from the base each time,
 * so nothing drifts. Each test owns its models. Read next: docs/lora.md. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>
#include <exogym/generate.h>
#include <exogym/memory.h>

#include "nn/pretrained/safetensors.h"
#include "support/decoders.h"
#include "support/numbers.h"
#include "support/temp.h"

enum {
    LENGTH = 12,
    SEQUENCES = 2,
    ROWS = SEQUENCES * LENGTH
};

static const exo_weight_format formats[] = {EXO_WEIGHTS_F32, EXO_WEIGHTS_INT8, EXO_WEIGHTS_INT4};

/* A model with LoRA, and the same model merged. */
struct world {
    exo_model *model, *merged;
    exo_params *params, *whole;
};

static exo_status
build(exo_model **out, const char *options, exo_err *err)
{
    exo_config_doc *doc = NULL;
    cr_assert_eq(exo_config_parse(&doc, "job.yaml", options, err), EXO_OK, "%s", err->text);
    exo_status st = exo_model_new_named(out, "gpt", exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

/* Draws all learned values, so that no B is zero. */
static void
draw(exo_params *params, uint64_t seed)
{
    float *numbers = numbers_new(exo_params_numel(params), seed);
    for (size_t i = 0; i < exo_params_numel(params); i++)
        exo_params_values(params)[i] = 0.3f * numbers[i];
    free(numbers);
}

static void
merge(struct world *w)
{
    exo_err err = {0};
    exo_params_free(&w->whole);
    exo_model_drop(&w->merged);
    cr_assert_eq(exo_decoder_merge(w->model, w->params, &w->merged, &w->whole, &err), EXO_OK, "%s",
                 err.text);
}

static void
world_of(struct world *w, const char *options)
{
    exo_err err = {0};
    exo_params *learned = NULL;
    *w = (struct world){0};
    cr_assert_eq(build(&w->model, options, &err), EXO_OK, "%s: %s", options, err.text);
    cr_assert_eq(exo_model_params(w->model, 7, &w->params, &err), EXO_OK, "%s", err.text);
    draw(w->params, 5);
    merge(w);
    /* with room for gradients */
    cr_assert_eq(exo_model_params(w->merged, 7, &learned, &err), EXO_OK, "%s", err.text);
    memcpy(exo_params_values(learned), exo_params_values(w->whole),
           exo_params_numel(learned) * sizeof(float));
    exo_params_free(&w->whole);
    w->whole = learned;
}

/* A golden directory of a family with LoRA. */
static void
world_init(struct world *w, const char *family, const char *more)
{
    char folder[256], options[512];
    decoders_path(family, folder);
    snprintf(options, sizeof options, "{path: %s, %s}", folder, more);
    world_of(w, options);
}

static void
world_free(struct world *w)
{
    exo_params_free(&w->params);
    exo_params_free(&w->whole);
    exo_model_drop(&w->model);
    exo_model_drop(&w->merged);
}

static size_t
index_of(const exo_params *params, const char *name)
{
    size_t i = 0;
    while (i < exo_params_count(params) && strcmp(exo_params_info(params, i)->name, name) != 0)
        i++;
    cr_assert_lt(i, exo_params_count(params), "%s", name);
    return i;
}

static exo_batch
batch_of(const exo_model *model, int32_t *tokens, int32_t *targets)
{
    size_t vocabulary = exo_decoder_spec_of(model)->vocabulary;
    for (size_t i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)((i * 7 + i / 5 + 3) % vocabulary);
        targets[i] = (int32_t)((i * 5 + 1) % vocabulary);
    }
    return (exo_batch){
        .size = SEQUENCES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
}

/* Runs forward and, if asked for, backward. Returns the loss and, if `bytes` is given, the tape's
 * memory. */
static float
run(exo_model *model, exo_params *params, const exo_pass *pass, size_t *bytes)
{
    int32_t tokens[ROWS], targets[ROWS];
    const exo_batch batch = batch_of(model, tokens, targets);
    exo_tape *tape = NULL;
    exo_err err = {0};
    float value = NAN;
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    exo_params_zero_grads(params);
    exo_tape_begin(tape, params, pass);
    exo_tensor *loss = exo_model_loss(model, tape, &batch);
    cr_assert_not_null(loss, "%s", (exo_tape_error(tape, &err), err.text));
    exo_tensor_read(loss, &value);
    if (pass->grad)
        cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, &err), EXO_OK, "%s", err.text);
    if (bytes)
        *bytes = exo_tape_bytes(tape);
    exo_tape_free(&tape);
    return value;
}

/* --- Parameters ------------------------------------------------------------------------------- */

Test(lora, only_a_and_b_are_learned)
{
    exo_model *model = NULL, *plain = NULL;
    exo_params *params = NULL, *base = NULL;
    exo_err err = {0};
    const char *shape = "layers: 3, heads: 2, width: 16, vocabulary: 11, context: 16";
    char options[256];
    snprintf(options, sizeof options,
             "{%s, lora: {rank: 4, layers: [attention.*, blocks.1.mlp.up]}}", shape);
    cr_assert_eq(build(&model, options, &err), EXO_OK, "%s", err.text);
    snprintf(options, sizeof options, "{%s}", shape);
    cr_assert_eq(build(&plain, options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(model, 3, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(plain, 3, &base, &err), EXO_OK, "%s", err.text);
    cr_expect_eq(exo_params_numel(params),
                 3 * (4 * 16 + 48 * 4) + 3 * (4 * 16 + 16 * 4) + (4 * 16 + 64 * 4));
    cr_expect_eq(exo_params_frozen_numel(params), exo_params_numel(base));
    cr_expect_eq(exo_decoder_spec_of(model)->lora_scale, 4.0f);
    cr_expect_eq(exo_model_num_units(model), 3);
    cr_expect_str_eq(exo_model_units(model)[1].name, "lora.1");
    for (size_t i = 0; i < exo_params_count(base); i++) { /* the base is that of the same seed */
        const exo_param_info *info = exo_params_info(base, i);
        cr_expect(exo_params_info(params, i)->frozen);
        cr_expect_arr_eq(exo_params_at(params, i), exo_params_at(base, i),
                         info->numel * sizeof(float), "%s", info->name);
    }
    const float *a = exo_params_at(params, index_of(params, "blocks.1.mlp.up.lora_a"));
    const float *b = exo_params_at(params, index_of(params, "blocks.1.mlp.up.lora_b"));
    for (size_t i = 0; i < 64; i++) {
        cr_expect_leq(fabsf(a[i]), 0.25f);
        cr_expect_eq(b[i], 0.0f);
    }
    cr_expect_neq(a[0], a[1]);
    const exo_pass pass = {0}; /* with B = 0 it is the base */
    cr_expect_eq(run(model, params, &pass, NULL), run(plain, base, &pass, NULL));
    exo_params_free(&params);
    exo_params_free(&base);
    exo_model_drop(&model);
    exo_model_drop(&plain);
}

Test(lora, options_that_do_not_fit_are_errors)
{
    static const char *const cases[][2] = {
        {"lora: {rank: 0}", "rank"},
        {"lora: {alpha: 0}", "alpha"},
        {"lora: {ranks: 4}", "ranks"},
        {"lora: {layers: []}", "the list of layers is empty"},
        {"lora: {layers: attention.q}",
         "no layer matches 'attention.q'; those of blocks.0 are attention.qkv, attention.out, "
         "mlp.up, mlp.down"},
        {"lora: {layers: [attention.*, head]}", "no layer matches 'head'"},
        {"lora: {path: nowhere}", "nowhere/adapter_config.json: there is no such file"},
        {"lora: {path: nowhere, rank: 4}", "'rank' cannot be set beside 'path'"},
        {"lora: 8", "lora"},
        {"lora: {}, frozen: '*'", "all of the model's parameters"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[256];
        exo_model *model = NULL;
        exo_err err = {0};
        snprintf(options, sizeof options, "{layers: 1, heads: 2, width: 8, vocabulary: 9, %s}",
                 cases[i][0]);
        cr_expect_neq(build(&model, options, &err), EXO_OK, "%s", options);
        cr_expect_not_null(strstr(err.text, cases[i][1]), "%s: %s", options, err.text);
    }
    exo_model *model = NULL;
    exo_err err = {0};
    exo_decoder_spec spec;
    exo_decoder_size(&spec, "small", NULL);
    spec.lora_scale = 1;
    cr_expect_eq(exo_decoder_new(&model, &spec, &err), EXO_INVAL);
}

/* --- Passes ----------------------------------------------------------------------------------- */

/* scale B^T dW and scale dW A^T of a layer, in double, against the gradients of A and B. */
static void
expect_gradients(struct world *w, const char *layer, const char *weight, size_t first)
{
    char name[96];
    snprintf(name, sizeof name, "%s.lora_a", layer);
    size_t ia = index_of(w->params, name);
    snprintf(name, sizeof name, "%s.lora_b", layer);
    size_t ib = index_of(w->params, name), iw = index_of(w->whole, weight);
    const exo_param_info *pa = exo_params_info(w->params, ia), *pb = exo_params_info(w->params, ib);
    size_t rank = pa->dims[0], in = pa->dims[1], rows = pb->dims[0];
    const float *a = exo_params_at(w->params, ia), *b = exo_params_at(w->params, ib);
    const float *dw =
        exo_params_grads(w->whole) + exo_params_info(w->whole, iw)->offset + first * in;
    const double scale = (double)exo_decoder_spec_of(w->model)->lora_scale;
    float *da = calloc(rank * in, sizeof *da), *db = calloc(rows * rank, sizeof *db);
    for (size_t k = 0; k < rank; k++)
        for (size_t i = 0; i < in; i++) {
            double sum = 0;
            for (size_t o = 0; o < rows; o++)
                sum += (double)b[o * rank + k] * (double)dw[o * in + i];
            da[k * in + i] = (float)(scale * sum);
        }
    for (size_t o = 0; o < rows; o++)
        for (size_t k = 0; k < rank; k++) {
            double sum = 0;
            for (size_t i = 0; i < in; i++)
                sum += (double)dw[o * in + i] * (double)a[k * in + i];
            db[o * rank + k] = (float)(scale * sum);
        }
    const float *grads = exo_params_grads(w->params);
    cr_expect_lt(numbers_distance(grads + pa->offset, da, rank * in), 1e-5, "%s: A", layer);
    cr_expect_lt(numbers_distance(grads + pb->offset, db, rows * rank), 1e-5, "%s: B", layer);
    cr_expect_gt(fabsf(da[0]), 0.0f);
    free(da);
    free(db);
}

Test(lora, passes_have_the_bits_of_the_merged_model_and_the_gradients_of_the_factors)
{
    static const char *const more[] = {"lora: {rank: 3, alpha: 6}",
                                       "checkpoint: true, lora: {rank: 3, alpha: 6}",
                                       "dropout: 0.1, lora: {rank: 3, alpha: 6}"};
    for (size_t f = 0; decoders_names[f]; f++)
        for (size_t m = 0; m < 3; m++) {
            struct world w;
            const char *family = decoders_names[f];
            bool apart = strcmp(family, "gpt2") != 0 && strcmp(family, "bloom") != 0;
            world_init(&w, family, more[m]);
            exo_pass pass = {.grad = true, .train = true, .seed = 3};
            size_t width = exo_decoder_spec_of(w.model)->width;
            cr_expect_eq(run(w.model, w.params, &pass, NULL), run(w.merged, w.whole, &pass, NULL),
                         "%s, %s", family, more[m]);
            expect_gradients(&w, apart ? "blocks.0.attention.q" : "blocks.0.attention.qkv",
                             "blocks.0.attention.qkv.weight", 0);
            expect_gradients(&w, "blocks.1.attention.out", "blocks.1.attention.out.weight", 0);
            expect_gradients(&w, "blocks.0.mlp.down", "blocks.0.mlp.down.weight", 0);
            bool gated = exo_decoder_spec_of(w.model)->gated;
            expect_gradients(&w, "blocks.1.mlp.up", "blocks.1.mlp.up.weight",
                             gated ? exo_decoder_spec_of(w.model)->inner : 0);
            if (strcmp(family, "opt") == 0)
                expect_gradients(&w, "blocks.1.attention.v", "blocks.1.attention.qkv.weight",
                                 2 * width);
            pass.invariant = true;
            pass.train = false;
            cr_expect_eq(run(w.model, w.params, &pass, NULL), run(w.merged, w.whole, &pass, NULL));
            world_free(&w);
        }
}

Test(lora, autocast_has_the_values_of_the_merged_model)
{
    struct world w;
    if (!numbers_bf16_runs())
        cr_skip_test("this processor does not multiply bf16");
    world_init(&w, "llama", "lora: {rank: 3}");
    const exo_pass pass = {.grad = true, .train = true, .autocast = true};
    cr_expect_eq(run(w.model, w.params, &pass, NULL), run(w.merged, w.whole, &pass, NULL));
    for (size_t i = 0; i < exo_params_numel(w.params); i++)
        cr_assert(isfinite(exo_params_grads(w.params)[i]));
    world_free(&w);
}

/* The weights with their parts are given back after each product: a pass takes little more memory
 * than one of the merged model whose base is frozen. */
Test(lora, a_pass_does_not_keep_the_merged_weights)
{
    exo_model *model = NULL, *frozen = NULL;
    exo_params *a = NULL, *b = NULL;
    exo_err err = {0};
    size_t with = 0, without = 0, weights = 8 * 12 * 128 * 128 * sizeof(float);
    const exo_pass pass = {.grad = true, .train = true};
    build(&model, "{layers: 8, heads: 4, width: 128, vocabulary: 40, context: 16, lora: {}}", &err);
    build(&frozen,
          "{layers: 8, heads: 4, width: 128, vocabulary: 40, context: 16, frozen: '*.weight'}",
          &err);
    cr_assert_eq(exo_model_params(model, 1, &a, &err), EXO_OK);
    cr_assert_eq(exo_model_params(frozen, 1, &b, &err), EXO_OK);
    run(model, a, &pass, &with);
    run(frozen, b, &pass, &without);
    cr_expect_lt(with, without + weights / 4, "%zu and %zu", with, without);
    exo_params_free(&a);
    exo_params_free(&b);
    exo_model_drop(&model);
    exo_model_drop(&frozen);
}

/* --- Generation ------------------------------------------------------------------------------- */

static exo_generator *
generator(const exo_model *model, exo_params *params, exo_weight_format format)
{
    exo_generator *g = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_generator_new(&g, exo_decoder_spec_of(model), params,
                                   &(exo_generator_opts){.weights = format}, &err),
                 EXO_OK, "%s", err.text);
    return g;
}

/* The caller frees the logits. */
static float *
logits_of(exo_generator *g)
{
    int32_t tokens[ROWS], targets[ROWS];
    const exo_decoder_spec *spec = exo_generator_spec(g);
    float *logits = calloc(LENGTH * spec->vocabulary, sizeof *logits);
    for (size_t i = 0; i < LENGTH; i++)
        tokens[i] = targets[i] = (int32_t)((i * 7 + 3) % spec->vocabulary);
    cr_assert_eq(exo_generator_logits(g, tokens, LENGTH, logits, NULL), EXO_OK);
    return logits;
}

Test(lora, generators_of_each_format_have_the_bits_of_the_merged_model)
{
    for (size_t f = 0; decoders_names[f]; f++)
        for (size_t i = 0; i < 3; i++) {
            struct world w;
            world_init(&w, decoders_names[f], "lora: {rank: 4}");
            exo_generator *g = generator(w.model, w.params, formats[i]),
                          *plain = generator(w.merged, w.whole, formats[i]);
            for (uint64_t seed = 1; seed < 3; seed++) {
                float *a = logits_of(g), *b = logits_of(plain);
                size_t numel = LENGTH * exo_generator_spec(g)->vocabulary;
                cr_expect_arr_eq(a, b, numel * sizeof *a, "%s", decoders_names[f]);
                free(a);
                free(b);
                draw(w.params, 90 + seed);
                merge(&w);
                cr_assert_eq(exo_generator_set_weights(g, w.params, NULL), EXO_OK);
                cr_assert_eq(exo_generator_set_weights(plain, w.whole, NULL), EXO_OK);
            }
            exo_generator_free(&g);
            exo_generator_free(&plain);
            world_free(&w);
        }
}

/* The log-probabilities of tokens in an invariant pass, and those that generation gave. */
Test(lora, an_invariant_pass_has_the_bits_of_generation)
{
    for (size_t f = 0; decoders_names[f]; f++) {
        struct world w;
        exo_generated done;
        exo_tape *tape = NULL;
        exo_err err = {0};
        float log_probs[LENGTH];
        int32_t prompt[] = {3, 1}, targets[LENGTH];
        world_init(&w, decoders_names[f], "lora: {rank: 4}");
        exo_generator *g = generator(w.model, w.params, EXO_WEIGHTS_F32);
        const exo_sampling sampling = {.temperature = 1, .max_new_tokens = LENGTH - 2, .seed = 3};
        exo_generator_submit(g, 1, prompt, 2, &sampling, NULL);
        while (exo_generator_active(g) > 0)
            cr_assert_eq(exo_generator_step(g, &err), EXO_OK, "%s", err.text);
        cr_assert(exo_generator_take(g, &done) && done.length == LENGTH);
        for (size_t t = 0; t < LENGTH; t++)
            targets[t] = t + 1 < LENGTH ? done.tokens[t + 1] : -1;
        exo_tape_new(&tape, NULL);
        exo_tape_begin(tape, w.params, &(exo_pass){.invariant = true, .grad = true});
        exo_batch batch = {.size = 1, .num_fields = 1, .data = {(void *)(uintptr_t)done.tokens}};
        batch.fields[0] =
            (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}};
        exo_outputs out = exo_outputs_init((const char *const[]){"logits", NULL});
        cr_assert(exo_model_forward(w.model, tape, &batch, &out));
        const size_t length = LENGTH;
        exo_tensor *y = exo_log_probs(tape, exo_outputs_logits(&out, "logits"),
                                      exo_tape_input(tape, EXO_I32, 1, &length, targets), 1);
        cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
        exo_tensor_read(y, log_probs);
        cr_expect_arr_eq(log_probs + 1, done.log_probs, (LENGTH - 2) * sizeof *log_probs, "%s",
                         decoders_names[f]);
        exo_tape_free(&tape);
        exo_generator_free(&g);
        world_free(&w);
    }
}

Test(lora, a_generator_refuses_parameters_without_their_lora_and_the_reverse)
{
    struct world w;
    exo_generator *g = NULL;
    exo_err err = {0};
    world_init(&w, "gpt2", "lora: {rank: 4}");
    cr_expect_eq(exo_generator_new(&g, exo_decoder_spec_of(w.model), w.whole, NULL, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "have no A and B"), "%s", err.text);
    cr_expect_eq(exo_generator_new(&g, exo_decoder_spec_of(w.merged), w.params, NULL, &err),
                 EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "lora_a is a LoRA parameter"), "%s", err.text);
    world_free(&w);
}

/* 1,000 times other factors and the first ones again, half of the times none: each time the weights
 * are rebuilt from the base. Merging into one array and out of it would drift. */
Test(lora, a_thousand_cycles_do_not_drift)
{
    struct world w;
    world_of(&w, "{layers: 1, heads: 2, width: 16, vocabulary: 24, context: 16, lora: {rank: 4}}");
    size_t numel = exo_params_numel(w.params), all = exo_params_numel(w.whole);
    float *first = calloc(numel, sizeof *first), *weights = calloc(all, sizeof *weights);
    memcpy(first, exo_params_values(w.params), numel * sizeof *first);
    memcpy(weights, exo_params_values(w.whole), all * sizeof *weights);
    exo_generator *g = generator(w.model, w.params, EXO_WEIGHTS_F32);
    float *before = logits_of(g);
    size_t up = index_of(w.whole, "blocks.0.mlp.up.weight");
    size_t length = exo_params_info(w.whole, up)->numel;
    float *in_place = calloc(length, sizeof *in_place), *base = calloc(length, sizeof *base);
    memcpy(base, exo_params_at(w.params, up), length * sizeof *base);
    memcpy(in_place, base, length * sizeof *base);
    for (uint64_t cycle = 0; cycle < 1000; cycle++) {
        if (cycle % 2 == 0)
            draw(w.params, cycle);
        else
            memset(exo_params_values(w.params), 0, numel * sizeof *first);
        cr_assert_eq(exo_generator_set_weights(g, w.params, NULL), EXO_OK);
        merge(&w);
        const float *merged = exo_params_at(w.whole, up);
        for (size_t i = 0; i < length; i++) { /* what the library does not do */
            float change = merged[i] - base[i];
            in_place[i] += change;
            in_place[i] -= change;
        }
        memcpy(exo_params_values(w.params), first, numel * sizeof *first);
        cr_assert_eq(exo_generator_set_weights(g, w.params, NULL), EXO_OK);
    }
    merge(&w);
    float *after = logits_of(g);
    cr_expect_arr_eq(after, before, LENGTH * 24 * sizeof *after);
    cr_expect_arr_eq(exo_params_values(w.whole), weights, all * sizeof *weights);
    cr_expect_arr_eq(exo_params_at(w.params, up), base, length * sizeof *base);
    cr_expect_gt(numbers_distance(in_place, base, length), 0.0, "the other way drifts");
    free(first);
    free(weights);
    free(before);
    free(after);
    free(in_place);
    free(base);
    exo_generator_free(&g);
    world_free(&w);
}

/* --- Adapters --------------------------------------------------------------------------------- */

/* Writes an adapter, reads it back beside its base, and compares all parameters. */
Test(lora, an_adapter_is_read_as_it_was_written)
{
    for (size_t f = 0; decoders_names[f]; f++) {
        struct world w, again;
        char folder[64], more[256];
        exo_err err = {0};
        temp_folder(folder, sizeof folder);
        world_init(&w, decoders_names[f],
                   "lora: {rank: 3, alpha: 7, layers: [attention.*, "
                   "blocks.1.mlp.*]}");
        cr_assert_eq(exo_decoder_save_adapter(folder, w.model, w.params, "base", &err), EXO_OK,
                     "%s", err.text);
        snprintf(more, sizeof more, "lora: {path: %s}", folder);
        char path[256], options[512];
        decoders_path(decoders_names[f], path);
        snprintf(options, sizeof options, "{path: %s, %s}", path, more);
        again = (struct world){0};
        cr_assert_eq(build(&again.model, options, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_model_params(again.model, 1, &again.params, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_decoder_spec_of(again.model)->lora_scale,
                     exo_decoder_spec_of(w.model)->lora_scale);
        cr_assert_eq(exo_params_numel(again.params), exo_params_numel(w.params));
        cr_expect_arr_eq(exo_params_values(again.params), exo_params_values(w.params),
                         exo_params_numel(w.params) * sizeof(float), "%s", decoders_names[f]);
        world_free(&again);
        world_free(&w);
        temp_remove(folder);
    }
}

static const exo_safetensor *
tensor_of(const exo_safetensors *file, const char *name)
{
    for (size_t i = 0; i < exo_safetensors_count(file); i++)
        if (strcmp(exo_safetensors_at(file, i)->name, name) == 0)
            return exo_safetensors_at(file, i);
    cr_assert_fail("%s", name);
    return NULL;
}

/* Adapters that peft wrote (tests/golden/adapters.py), and the logits that it computes. */
Test(lora, adapters_of_peft_have_its_logits)
{
    static const char *const names[] = {"gpt2", "opt", "bloom", "llama"};
    for (size_t i = 0; i < 4; i++) {
        char base[256], folder[300], path[400], options[800];
        exo_model *model = NULL;
        exo_params *params = NULL;
        exo_safetensors *expected = NULL;
        exo_tape *tape = NULL;
        exo_err err = {0};
        decoders_path(names[i], base);
        snprintf(folder, sizeof folder, "%s/../../adapters/%s", base, names[i]);
        snprintf(path, sizeof path, "%s/expected.safetensors", folder);
        snprintf(options, sizeof options, "{path: %s, lora: {path: %s}}", base, folder);
        cr_assert_eq(build(&model, options, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_model_params(model, 1, &params, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_safetensors_open(&expected, path, &err), EXO_OK, "%s", err.text);
        const exo_safetensor *tokens = tensor_of(expected, "tokens"),
                             *logits = tensor_of(expected, "logits");
        float *got = calloc(logits->numel, sizeof *got),
              *want = calloc(logits->numel, sizeof *want);
        int32_t *ids = calloc(tokens->numel, sizeof *ids);
        memcpy(ids, tokens->data, tokens->bytes);
        memcpy(want, logits->data, logits->bytes);
        exo_tape_new(&tape, NULL);
        exo_tape_begin(tape, params, &(exo_pass){0});
        exo_tensor *y =
            decoders_output(model, tape, "logits", ids, tokens->dims[0], tokens->dims[1]);
        cr_assert_not_null(y, "%s", (exo_tape_error(tape, &err), err.text));
        exo_tensor_read(y, got);
        cr_expect_lt(numbers_distance(got, want, logits->numel), 1e-4, "%s", names[i]);
        memset(exo_params_values(params), 0, exo_params_numel(params) * sizeof(float));
        exo_tape_begin(tape, params, &(exo_pass){0});
        exo_tensor_read(
            decoders_output(model, tape, "logits", ids, tokens->dims[0], tokens->dims[1]), got);
        cr_expect_gt(numbers_distance(got, want, logits->numel), 1e-2, "%s: its base", names[i]);
        exo_tape_free(&tape);
        exo_safetensors_close(&expected);
        exo_params_free(&params);
        exo_model_drop(&model);
        free(got);
        free(want);
        free(ids);
    }
}

/* A damaged or foreign adapter is an error that names the file and the tensor or key. */
Test(lora, adapters_that_do_not_fit_are_refused)
{
    static const struct {
        const char *from, *to, *reason;
    } cases[] = {{"\"LORA\"", "\"LOHA\"", "\"peft_type\""},
                 {"\"use_dora\": false", "\"use_dora\": true", "\"use_dora\""},
                 {"\"bias\": \"none\"", "\"bias\": \"all\"", "\"bias\""},
                 {"\"rank_pattern\": {}", "\"rank_pattern\": {\"c_attn\": 4}", "\"rank_pattern\""},
                 {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"",
                  "\"init_lora_weights\""},
                 {"\"init_lora_weights\": true", "\"init_lora_weights\": \"olora\"",
                  "it changes the base's weights"},
                 {"\"r\": 3", "\"r\": 4", "lora_A.weight' has the shape (3, "},
                 {"\"r\": 3", "\"r\": 3, \"new_key\": 1", "\"new_key\""},
                 {"\"lora_alpha\": 7", "\"lora_alpha\": 0", "\"lora_alpha\""},
                 {"\"lora_alpha\": 7", "\"lora_alpha\": 1e39", "\"lora_alpha\""}};
    struct world w;
    char folder[64], gpt2[256], options[512];
    exo_err err = {0};
    temp_folder(folder, sizeof folder);
    decoders_path("gpt2", gpt2);
    snprintf(options, sizeof options, "{path: %s, lora: {path: %s}}", gpt2, folder);
    world_init(&w, "gpt2", "lora: {rank: 3, alpha: 7}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *model = NULL;
        cr_assert_eq(exo_decoder_save_adapter(folder, w.model, w.params, NULL, &err), EXO_OK, "%s",
                     err.text);
        decoders_edit(folder, "adapter_config.json", cases[i].from, cases[i].to);
        cr_expect_neq(build(&model, options, &err), EXO_OK, "%s", cases[i].to);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "%s: %s", cases[i].to, err.text);
        cr_expect_null(model);
    }
    world_free(&w);
    exo_model *model = NULL;
    world_init(&w, "opt", "lora: {rank: 3}"); /* of another family */
    cr_assert_eq(exo_decoder_save_adapter(folder, w.model, w.params, NULL, &err), EXO_OK);
    cr_expect_neq(build(&model, options, &err), EXO_OK);
    cr_expect_not_null(strstr(err.text, "self_attn.q_proj.lora_A.weight' is no LoRA factor"), "%s",
                       err.text);
    world_free(&w);
    temp_remove(folder);
}

/* Without a task_type peft writes the base's class instead. */
Test(lora, an_adapter_without_a_task_is_read)
{
    struct world w;
    char folder[64], gpt2[256], options[512];
    exo_err err = {0};
    exo_model *model = NULL;
    temp_folder(folder, sizeof folder);
    decoders_path("gpt2", gpt2);
    snprintf(options, sizeof options, "{path: %s, lora: {path: %s}}", gpt2, folder);
    world_init(&w, "gpt2", "lora: {rank: 3, alpha: 7}");
    cr_assert_eq(exo_decoder_save_adapter(folder, w.model, w.params, NULL, &err), EXO_OK, "%s",
                 err.text);
    decoders_edit(folder, "adapter_config.json", "\"task_type\": \"CAUSAL_LM\"",
                  "\"task_type\": null, \"auto_mapping\": {\"base_model_class\": "
                  "\"GPT2LMHeadModel\", \"parent_library\": \"transformers.models.gpt2\"}");
    cr_expect_eq(build(&model, options, &err), EXO_OK, "%s", err.text);
    exo_model_drop(&model);
    world_free(&w);
    temp_remove(folder);
}

/* A folder holds a model or an adapter. */
Test(lora, a_folder_has_a_model_or_an_adapter)
{
    struct world w;
    char model[64], adapter[64];
    exo_err err = {0};
    temp_folder(model, sizeof model);
    temp_folder(adapter, sizeof adapter);
    world_init(&w, "gpt2", "lora: {rank: 3}");
    cr_assert_eq(exo_decoder_save(model, w.model, w.params, EXO_F32, 0, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_decoder_save_adapter(adapter, w.model, w.params, model, &err), EXO_OK, "%s",
                 err.text);
    cr_expect_eq(exo_decoder_save_adapter(model, w.model, w.params, NULL, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "the folder has a model"), "%s", err.text);
    cr_expect_eq(exo_decoder_save(adapter, w.model, w.params, EXO_F32, 0, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "the folder has an adapter"), "%s", err.text);
    cr_expect_eq(exo_decoder_save_adapter(adapter, w.merged, w.whole, NULL, &err), EXO_INVAL);
    exo_model *read = NULL;
    exo_params *values = NULL;
    cr_assert_eq(exo_decoder_load(model, &read, &values, &err), EXO_OK, "%s", err.text);
    cr_expect_arr_eq(exo_params_values(values), exo_params_values(w.whole),
                     exo_params_numel(values) * sizeof(float), "the merged weights");
    exo_params_free(&values);
    exo_model_drop(&read);
    world_free(&w);
    temp_remove(model);
    temp_remove(adapter);
}
