/* Outputs of models by name, and losses of several outputs: a model makes only the requested
 * outputs, a critic shares layers with an actor, the built-in models give their outputs, and
 * invalid requests are errors. Each test owns its `struct place`. Read next:
 * include/exogym/model.h, loss.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "support/numbers.h"
#include "support/passes.h"

enum {
    ROWS = 6,
    IN = 4,
    HIDDEN = 8,
    ACTIONS = 3
};

/* --- A model with two heads ------------------------------------------------------------------- */

struct actor_critic {
    exo_param in, action, value;
    uint64_t lacks; /* 1: forward gives no values */
};

static int made_values; /* calls; a test has its own process */

static exo_status
build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    struct actor_critic *m = self;
    exo_status st = exo_config_u64(config, "lacks", 0, 0, 1, &m->lacks, err);
    if (st != EXO_OK)
        return st;
    m->in =
        exo_build_param(b, "in.weight", 2, (size_t[]){HIDDEN, IN}, exo_init_kaiming_uniform(IN));
    m->action = exo_build_param(b, "action.weight", 2, (size_t[]){ACTIONS, HIDDEN},
                                exo_init_kaiming_uniform(HIDDEN));
    m->value = exo_build_param(b, "value.weight", 2, (size_t[]){1, HIDDEN},
                               exo_init_kaiming_uniform(HIDDEN));
    return exo_build_status(b, err);
}

static void
forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct actor_critic *m = self;
    exo_tensor *hidden =
        exo_tanh(t, exo_linear(t, exo_batch_tensor(t, batch, 0), exo_tape_param(t, m->in), NULL));
    exo_outputs_give(outputs, "hidden", hidden);
    exo_outputs_give_product(outputs, "logits", hidden, exo_tape_param(t, m->action));
    if (exo_outputs_wants(outputs, "values") && !m->lacks) {
        made_values++;
        exo_outputs_give(outputs, "values",
                         exo_linear(t, hidden, exo_tape_param(t, m->value), NULL));
    }
}

static const exo_model_class actor_critic = {
    .name = "actor_critic",
    .help = "two heads on one layer",
    .state_size = sizeof(struct actor_critic),
    .build = build,
    .outputs = (const char *const[]){"hidden", "logits", "values", NULL},
    .forward = forward};

struct place {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_batch batch;
    float *x;
};

