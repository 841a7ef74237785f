/* The class "gpt": its parameters and initial values, its options and their errors, and its
 * results. Logits, loss and each gradient are compared with those of the library transformers, for
 * each family. tools/export_golden.py wrote the expected numbers to
 * golden/decoders.
 *
 * Each test owns a `struct golden`. Read next: exogym/decoder.h, support/decoders.h. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/memory.h>
#include <exogym/state.h>

#include "nn/pretrained/family.h"
#include "nn/pretrained/safetensors.h"
#include "support/decoders.h"
#include "support/numbers.h"

#define TOLERANCE 1e-4

enum {
    VOCABULARY = 101,
    BATCH = 2,
    LENGTH = 24
};

/* --- Specs ------------------------------------------------------------------------------------ */

Test(decoder, sizes_are_gpt2s)
{
    static const struct {
        const char *name;
        size_t numel;
    } sizes[] = {/* of 50304 tokens and 1024 positions, as nanoGPT counts parameters */
                 {"small", 7363328},
                 {"base", 124475904},
                 {"xl", 1557686400}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        exo_decoder_spec spec;
        exo_model *model = NULL;
        exo_err err = {0};
        cr_assert_eq(exo_decoder_size(&spec, sizes[i].name, &err), EXO_OK, "%s", err.text);
        cr_expect_str_eq(spec.family, "gpt2");
        cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(exo_model_numel(model), sizes[i].numel, "%s has %zu", sizes[i].name,
                     exo_model_numel(model));
        exo_model_drop(&model);
    }
    exo_decoder_spec spec;
    exo_err err = {0};
    cr_expect_eq(exo_decoder_size(&spec, "huge", &err), EXO_NOT_FOUND);
    cr_expect(strstr(err.text, "small, sbase, base, medium, large, xl"), "%s", err.text);
}

static exo_decoder_spec
tiny(void)
{
    exo_decoder_spec spec;
    cr_assert_eq(exo_decoder_size(&spec, "small", NULL), EXO_OK);
    spec.vocabulary = VOCABULARY;
    spec.context = 32;
    spec.layers = 2;
    spec.width = 32;
    spec.head_width = 8;
    spec.inner = 48;
    return spec;
}

Test(decoder, what_does_not_fit_together_is_refused)
{
    enum {
        CASES = 16
    };
    exo_decoder_spec s[CASES];
    static const char *const text[CASES] = {
        "vocabulary",     "context", "layers",     "heads",    "kv_heads must divide",
        "width",          "inner",   "head_width", "norm_eps", "dropout",
        "dropout",        "even",    "rope_theta", "factor",   "rotary",
        "position_offset"};
    for (size_t i = 0; i < CASES; i++)
        s[i] = tiny();
    s[0].vocabulary = 0;
    s[1].context = (size_t)1 << 40;
    s[2].layers = 0;
    s[3].heads = 0;
    s[4].kv_heads = 3;
    s[5].width = (size_t)1 << 30;
    s[6].inner = 0;
    s[7].head_width = 0;
    s[8].norm_eps = 0;
    s[9].dropout = 1;
    s[10].dropout = NAN;
    s[11].position = EXO_POSITION_ROTARY;
    s[11].head_width = 7;
    s[12].position = EXO_POSITION_ROTARY;
    s[12].rope_theta = -1;
    s[13].position = EXO_POSITION_ROTARY;
    s[13].rope_scaling.factor = 0.5f;
    s[14].rope_scaling.factor = 2;
    s[15].position = EXO_POSITION_ALIBI;
    s[15].position_offset = 2;
    for (size_t i = 0; i < CASES; i++) {
        exo_err err = {0};
        exo_model *model = NULL;
        cr_expect_eq(exo_decoder_check(&s[i], &err), EXO_INVAL, "case %zu", i);
        cr_expect(strstr(err.text, text[i]), "case %zu: %s", i, err.text);
        cr_expect_eq(exo_decoder_new(&model, &s[i], &err), EXO_INVAL, "case %zu", i);
    }
}

/* --- Parameters ------------------------------------------------------------------------------- */

