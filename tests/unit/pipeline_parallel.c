/* Stages of the class "gpt" (exogym/parallel.h): passed through one after another they have the initial
 * values, loss and gradients of the whole decoder, to the bit. The test owns its models. Read next:
 * nn/models/decoder_stage.c. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include <exogym/decoder.h>
#include <exogym/parallel.h>

enum {
    MOST = 4, /* stages */
    SAMPLES = 3,
    LENGTH = 12,
    ROWS = SAMPLES * LENGTH,
    WIDTH = 16,
    VOCABULARY = 51,
    SEED = 7
};

static const char *const kinds[] = {
    "{layers: 4, width: 16, heads: 2, inner: 24, vocabulary: 51, context: 16, tied: false}",
    ("{layers: 5, width: 16, heads: 4, kv_heads: 2, inner: 24, vocabulary: 51, context: 12, "
     "position: rotary, norm: rms, activation: silu, gated: true, bias: false, tied: false, "
     "values: true}"),
    ("{layers: 4, width: 16, heads: 2, inner: 24, vocabulary: 51, context: 16, tied: false, "
     "checkpoint: true}"),
};
enum {
    KINDS = sizeof kinds / sizeof *kinds
};

static exo_model *
build(const char *name, const char *options)
{
    exo_config_doc *doc = NULL;
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "model", options, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, name, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    exo_config_free(&doc);
    return model;
}

static int32_t tokens[ROWS], targets[ROWS];

static exo_batch
batch_of_rows(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(i * 37 % VOCABULARY);
        targets[i] = i % LENGTH == LENGTH - 1 ? -1 : (int32_t)((i * 53 + 11) % VOCABULARY);
    }
    return (exo_batch){
        .size = SAMPLES,
        .num_fields = 2,
        .fields = {{.name = "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}},
                   {.name = "targets", .dtype = EXO_I32, .num_dims = 1, .dims = {LENGTH}}},
        .data = {tokens, targets}};
}

static const exo_pass pass = {.train = true, .grad = true, .seed = 5};

