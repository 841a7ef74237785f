/* Gradients that are handed to a sink within backward: a step within backward equals the step after
 * it, to the bit, and needs less memory. Each test owns its model and its `struct training`. Read
 * next: include/exogym/optim.h, tensor.h. */
#include <criterion/criterion.h>

#include <stdatomic.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/numbers.h"
#include "support/sanitized.h"

enum {
    STEPS = 3,
    LARGE_STEPS = SANITIZED ? 1 : 2, /* of models with large heads */
    BATCH = 3,
    T = 16
};

static exo_model *
decoder(size_t vocabulary, size_t width, bool tied, bool checkpoint)
{
    exo_decoder_spec spec;
    exo_model *model = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_decoder_size(&spec, "small", &err), EXO_OK, "%s", err.text);
    spec.vocabulary = vocabulary;
    spec.context = T;
    spec.layers = 2;
    spec.width = width;
    spec.dropout = 0.1f;
    spec.tied = tied;
    spec.checkpoint = checkpoint;
    cr_assert_eq(exo_decoder_new(&model, &spec, &err), EXO_OK, "%s", err.text);
    return model;
}

static exo_batch
batch_of(size_t vocabulary, uint64_t step)
{
    static int32_t tokens[2][BATCH * T];
    exo_batch batch = {.size = BATCH, .num_fields = 2};
    for (size_t f = 0; f < 2; f++) {
        batch.fields[f] = (exo_field){
            .name = f ? "targets" : "tokens", .dtype = EXO_I32, .num_dims = 1, .dims = {T}};
        batch.data[f] = tokens[f];
        for (size_t i = 0; i < BATCH * T; i++)
            tokens[f][i] = (int32_t)((i * 7919 + f * 31 + step * 104729) % vocabulary);
    }
    tokens[1][5] = -1; /* no target */
    return batch;
}

struct training {
    exo_params *params;
    exo_tape *tape;
    exo_optim *optim;
};

static void
begin(struct training *t, exo_model *model, exo_optim_kind kind, bool within)
{
    exo_optim_spec rule = exo_optim_spec_init(kind);
    exo_err err = {0};
    if (kind == EXO_SGD)
        rule.momentum = 0.9;
    exo_status st = within ? exo_model_values(model, 5, &t->params, &err)
                           : exo_model_params(model, 5, &t->params, &err);
    cr_assert_eq(st, EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_new(&t->tape, &err), EXO_OK);
    cr_assert_eq(
        exo_optim_new(&t->optim, &rule, exo_device_cpu(), exo_params_numel(t->params), &err),
        EXO_OK);
}

static void
end(struct training *t)
{
    exo_optim_free(&t->optim);
    exo_tape_free(&t->tape);
    exo_params_free(&t->params);
}

static void
step(struct training *t, exo_model *model, const exo_batch *batch, exo_pass pass, bool within)
{
    exo_err err = {0};
    exo_grad_sink sink;
    const size_t numel = exo_params_numel(t->params);
    const exo_array values = exo_host_array(EXO_F32, exo_params_values(t->params), numel);
    if (within) {
        sink = exo_optim_sink(t->optim, values, 0.01f);
        pass.sink = &sink;
    } else {
        exo_params_zero_grads(t->params);
    }
    exo_tape_begin(t->tape, t->params, &pass);
    exo_tensor *loss = exo_model_loss(model, t->tape, batch);
    cr_assert_not_null(loss, "%s", (exo_tape_error(t->tape, &err), err.text));
    cr_assert_eq(exo_tape_backward(t->tape, loss, 0.5f, &err), EXO_OK, "%s", err.text);
    if (!within)
        exo_optim_step(t->optim, values,
                       exo_host_array(EXO_F32, exo_params_grads(t->params), numel), 0.01f);
}

/* Trains for some steps in both ways and compares; returns the tape's bytes of the training with a
 * sink. */
static size_t
compare(exo_model *model, size_t vocabulary, exo_optim_kind kind, bool bf16, uint64_t steps,
        const char *what)
{
    struct training after, within;
    begin(&after, model, kind, false);
    begin(&within, model, kind, true);
    cr_expect_null(exo_params_grads(within.params));
    for (uint64_t s = 0; s < steps; s++) {
        const exo_pass pass = {.train = true, .grad = true, .autocast = bf16, .seed = 2, .step = s};
        exo_batch batch = batch_of(vocabulary, s);
        step(&after, model, &batch, pass, false);
        step(&within, model, &batch, pass, true);
        cr_expect_eq(memcmp(exo_params_values(after.params), exo_params_values(within.params),
                            exo_params_numel(after.params) * sizeof(float)),
                     0, "%s: step %d", what, (int)s);
    }
    size_t bytes = exo_tape_bytes(within.tape);
    end(&after);
    end(&within);
    return bytes;
}

Test(sink, a_step_within_backward_is_the_step_after_it)
{
    static const exo_optim_kind kinds[] = {EXO_ADAM, EXO_ADAMW, EXO_SGD, EXO_RMSPROP, EXO_ADAGRAD};
    for (int tied = 0; tied < 2; tied++)
        for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
            exo_model *model = decoder(70, 32, tied, checkpoint);
            for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
                for (int bf16 = 0; bf16 <= numbers_bf16_runs(); bf16++)
                    compare(model, 70, kinds[k], bf16, STEPS, "small vocabulary");
            exo_model_drop(&model);
        }
}

/* The gradient of the weights is too large to be kept with the loss (64 MiB). A tied head's is
 * handed on row by row; rows to which the embedding will add wait for that. The gradient is never
 * whole. */