static exo_status
build(const char *options, exo_model **model, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, "job", options, err);
    if (st == EXO_OK)
        st = exo_model_new_named(model, "gpt", exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

static void
expect_names(const char *options, const char *const *names)
{
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    size_t i = 0;
    cr_assert_eq(build(options, &model, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(model, 1, &params, &err), EXO_OK, "%s", err.text);
    for (; names[i] && i < exo_params_count(params); i++)
        cr_expect_str_eq(exo_params_info(params, i)->name, names[i]);
    cr_expect(!names[i] && i == exo_params_count(params), "%s", options);
    exo_params_free(&params);
    exo_model_drop(&model);
}

Test(decoder, parameters_are_in_the_order_of_the_header)
{
    expect_names("{layers: 1, width: 16, heads: 2, vocabulary: 9, context: 8}",
                 (const char *[]){"embedding.weight", "position.weight", "blocks.0.norm1.weight",
                                  "blocks.0.norm1.bias", "blocks.0.attention.qkv.weight",
                                  "blocks.0.attention.qkv.bias", "blocks.0.attention.out.weight",
                                  "blocks.0.attention.out.bias", "blocks.0.norm2.weight",
                                  "blocks.0.norm2.bias", "blocks.0.mlp.up.weight",
                                  "blocks.0.mlp.up.bias", "blocks.0.mlp.down.weight",
                                  "blocks.0.mlp.down.bias", "norm.weight", "norm.bias", NULL});
    expect_names("{layers: 1, width: 16, heads: 2, vocabulary: 9, context: 8, position: alibi, "
                 "norm: rms, bias: false, "
                 "tied: false, gated: true, embedding_norm: true}",
                 (const char *[]){"embedding.weight", "embedding_norm.weight",
                                  "blocks.0.norm1.weight", "blocks.0.attention.qkv.weight",
                                  "blocks.0.attention.out.weight", "blocks.0.norm2.weight",
                                  "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight",
                                  "norm.weight", "head.weight", NULL});
    expect_names("{layers: 1, width: 16, heads: 2, vocabulary: 9, context: 8, position: rotary, "
                 "norm: rms, bias: false, gated: true, qk_norm: true}",
                 (const char *[]){
                     "embedding.weight", "blocks.0.norm1.weight", "blocks.0.attention.qkv.weight",
                     "blocks.0.attention.q_norm.weight", "blocks.0.attention.k_norm.weight",
                     "blocks.0.attention.out.weight", "blocks.0.norm2.weight",
                     "blocks.0.mlp.up.weight", "blocks.0.mlp.down.weight", "norm.weight", NULL});
}

static double
deviation(const float *values, size_t count, double *mean)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)values[i];
    *mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += ((double)values[i] - *mean) * ((double)values[i] - *mean);
    return sqrt(squares / (double)count);
}