static void
place_open(struct place *p, const exo_model_class *model_class, const char *options)
{
    exo_config_doc *doc = NULL;
    exo_err err = {0};
    *p = (struct place){.x = numbers_new(ROWS * IN, 5)};
    cr_assert_eq(exo_config_parse(&doc, "test", options, &err), EXO_OK);
    cr_assert_eq(exo_model_new(&p->model, model_class, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_model_params(p->model, 3, &p->params, &err), EXO_OK, "%s", err.text);
    exo_config_free(&doc);
    p->tape = passes_tape();
    p->batch = (exo_batch){.size = ROWS, .num_fields = 1, .data = {p->x}};
    p->batch.fields[0] =
        (exo_field){.name = "observation", .dtype = EXO_F32, .num_dims = 1, .dims = {IN}};
    exo_params_zero_grads(p->params);
    exo_tape_begin(p->tape, p->params, &(exo_pass){.train = true, .grad = true});
}

static void
place_close(struct place *p)
{
    exo_tape_free(&p->tape);
    exo_params_free(&p->params);
    exo_model_drop(&p->model);
    free(p->x);
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(outputs, what_is_not_asked_for_is_not_made)
{
    struct place p;
    place_open(&p, &actor_critic, "{}");
    exo_outputs out = exo_outputs_init(NAMES("logits"));
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    cr_expect_eq(made_values, 0);
    cr_expect(exo_outputs_wants(&out, "logits"));
    cr_expect_not(exo_outputs_wants(&out, "hidden"));
    out = exo_outputs_init(NAMES("values", "hidden"));
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    cr_expect_eq(made_values, 1);
    cr_expect_eq(exo_tensor_numel(exo_outputs_get(&out, "values")), ROWS);
    cr_expect_eq(exo_tensor_numel(exo_outputs_get(&out, "hidden")), ROWS * HIDDEN);
    place_close(&p);
}

/* Losses take a product as it is. It becomes one tensor, computed once, when a caller asks for the
 * whole output. */
Test(outputs, a_product_is_computed_when_it_is_asked_for)
{
    struct place p;
    place_open(&p, &actor_critic, "{}");
    exo_outputs out = exo_outputs_init(NAMES("logits"));
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    cr_expect_not_null(exo_outputs_logits(&out, "logits").weight);
    exo_tensor *whole = exo_outputs_get(&out, "logits");
    cr_assert_not_null(whole);
    cr_expect_eq(exo_tensor_numel(whole), ROWS * ACTIONS);
    cr_expect_eq(exo_outputs_get(&out, "logits"), whole);
    cr_expect_eq(exo_outputs_logits(&out, "logits").x, whole);
    cr_expect_null(exo_outputs_logits(&out, "logits").weight);
    place_close(&p);
}

/* --- A loss of several outputs ---------------------------------------------------------------- */

static const int32_t actions[ROWS] = {0, 2, 1, 1, -1, 0};
static const float old_log_probs[ROWS] = {-1, -1.3f, -0.8f, -1.1f, 0, -2},
                   advantages[ROWS] = {1, -1, 2, -0.5f, 9, 0.3f};
static const float returns[ROWS] = {0.4f, 1, -1, 0.2f, 9, 0}, mask[ROWS] = {1, 1, 1, 1, 0, 1};

/* PPO's loss: policy, value and entropy. */
static exo_tensor *
ppo_loss(struct place *p)
{
    exo_tape *t = p->tape;
    size_t rows = ROWS;
    exo_outputs out = exo_outputs_init(NAMES("logits", "values"));
    if (!exo_model_forward(p->model, t, &p->batch, &out))
        return NULL;
#define INPUT(x) exo_tape_input(t, EXO_F32, 1, &rows, x)
    exo_logits logits = exo_outputs_logits(&out, "logits");
    exo_tensor *log_probs =
        exo_log_probs(t, logits, exo_tape_input(t, EXO_I32, 1, &rows, actions), 1);
    exo_tensor *policy =
        exo_policy_loss(t, log_probs, INPUT(old_log_probs), INPUT(advantages), INPUT(mask), 0.2f);
    exo_tensor *value =
        exo_value_loss(t, exo_outputs_get(&out, "values"), NULL, INPUT(returns), INPUT(mask), 0);
    exo_tensor *entropy = exo_masked_mean(t, exo_entropy(t, logits, 1), INPUT(mask));
    return exo_add(t, exo_add(t, policy, exo_scale(t, value, 0.5f)), exo_scale(t, entropy, -0.01f));
}

/* Compares the gradient of every parameter to finite differences. */
Test(outputs, ppo_is_a_loss_of_two_outputs)
{
    struct place p;
    exo_err err = {0};
    place_open(&p, &actor_critic, "{}");
    exo_tensor *loss = ppo_loss(&p);
    cr_assert_not_null(loss, "%s", (exo_tape_error(p.tape, &err), err.text));
    cr_assert_eq(exo_tape_backward(p.tape, loss, 1, &err), EXO_OK, "%s", err.text);
    float *values = exo_params_values(p.params), *grads = exo_params_grads(p.params);
    double largest = 0;
    for (size_t i = 0; i < exo_params_numel(p.params); i++) {
        const float step = 1e-2f, kept = values[i];
        double at[2];
        for (int s = 0; s < 2; s++) {
            values[i] = kept + (s ? step : -step);
            exo_tape_begin(p.tape, p.params, &(exo_pass){.train = true, .grad = true});
            at[s] = (double)exo_tensor_item(ppo_loss(&p));
        }
        values[i] = kept;
        double slope = (at[1] - at[0]) / (2 * (double)step);
        cr_expect_float_eq((double)grads[i], slope, 2e-3 * (1 + fabs(slope)), "%zu: %g, %g", i,
                           (double)grads[i], slope);
        largest = fmax(largest, fabs(slope));
    }
    cr_expect_gt(largest, 0.05);
    place_close(&p);
}

/* --- The built-in models ---------------------------------------------------------------------- */

Test(outputs, built_in_models_say_what_they_give)
{
    static const struct {
        const char *name, *outputs, *objective;
    } models[] = {{"mlp", "logits", "classification"},
                  {"mnist_cnn", "logits", "classification"},
                  {"gpt", "hidden, logits", "next_token"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        exo_model *model = NULL;
        exo_err err = {0};
        exo_tape *tape = passes_tape();
        exo_batch batch = {.size = 1};
        cr_assert_eq(exo_model_new_named(&model, models[i].name, NULL, &err), EXO_OK, "%s",
                     err.text);
        cr_expect_str_eq(exo_model_objective(model)->name, models[i].objective);
        exo_tape_begin(tape, NULL, &(exo_pass){0});
        exo_outputs out = exo_outputs_init(NAMES("value"));
        cr_expect_not(exo_model_forward(model, tape, &batch, &out));
        cr_expect_eq(exo_tape_error(tape, &err), EXO_NOT_FOUND);
        cr_expect(strstr(err.text, "has no output 'value'; it has "), "%s", err.text);
        cr_expect(strstr(err.text, models[i].outputs), "%s", err.text);
        exo_tape_free(&tape);
        exo_model_drop(&model);
    }
}

/* The loss that a job minimizes is the cross-entropy of the outputs, to the bit. */
Test(outputs, the_objective_is_made_of_outputs)
{
    static const uint8_t pixels[ROWS * 28 * 28] = {3, 200, 77}, digits[ROWS] = {1, 0, 9, 3, 3, 7};
    struct place p = {.tape = passes_tape()};
    exo_dataset *data = NULL;
    exo_err err = {0};
    static const size_t all[ROWS] = {0, 1, 2, 3, 4, 5};
    cr_assert_eq(exo_dataset_images(&data, ROWS, 28, 28, pixels, digits,
                                    &(exo_image_opts){.mean = 0.1f}, &err),
                 EXO_OK);
    cr_assert_eq(exo_batch_init(&p.batch, data, ROWS, &err), EXO_OK);
    cr_assert_eq(exo_batch_read(&p.batch, data, all, ROWS, &(exo_sample_key){0}, &err), EXO_OK);
    cr_assert_eq(exo_model_new_named(&p.model, "mlp", NULL, &err), EXO_OK);
    cr_assert_eq(exo_model_params(p.model, 1, &p.params, &err), EXO_OK);
    exo_tape_begin(p.tape, p.params, &(exo_pass){0});
    exo_tensor *loss = exo_model_loss(p.model, p.tape, &p.batch);
    cr_assert_not_null(loss);
    float whole = exo_tensor_item(loss);
    cr_expect_eq(exo_tape_num_metrics(p.tape), 2, "loss and accuracy");
    exo_tape_begin(p.tape, p.params, &(exo_pass){0});
    exo_outputs out = exo_outputs_init(NAMES("logits"));
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    loss = exo_cross_entropy(p.tape, exo_outputs_logits(&out, "logits"),
                             exo_batch_field(p.tape, &p.batch, "label"));
    cr_assert_not_null(loss);
    cr_expect_eq(exo_tensor_item(loss), whole);

    /* An evaluation weighs a batch by its number of labels. */
    ((int32_t *)p.batch.data[1])[2] = -1;
    exo_tape_begin(p.tape, p.params, &(exo_pass){0});
    cr_assert_not_null(exo_model_loss(p.model, p.tape, &p.batch));
    for (size_t i = 0; i < 2; i++) {
        double mean = 0;
        size_t count = 0;
        const char *name = exo_tape_metric_at(p.tape, i, &mean, &count)->name;
        cr_expect_eq(count, ROWS - 1, "%s", name);
    }
    exo_tape_free(&p.tape);
    exo_params_free(&p.params);
    exo_batch_release(&p.batch);
    exo_model_drop(&p.model);
    exo_dataset_drop(&data);
}

/* --- Errors ----------------------------------------------------------------------------------- */

static void
expect_error(struct place *p, exo_status status, const char *word)
{
    exo_err err = {0};
    cr_expect_eq(exo_tape_error(p->tape, &err), status, "%s", err.text);
    cr_expect(strstr(err.text, word), "'%s' does not say %s", err.text, word);
    exo_tape_begin(p->tape, p->params, &(exo_pass){0});
}

Test(outputs, mistakes_are_errors_of_the_tape)
{
    struct place p;
    place_open(&p, &actor_critic, "{lacks: 1}");
    exo_outputs out = exo_outputs_init(NAMES("values"));
    cr_expect_not(exo_model_forward(p.model, p.tape, &p.batch, &out));
    expect_error(&p, EXO_FAILED, "gave no output 'values'");
    out = exo_outputs_init(NAMES("hidden", "hidden", "hidden", "hidden", "hidden", "hidden",
                                 "hidden", "hidden", "hidden"));
    cr_expect_not(exo_outputs_wants(&out, "values"));
    cr_expect_not(exo_model_forward(p.model, p.tape, &p.batch, &out));
    expect_error(&p, EXO_INVAL, "more than 8 outputs");
    out = exo_outputs_init(NAMES("hidden"));
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    cr_expect_null(exo_outputs_get(&out, "logits"));
    expect_error(&p, EXO_INVAL, "'logits' was not asked for");
    cr_assert(exo_model_forward(p.model, p.tape, &p.batch, &out));
    cr_expect_null(exo_outputs_logits(&out, "logits").x);
    expect_error(&p, EXO_INVAL, "'logits' was not asked for");
    p.batch.fields[0].dims[0] = IN - 1; /* an error of an operation is the pass's error */
    cr_expect_not(exo_model_forward(p.model, p.tape, &p.batch, &out));
    expect_error(&p, EXO_INVAL, "linear");
    cr_expect_null(exo_batch_field(p.tape, &p.batch, "reward"));
    expect_error(&p, EXO_INVAL, "no field 'reward'");
    place_close(&p);
}

Test(outputs, a_model_without_an_objective_is_trained_by_no_job)
{
    struct place p;
    exo_trainer *trainer = NULL;
    exo_err err = {0};
    place_open(&p, &actor_critic, "{}");
    cr_expect_null(exo_model_objective(p.model));
    cr_expect_null(exo_model_loss(p.model, p.tape, &p.batch));
    expect_error(&p, EXO_UNSUPPORTED, "'actor_critic' has no objective");
    cr_expect_eq(exo_trainer_new(&trainer, p.model, NULL, NULL, &err), EXO_UNSUPPORTED);
    cr_expect(strstr(err.text, "'actor_critic' has no objective"), "%s", err.text);
    place_close(&p);
}

static void
expect_no_model(const exo_model_class *c, const char *word)
{
    exo_model *model = NULL;
    exo_err err = {0};
    cr_expect_eq(exo_model_new(&model, c, NULL, &err), EXO_INVAL);
    cr_expect(strstr(err.text, word), "'%s' does not say %s", err.text, word);
    cr_expect_null(model);
}

Test(outputs, a_class_must_be_whole)
{
    exo_model_class c = actor_critic;
    c.objective = &(exo_objective){.name = "score", .outputs = NAMES("values", "rewards")};
    expect_no_model(
        &c, "'score' takes the output 'rewards', which the model class 'actor_critic' lacks");
    c = actor_critic;
    c.forward = NULL;
    expect_no_model(&c, "lacks build, forward or outputs");
    c = actor_critic;
    c.outputs = NULL;
    expect_no_model(&c, "lacks build, forward or outputs");
}