Test(sink, a_large_tied_head_is_handed_on_by_rows)
{
    enum {
        V = 66000,
        W = 256
    };
    for (int checkpoint = SANITIZED; checkpoint < 2; checkpoint++) {
        exo_model *model = decoder(V, W, true, checkpoint);
        size_t bytes =
            compare(model, V, EXO_ADAMW, checkpoint && numbers_bf16_runs(), LARGE_STEPS, "tied");
        cr_expect_lt(bytes, V * W * sizeof(float) / 2, "the tape takes %zu bytes", bytes);
        exo_model_drop(&model);
    }
}

Test(sink, a_large_head_of_its_own_is_handed_on_by_rows)
{
    if (SANITIZED)
        cr_skip("the test above runs the same lines");
    exo_model *model = decoder(66000, 256, false, false);
    /* Only the embedding's gradient is whole. */
    size_t bytes = compare(model, 66000, EXO_SGD, false, LARGE_STEPS, "untied");
    cr_expect_lt(bytes, (size_t)66000 * 256 * sizeof(float) * 3 / 2, "the tape takes %zu bytes",
                 bytes);
    exo_model_drop(&model);
}

Test(sink, images_too)
{
    exo_dataset *train = NULL, *val = NULL;
    exo_model *model = NULL;
    exo_batch batch;
    exo_err err = {0};
    size_t indices[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const exo_sample_key key = {0};
    struct training after, within;
    cr_assert_eq(exo_dataset_named("synthetic", NULL, &train, &val, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new_named(&model, "mnist_cnn", NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_batch_init(&batch, train, 8, &err), EXO_OK);
    cr_assert_eq(exo_batch_read(&batch, train, indices, 8, &key, &err), EXO_OK);
    begin(&after, model, EXO_ADAMW, false);
    begin(&within, model, EXO_ADAMW, true);
    for (uint64_t s = 0; s < STEPS; s++) {
        const exo_pass pass = {.train = true, .grad = true, .seed = 2, .step = s};
        step(&after, model, &batch, pass, false);
        step(&within, model, &batch, pass, true);
    }
    cr_expect_eq(memcmp(exo_params_values(after.params), exo_params_values(within.params),
                        exo_params_numel(after.params) * sizeof(float)),
                 0);
    end(&after);
    end(&within);
    exo_batch_release(&batch);
    exo_model_drop(&model);
    exo_dataset_drop(&train);
    exo_dataset_drop(&val);
}

/* --- Every element once ----------------------------------------------------------------------- */

struct count {
    atomic_uchar *times;
    size_t numel;
};

static void
count_taken(void *context, size_t first, size_t count, const float *grad)
{
    struct count *c = context;
    (void)grad;
    for (size_t i = first; i < first + count && i < c->numel; i++)
        atomic_fetch_add(&c->times[i], 1);
}

/* This includes parameters on which the loss does not depend, and a head that is used twice. */
Test(sink, every_element_comes_once)
{
    enum {
        V = 66000,
        W = 256
    };
    exo_model *model = decoder(V, W, true, true);
    struct training t;
    begin(&t, model, EXO_SGD, true);
    struct count count = {.numel = exo_params_numel(t.params)};
    const exo_grad_sink sink = {.take = count_taken, .context = &count};
    const exo_pass pass = {.train = true, .grad = true, .seed = 2, .sink = &sink};
    static const float x[2 * W] = {1, 2, 3};
    static const int32_t target[2] = {3, V - 1};
    for (int way = 0; way < 3; way++) {
        exo_err err = {0};
        exo_batch batch = batch_of(V, 1);
        count.times = calloc(count.numel, sizeof *count.times);
        exo_tape_begin(t.tape, t.params, &pass);
        exo_tensor *loss = NULL;
        if (way == 0) {
            loss = exo_model_loss(model, t.tape, &batch);
        } else {
            exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
            cr_assert(exo_model_forward(model, t.tape, &batch, &outputs));
            exo_logits logits = exo_outputs_logits(&outputs, "logits");
            exo_tensor *targets = exo_batch_tensor(t.tape, &batch, 1);
            if (way == 1) /* the loss depends on the head alone */
                loss = exo_linear_cross_entropy(
                    t.tape, exo_tape_input(t.tape, EXO_F32, 2, (size_t[]){2, W}, x), logits.weight,
                    exo_tape_input(t.tape, EXO_I32, 1, (size_t[]){2}, target));
            else
                loss = exo_add(t.tape, exo_mean(t.tape, exo_log_probs(t.tape, logits, targets, 1)),
                               exo_cross_entropy(t.tape, logits, targets));
        }
        cr_assert_not_null(loss, "%s", (exo_tape_error(t.tape, &err), err.text));
        cr_assert_eq(exo_tape_backward(t.tape, loss, 1.0f, &err), EXO_OK, "%s", err.text);
        size_t wrong = 0;
        for (size_t i = 0; i < count.numel; i++)
            wrong += count.times[i] != 1;
        cr_expect_eq(wrong, 0, "way %d: %zu elements", way, wrong);
        free(count.times);
    }
    end(&t);
    exo_model_drop(&model);
}

Test(sink, a_copy_without_gradients_needs_one)
{
    exo_model *model = decoder(70, 32, true, false);
    exo_params *params = NULL;
    exo_tape *tape = NULL;
    exo_err err = {0};
    const exo_pass pass = {.train = true, .grad = true};
    exo_batch batch = batch_of(70, 0);
    cr_assert_eq(exo_model_values(model, 1, &params, &err), EXO_OK);
    cr_assert_eq(exo_tape_new(&tape, &err), EXO_OK);
    exo_tape_begin(tape, params, &pass);
    cr_expect_null(exo_model_loss(model, tape, &batch));
    cr_expect_eq(exo_tape_error(tape, &err), EXO_INVAL);
    cr_expect_not_null(strstr(err.text, "sink"), "%s", err.text);
    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_model_drop(&model);
}