Test(decoder, initial_values_are_gpt2s)
{
    exo_model *model = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    cr_assert_eq(build("{size: small, vocabulary: 500, context: 64}", &model, &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_model_params(model, 3, &params, &err), EXO_OK, "%s", err.text);
    for (size_t i = 0; i < exo_params_count(params); i++) {
        const exo_param_info *info = exo_params_info(params, i);
        const float *values = exo_params_values(params) + info->offset;
        bool bias = strstr(info->name, ".bias") != NULL, norm = strstr(info->name, "norm") != NULL;
        bool end = strstr(info->name, "out.weight") || strstr(info->name, "down.weight");
        double mean = 0, expected = bias || norm ? 0.0 : end ? 0.02 / sqrt(8.0) : 0.02;
        double found = deviation(values, info->numel, &mean);
        cr_expect(fabs(found - expected) < 0.03 * expected + 1e-9, "%s: deviation %g, expected %g",
                  info->name, found, expected);
        cr_expect(fabs(mean - (norm && !bias ? 1.0 : 0.0)) < 1e-3, "%s: mean %g", info->name, mean);
    }
    exo_params_free(&params);
    exo_model_drop(&model);
}

Test(decoder, a_jobs_mistakes_are_named)
{
    static const struct {
        const char *options, *text;
    } cases[] = {
        {"{size: huge}",
         "there is no GPT-2 of size 'huge'; there are: small, sbase, base, medium, large, xl"},
        {"{width: 30}", "heads 4 do not divide the width 30"},
        {"{layer: 2}", "unknown key 'layer'; did you mean 'layers'?"},
        {"{heads: 4, kv_heads: 3}", "kv_heads must divide its heads"},
        {"{activation: gelu_new}", "activation"},
        {"{position: sinusoidal}", "position"},
        {"{dropout: 1}", "dropout"},
        {"{vocabulary: 0}", "vocabulary"},
        {"{position: rotary, head_width: 5}", "even head_width"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *model = NULL;
        exo_err err = {0};
        cr_expect_eq(build(cases[i].options, &model, &err), EXO_INVAL, "%s", cases[i].options);
        cr_expect(strstr(err.text, cases[i].text) && strncmp(err.text, "job:", 4) == 0, "%s: %s",
                  cases[i].options, err.text);
    }
}

/* --- One pass --------------------------------------------------------------------------------- */

/* A golden decoder and the results of transformers. */
struct golden {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_safetensors *file;
    const int32_t *tokens; /* (BATCH, LENGTH) */
    int32_t *targets;      /* the next token at each position, and none at the last */
};

static const exo_safetensor *
expected(const struct golden *g, const char *name)
{
    for (size_t i = 0; i < exo_safetensors_count(g->file); i++)
        if (strcmp(exo_safetensors_at(g->file, i)->name, name) == 0)
            return exo_safetensors_at(g->file, i);
    return NULL;
}

static void
golden_open(struct golden *g, const char *name)
{
    char path[256];
    exo_err err = {0};
    *g = (struct golden){0};
    decoders_load(decoders_path(name, path), &g->model, &g->params);
    cr_assert_eq(exo_safetensors_open(&g->file, strcat(path, "/expected.safetensors"), &err),
                 EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new(&g->tape, &err), EXO_OK);
    const exo_safetensor *tokens = expected(g, "tokens");
    cr_assert(tokens && tokens->numel == (size_t)BATCH * LENGTH &&
              (uintptr_t)tokens->data % 4 == 0);
    g->tokens = tokens->data;
    g->targets = calloc((size_t)BATCH * LENGTH, sizeof *g->targets);
    for (size_t i = 0; i < (size_t)BATCH * LENGTH; i++)
        g->targets[i] = i % LENGTH == LENGTH - 1 ? -1 : g->tokens[i + 1];
}

static void
golden_close(struct golden *g)
{
    exo_safetensors_close(&g->file);
    exo_tape_free(&g->tape);
    exo_params_free(&g->params);
    exo_model_drop(&g->model);
    free(g->targets);
}

static exo_batch
batch_of(const int32_t *tokens, int32_t *targets, size_t size, size_t length)
{
    return (exo_batch){
        .size = size,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {length}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {length}}},
        .data = {(void *)(uintptr_t)tokens, targets}};
}

/* The largest difference, relative to the largest number. If all numbers are below 0.01, it is
 * relative to 0.01: for instance the gradient of a bias of keys is 0 except for rounding. */
static double
distance(const float *got, const float *wanted, size_t count)
{
    double largest = 0, off = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)wanted[i]));
        double d = fabs((double)got[i] - (double)wanted[i]);
        off = fmax(off, isnan(d) ? INFINITY : d);
    }
    return off / fmax(largest, 0.01);
}

static void
expect_logits(struct golden *g, const char *name)
{
    const exo_safetensor *wanted = expected(g, "logits");
    exo_err err = {0};
    exo_tape_begin(g->tape, g->params, &(exo_pass){.train = false});
    exo_tensor *logits = decoders_output(g->model, g->tape, "logits", g->tokens, BATCH, LENGTH);
    cr_assert_not_null(logits, "%s: %d", name, exo_tape_error(g->tape, &err));
    cr_assert_eq(exo_tensor_numel(logits), wanted->numel);
    float *got = calloc(wanted->numel, sizeof *got);
    exo_tensor_read(logits, got);
    double off = distance(got, wanted->data, wanted->numel);
    cr_expect_lt(off, TOLERANCE, "%s: logits are off by %g", name, off);
    free(got);
}

