/* The predicted memory of a pass is the memory that the pass uses. Each test owns its models. Read
 * next: actors/fit_memory.h. */
#include <criterion/criterion.h>

#include <exogym/exogym.h>

#include "actors/fit_memory.h"
#include "support/numbers.h"

static exo_dataset *
images(void)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_dataset_named("synthetic", NULL, &train, &val, &err), EXO_OK, "%s", err.text);
    exo_dataset_drop(&val);
    return train;
}

static size_t
token_length(const void *self)
{
    (void)self;
    return 64;
}

enum {
    T = 24,
    V = 70
};

static size_t
token_fields(const void *self, exo_field *out)
{
    (void)self;
    out[0] = (exo_field){.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {T}};
    out[1] = (exo_field){.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {T}};
    return 2;
}

static exo_status
token_get(const void *self, size_t index, const exo_sample_key *key, void *const *out, exo_err *err)
{
    (void)self;
    (void)key;
    (void)err;
    for (size_t t = 0; t < T; t++) {
        ((int32_t *)out[0])[t] = (int32_t)((index + t) % V);
        ((int32_t *)out[1])[t] = (int32_t)((index + t + 1) % V);
    }
    return EXO_OK;
}

static void
token_free(void *self)
{
    (void)self;
}

static exo_dataset *
tokens(void)
{
    static const exo_dataset_class counting = {.name = "counting",
                                               .length = token_length,
                                               .fields = token_fields,
                                               .get = token_get,
                                               .free = token_free};
    static int nothing;
    exo_dataset *data = NULL;
    cr_assert_eq(exo_dataset_new(&data, &counting, &nothing, NULL), EXO_OK);
    return data;
}

/* The memory that real passes use. */
static size_t
used(exo_model *model, exo_dataset *data, size_t size, const exo_pass *pass)
{
    exo_params *params = NULL;
    exo_tape *tape = NULL;
    exo_batch batch;
    exo_err err = {0};
    size_t indices[64];
    const exo_sample_key key = {0};
    for (size_t i = 0; i < 64; i++)
        indices[i] = i;
    cr_assert_eq(exo_model_params(model, 1, &params, NULL), EXO_OK);
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    cr_assert_eq(exo_batch_init(&batch, data, size, NULL), EXO_OK);
    cr_assert_eq(exo_batch_read(&batch, data, indices, size, &key, NULL), EXO_OK);
    for (int i = 0; i < 3; i++) {
        exo_tape_begin(tape, params, pass);
        exo_tensor *loss = exo_model_loss(model, tape, &batch);
        cr_assert_not_null(loss, "%s", (exo_tape_error(tape, &err), err.text));
        if (pass->grad)
            cr_assert_eq(exo_tape_backward(tape, loss, 1.0f, &err), EXO_OK, "%s", err.text);
    }
    size_t bytes = exo_tape_bytes(tape);
    exo_batch_release(&batch);
    exo_tape_free(&tape);
    exo_params_free(&params);
    return bytes;
}

static void
check(const char *name, const char *options, exo_dataset *data)
{
    static const size_t sizes[] = {1, 3, 20};
    exo_model *model = NULL;
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "options", options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, name, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    for (size_t i = 0; i < 3; i++)
        for (int bf16 = 0; bf16 <= numbers_bf16_runs(); bf16++)
            for (int grad = 0; grad < 2; grad++) {
                const exo_pass pass = {.train = grad,
                                       .grad = grad,
                                       .autocast = bf16 ? EXO_AUTOCAST_BF16 : EXO_AUTOCAST_NONE};
                exo_pass_memory said;
                cr_assert_eq(exo_model_pass_memory(model, &pass, data, sizes[i], &said, &err),
                             EXO_OK, "%s", err.text);
                cr_expect_eq(said.tape, used(model, data, sizes[i], &pass),
                             "%s, %zu samples, bf16 %d, grad %d: %zu", name, sizes[i], bf16, grad,
                             said.tape);
            }
    exo_model_drop(&model);
    exo_config_free(&doc);
}

Test(pass_memory, is_what_a_pass_takes)
{
    exo_dataset *pictures = images(), *text = tokens();
    check("mlp", "{hidden: [300, 200]}", pictures);
    check("mnist_cnn", "{}", pictures);
    check("gpt", "{size: small, vocabulary: 70, context: 24, dropout: 0.1}", text);
    check("gpt", "{size: small, vocabulary: 70, context: 24, checkpoint: true}", text);
    check("gpt",
          "{layers: 2, heads: 4, kv_heads: 2, width: 64, vocabulary: 9000, context: 24, position: "
          "rotary, norm: rms, gated: true, activation: silu, bias: false, tied: false}",
          text);
    check("gpt",
          "{layers: 2, heads: 4, kv_heads: 2, width: 64, head_width: 24, vocabulary: 70, context: "
          "24, "
          "position: rotary, norm: rms, gated: true, bias: false, qk_norm: true, checkpoint: true}",
          text);
    check("gpt", "{size: small, vocabulary: 70, context: 24, lora: {rank: 4}}", text);
    check("gpt",
          "{layers: 2, heads: 4, width: 64, vocabulary: 70, context: 24, position: rotary, gated: "
          "true, checkpoint: true, lora: {rank: 4, layers: [attention.q, attention.v, mlp.up]}}",
          text);
    exo_dataset_drop(&pictures);
    exo_dataset_drop(&text);
}

/* A model of 1.5 billion parameters would need 18 GB of memory before the first pass; its
 * prediction needs almost none. */
Test(pass_memory, of_what_would_not_fit_is_known_too)
{
    exo_dataset *text = tokens();
    exo_model *model = NULL;
    exo_decoder_spec spec;
    exo_err err = {0};
    exo_pass_memory memory;
    const exo_pass pass = {.train = true, .grad = true};
    cr_assert_eq(exo_decoder_size(&spec, "xl", &err), EXO_OK);
    cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_pass_memory(model, &pass, text, 32, &memory, &err), EXO_OK, "%s",
                 err.text);
    cr_expect_gt(memory.tape, (size_t)1 << 30);
    cr_assert_eq(exo_model_pass_memory(model, &pass, text, 4096, &memory, &err), EXO_OK, "%s",
                 err.text);
    cr_expect_gt(memory.tape, (size_t)1 << 37, "more than 128 GiB: %zu", memory.tape);
    cr_expect_lt(memory.plans, (size_t)1 << 28, "what is kept for backward is no plan: %zu",
                 memory.plans);
    exo_model_drop(&model);
    exo_dataset_drop(&text);
}