/* The loss, and the gradients in *params. */
static float
whole_pass(exo_model *model, exo_params **params)
{
    exo_tape *tape = NULL;
    exo_err err = {0};
    const exo_batch batch = batch_of_rows();
    cr_assert_eq(exo_model_params(model, SEED, params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    exo_params_zero_grads(*params);
    exo_tape_begin(tape, *params, &pass);
    exo_tensor *loss = exo_model_loss(model, tape, &batch);
    cr_assert_eq(exo_tape_backward(tape, loss, 0.5f, &err), EXO_OK, "%s", err.text);
    const float value = exo_tensor_item(loss);
    exo_tape_free(&tape);
    return value;
}

struct chain {
    exo_model *models[MOST];
    exo_params *params[MOST];
    exo_tape *tapes[MOST];
    exo_stage_pass passes[MOST];
    float between[MOST][ROWS * WIDTH]; /* the input of a stage, and its gradient */
    uint32_t count;
};

static void
chain_init(struct chain *c, const exo_model *whole, uint32_t count)
{
    exo_err err = {0};
    *c = (struct chain){.count = count};
    for (uint32_t s = 0; s < count; s++) {
        cr_assert_eq(exo_model_stage(&c->models[s], whole, s, count, &err), EXO_OK, "%s", err.text);
        cr_assert_eq(exo_model_params(c->models[s], SEED, &c->params[s], &err), EXO_OK);
        cr_assert_eq(exo_tape_new(&c->tapes[s], &err), EXO_OK);
        exo_params_zero_grads(c->params[s]);
    }
}

static float
chain_pass(struct chain *c)
{
    exo_err err = {0};
    const exo_batch batch = batch_of_rows();
    const uint32_t last = c->count - 1;
    for (uint32_t s = 0; s < c->count; s++) {
        exo_tape_begin(c->tapes[s], c->params[s], &pass);
        cr_assert(
            exo_stage_forward(c->models[s], c->tapes[s], &batch, c->between[s], &c->passes[s]));
        if (s < last)
            exo_tensor_read(c->passes[s].output, c->between[s + 1]);
    }
    for (uint32_t s = c->count; s-- > 0;) {
        cr_assert_eq(exo_stage_backward(c->tapes[s], &c->passes[s], 0.5f,
                                        s < last ? c->between[s + 1] : NULL, &err),
                     EXO_OK, "%s", err.text);
        if (s > 0)
            exo_tensor_grad(c->passes[s].input, c->between[s]);
    }
    return exo_tensor_item(c->passes[last].output);
}

static void
chain_release(struct chain *c)
{
    for (uint32_t s = 0; s < c->count; s++) {
        exo_tape_free(&c->tapes[s]);
        exo_params_free(&c->params[s]);
        exo_model_drop(&c->models[s]);
    }
}

static void
compare(const char *kind, uint32_t count)
{
    static struct chain c;
    exo_model *whole = build("gpt", kind);
    exo_params *params = NULL;
    const size_t numel = exo_model_numel(whole);
    float *values = calloc(numel, sizeof *values), *grads = calloc(numel, sizeof *grads);
    const float loss = whole_pass(whole, &params);
    size_t sum = 0;
    chain_init(&c, whole, count);
    cr_expect_eq(chain_pass(&c), loss, "%s: the loss of %u stages", kind, count);
    for (uint32_t s = 0; s < count; s++) {
        exo_part_put(whole, c.models[s], values, exo_params_values(c.params[s]));
        exo_part_put(whole, c.models[s], grads, exo_params_grads(c.params[s]));
        sum += exo_model_numel(c.models[s]);
    }
    cr_expect_eq(sum, numel, "each parameter is in one stage");
    cr_expect_eq(memcmp(values, exo_params_values(params), numel * sizeof *values), 0,
                 "%s: initial values of %u stages", kind, count);
    cr_expect_eq(memcmp(grads, exo_params_grads(params), numel * sizeof *grads), 0,
                 "%s: gradients of %u stages", kind, count);
    chain_release(&c);
    exo_params_free(&params);
    exo_model_drop(&whole);
    free(values);
    free(grads);
}

Test(stages, have_the_numbers_of_the_whole_decoder)
{
    for (size_t k = 0; k < KINDS; k++)
        for (uint32_t count = 2; count <= MOST; count++)
            compare(kinds[k], count);
}

Test(stages, a_tied_embedding_is_in_the_first_and_the_last_one)
{
    size_t first = 9, count = 9;
    exo_model *whole =
        build("gpt", "{layers: 3, width: 16, heads: 2, vocabulary: 51, context: 16}");
    static struct chain c;
    chain_init(&c, whole, 3);
    cr_expect(exo_stage_tied(c.models[0], &first, &count));
    cr_expect_eq(count, VOCABULARY * WIDTH);
    cr_expect_not(exo_stage_tied(c.models[1], &first, &count));
    cr_expect(exo_stage_tied(c.models[2], &first, &count));
    cr_expect_eq(memcmp(exo_params_values(c.params[0]), exo_params_values(c.params[2]) + first,
                        count * sizeof(float)),
                 0);
    cr_expect_not(exo_model_is_stage(whole));
    cr_expect(exo_model_is_stage(c.models[1]));
    chain_release(&c);
    exo_model_drop(&whole);
}

Test(stages, what_cannot_be_cut_is_named)
{
    static const struct {
        const char *name, *options;
        uint32_t stage, count;
        const char *reason;
    } cases[] = {
        {"mlp", "{}", 0, 2, "class gpt, not 'mlp'"},
        {"gpt", "{layers: 2, width: 16, heads: 2, vocabulary: 9, dropout: 0.1}", 0, 2, "dropout"},
        {"gpt", "{layers: 2, width: 16, heads: 2, vocabulary: 9}", 0, 3, "only 2 layers"},
        {"gpt", "{layers: 2, width: 16, heads: 2, vocabulary: 9}", 2, 2, "no stage 2 of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        exo_model *whole = build(cases[i].name, cases[i].options), *stage = NULL;
        exo_err err = {0};
        cr_expect_neq(exo_model_stage(&stage, whole, cases[i].stage, cases[i].count, &err), EXO_OK);
        cr_expect_not_null(strstr(err.text, cases[i].reason), "%s", err.text);
        cr_expect_null(stage);
        exo_model_drop(&whole);
    }
}

Test(stages, backward_from_a_tensor_runs_once_and_from_results)
{
    exo_tape *tape = NULL;
    exo_err err = {0};
    float x[4] = {1, 2, 3, 4}, grad[4] = {1, -1, 0.5f, 2}, dx[4];
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    exo_tape_begin(tape, NULL, &pass);
    exo_tensor *in = exo_tape_variable(tape, 2, (size_t[]){2, 2}, x);
    exo_tensor *out = exo_scale(tape, in, 3);
    cr_assert_eq(exo_tape_backward_from(tape, out, grad, &err), EXO_OK, "%s", err.text);
    exo_tensor_grad(in, dx);
    for (int i = 0; i < 4; i++)
        cr_expect_eq(dx[i], 3 * grad[i]);
    cr_expect_eq(exo_tape_backward_from(tape, out, grad, &err), EXO_INVAL);
    exo_tape_begin(tape, NULL, &pass);
    cr_expect_eq(exo_tape_backward_from(tape, NULL, grad, &err), EXO_INVAL);
    exo_tape_free(&tape);
}