static exo_status
run_loss(struct golden *g, const exo_model *model, const exo_pass *pass, float *loss, exo_err *err)
{
    exo_batch batch = batch_of(g->tokens, g->targets, BATCH, LENGTH);
    exo_params_zero_grads(g->params);
    exo_tape_begin(g->tape, g->params, pass);
    exo_tensor *t = exo_model_loss(model, g->tape, &batch);
    if (!t)
        return exo_tape_error(g->tape, err);
    *loss = exo_tensor_item(t);
    return pass->grad ? exo_tape_backward(g->tape, t, 1.0f, err) : EXO_OK;
}

/* Compares each gradient under its name in transformers. */
static void
expect_gradients(struct golden *g, const char *name)
{
    const exo_decoder_spec *spec = exo_decoder_spec_of(g->model);
    const exo_family *family = exo_family_find(spec->family);
    exo_tensor_places places;
    cr_assert_eq(exo_family_places(family, spec, &places, NULL), EXO_OK);
    for (size_t i = 0; i < places.count; i++) {
        const exo_tensor_place *p = &places.items[i];
        char key[512];
        snprintf(key, sizeof key, "gradient.%s%s", p->bare ? "" : family->prefixes[0], p->tensor);
        const exo_safetensor *wanted = expected(g, key);
        cr_assert(wanted && wanted->numel == exo_tensor_place_numel(p), "%s: %s", name, key);
        float *got = calloc(wanted->numel, sizeof *got);
        for (size_t k = 0; k < exo_params_count(g->params); k++) {
            const exo_param_info *info = exo_params_info(g->params, k);
            if (strcmp(info->name, p->param) == 0)
                exo_tensor_place_write(p, exo_params_grads(g->params) + info->offset + p->first,
                                       got);
        }
        double off = distance(got, wanted->data, wanted->numel);
        cr_expect_lt(off, TOLERANCE, "%s: %s is off by %g", name, key, off);
        free(got);
    }
    exo_tensor_places_release(&places);
}

/* For tools/export_golden.py --check: saves the model as exogym writes it, with the logits that
 * exogym computes. */
static void
keep_for_check(struct golden *g, const char *root, const char *name, exo_dtype dtype)
{
    char folder[512], path[600];
    exo_err err = {0};
    exo_state *state = NULL;
    exo_model *model = NULL;
    exo_params *params = NULL;
    float *logits = calloc((size_t)BATCH * LENGTH * VOCABULARY, sizeof *logits);
    snprintf(folder, sizeof folder, "%s/%s%s", root, name, dtype == EXO_BF16 ? "-bf16" : "");
    snprintf(path, sizeof path, "%s/exogym.safetensors", folder);
    cr_assert_eq(exo_decoder_save(folder, g->model, g->params, dtype, 40000, &err), EXO_OK, "%s",
                 err.text);
    decoders_load(folder, &model, &params);
    exo_tape_begin(g->tape, params, &(exo_pass){.train = false});
    exo_tensor *t = decoders_output(model, g->tape, "logits", g->tokens, BATCH, LENGTH);
    cr_assert_not_null(t);
    exo_tensor_read(t, logits);
    cr_assert_eq(exo_state_new(&state, NULL), EXO_OK);
    exo_state_add_shaped(state, "tokens", EXO_I32, (void *)(uintptr_t)g->tokens, 2,
                         (size_t[]){BATCH, LENGTH});
    exo_state_add_shaped(state, "logits", EXO_F32, logits, 3,
                         (size_t[]){BATCH, LENGTH, VOCABULARY});
    cr_assert_eq(exo_state_save(state, path, &err), EXO_OK, "%s", err.text);
    exo_state_free(&state);
    exo_params_free(&params);
    exo_model_drop(&model);
    free(logits);
}

Test(decoder, logits_loss_and_gradients_are_those_of_transformers)
{
    for (size_t i = 0; decoders_names[i]; i++) {
        struct golden g;
        exo_err err = {0};
        float loss = 0;
        golden_open(&g, decoders_names[i]);
        expect_logits(&g, decoders_names[i]);
        exo_pass pass = {.train = true, .grad = true};
        cr_assert_eq(run_loss(&g, g.model, &pass, &loss, &err), EXO_OK, "%s: %s", decoders_names[i],
                     err.text);
        double off = distance(&loss, expected(&g, "loss")->data, 1);
        cr_expect_lt(off, TOLERANCE, "%s: the loss is off by %g", decoders_names[i], off);
        expect_gradients(&g, decoders_names[i]);
        const char *kept = getenv("EXOGYM_DECODERS");
        if (kept) {
            keep_for_check(&g, kept, decoders_names[i], EXO_F32);
            keep_for_check(&g, kept, decoders_names[i], EXO_BF16);
        }
        golden_close(&g);
    }
}

Test(decoder, checkpoints_change_no_bit)
{
    for (size_t i = 0; decoders_names[i]; i++) {
        struct golden g;
        exo_err err = {0};
        exo_model *model = NULL;
        float loss = 0, again = 0;
        golden_open(&g, decoders_names[i]);
        exo_decoder_spec spec = *exo_decoder_spec_of(g.model);
        spec.dropout = 0.2f;
        size_t bytes = exo_params_numel(g.params) * sizeof(float);
        float *grads = malloc(bytes);
        exo_pass pass = {.train = true, .grad = true, .seed = 5, .step = 3};
        cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(run_loss(&g, model, &pass, &loss, &err), EXO_OK, "%s", err.text);
        memcpy(grads, exo_params_grads(g.params), bytes);
        exo_model_drop(&model);
        spec.checkpoint = true;
        cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(run_loss(&g, model, &pass, &again, &err), EXO_OK, "%s", err.text);
        cr_expect_eq(memcmp(&loss, &again, sizeof loss), 0, "%s: %a and %a", decoders_names[i],
                     (double)loss, (double)again);
        cr_expect_eq(memcmp(grads, exo_params_grads(g.params), bytes), 0, "%s", decoders_names[i]);
        free(grads);
        exo_model_drop(&model);
        golden_close(&g);
    }
}

Test(decoder, threads_change_no_bit)
{
    for (size_t i = 0; decoders_names[i]; i++) {
        struct golden g;
        exo_err err = {0};
        float loss[2] = {0};
        golden_open(&g, decoders_names[i]);
        size_t bytes = exo_params_numel(g.params) * sizeof(float);
        float *grads = malloc(bytes);
        for (unsigned k = 0; k < 2; k++) {
            exo_set_num_threads(k ? 3 : 1);
            cr_assert_eq(
                run_loss(&g, g.model, &(exo_pass){.train = true, .grad = true}, &loss[k], &err),
                EXO_OK, "%s", err.text);
            if (k == 0)
                memcpy(grads, exo_params_grads(g.params), bytes);
        }
        cr_expect_eq(memcmp(&loss[0], &loss[1], sizeof loss[0]), 0, "%s", decoders_names[i]);
        cr_expect_eq(memcmp(grads, exo_params_grads(g.params), bytes), 0, "%s", decoders_names[i]);
        free(grads);
        golden_close(&g);
    }
}

/* Products of bf16 operands have about three digits. */
Test(decoder, autocast_is_close)
{
    for (size_t i = 0; numbers_bf16_runs() && decoders_names[i]; i++) {
        struct golden g;
        exo_err err = {0};
        float loss = 0;
        golden_open(&g, decoders_names[i]);
        exo_pass pass = {.train = true, .grad = true, .autocast = true};
        cr_assert_eq(run_loss(&g, g.model, &pass, &loss, &err), EXO_OK, "%s: %s", decoders_names[i],
                     err.text);
        double off = distance(&loss, expected(&g, "loss")->data, 1);
        cr_expect_lt(off, 5e-3, "%s: the loss is off by %g", decoders_names[i], off);
        golden_close(&g);
    }
}

Test(decoder, dropout_is_of_training_only)
{
    struct golden g;
    exo_err err = {0};
    exo_model *model = NULL;
    float plain = 0, evaluated = 0, first = 0, second = 0, again = 0;
    golden_open(&g, "gpt2");
    exo_decoder_spec spec = *exo_decoder_spec_of(g.model);
    spec.dropout = 0.3f;
    cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(run_loss(&g, g.model, &(exo_pass){.train = false}, &plain, &err), EXO_OK);
    cr_assert_eq(run_loss(&g, model, &(exo_pass){.train = false}, &evaluated, &err), EXO_OK);
    cr_assert_eq(run_loss(&g, model, &(exo_pass){.train = true, .step = 1}, &first, &err), EXO_OK);
    cr_assert_eq(run_loss(&g, model, &(exo_pass){.train = true, .step = 2}, &second, &err), EXO_OK);
    cr_assert_eq(run_loss(&g, model, &(exo_pass){.train = true, .step = 1}, &again, &err), EXO_OK);
    cr_expect_eq(plain, evaluated);
    cr_expect_neq(first, plain);
    cr_expect_neq(first, second);
    cr_expect_eq(first, again);
    exo_model_drop(&model);
    golden_close(&g);
}

/* A token sees only the tokens before it: a later token changes no bit of its logits. */
Test(decoder, the_future_is_not_seen)
{
    for (size_t i = 0; decoders_names[i]; i++) {
        struct golden g;
        golden_open(&g, decoders_names[i]);
        int32_t tokens[LENGTH];
        static float whole[LENGTH * VOCABULARY], changed[LENGTH * VOCABULARY];
        memcpy(tokens, g.tokens, sizeof tokens);
        for (int pass = 0; pass < 2; pass++) {
            exo_tape_begin(g.tape, g.params, &(exo_pass){.train = false});
            exo_tensor *logits = decoders_output(g.model, g.tape, "logits", tokens, 1, LENGTH);
            cr_assert_not_null(logits);
            exo_tensor_read(logits, pass ? changed : whole);
            tokens[10] = (tokens[10] + 1) % VOCABULARY;
        }
        cr_expect_eq(memcmp(whole, changed, sizeof(float) * 10 * VOCABULARY), 0, "%s",
                     decoders_names[i]);
        cr_expect_neq(
            memcmp(whole + 10 * VOCABULARY, changed + 10 * VOCABULARY, sizeof(float) * VOCABULARY),
            0);
        golden_close(&g);
    }
}

Test(decoder, wrong_batches_are_refused)
{
    struct golden g;
    exo_err err = {0};
    float loss = 0;
    golden_open(&g, "gpt2");
    int32_t tokens[33] = {0}, targets[33] = {0};
    exo_batch batch = batch_of(tokens, targets, 1, 33);
    exo_tape_begin(g.tape, g.params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(g.model, g.tape, &batch));
    cr_expect_eq(exo_tape_error(g.tape, &err), EXO_INVAL);
    cr_expect(strstr(err.text, "sequences of 33 tokens, the context is 32"), "%s", err.text);
    batch = batch_of(tokens, targets, 1, 8);
    batch.fields[0].name = "image";
    exo_tape_begin(g.tape, g.params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(g.model, g.tape, &batch));
    exo_tape_error(g.tape, &err);
    cr_expect(strstr(err.text, "no field 'tokens'"), "%s", err.text);
    tokens[3] = VOCABULARY;
    batch = batch_of(tokens, targets, 1, 8);
    exo_tape_begin(g.tape, g.params, &(exo_pass){.train = false});
    cr_expect_null(exo_model_loss(g.model, g.tape, &batch));
    cr_expect_neq(exo_tape_error(g.tape, &err), EXO_OK);
    cr_expect_eq(run_loss(&g, g.model, &(exo_pass){.train = true, .grad = true}, &loss, &err),
                 EXO_OK, "%s", err.text);
    golden_close(&g);
}

Test(decoder, other_models_are_no_decoders)
{
    exo_model *mlp = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_model_new_named(&mlp, "mlp", NULL, &err), EXO_OK);
    cr_expect_null(exo_decoder_spec_of(mlp));
    exo_model_drop(&mlp);
}
