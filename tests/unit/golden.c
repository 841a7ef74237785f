/* The engine against PyTorch: each operation, a small CNN with all its gradients, and a short
 * training give the values in golden/ops_golden.h, which golden/ops.py wrote.
 *
 * PyTorch's values are computed in double precision and rounded once. The engine's are fp32 sums of
 * at most a few hundred products, so an element may be off by some 1e-6 of the largest element of
 * its tensor. TOLERANCE allows 1e-5 of it.
 *
 * Each test owns its tape and model. Read next: exogym/tensor.h. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <exogym/exogym.h>

#include "../golden/ops_golden.h"
#include "support/numbers.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define TOLERANCE    1e-5f

/* --- Reading and comparing -------------------------------------------------------------------- */

enum {
    MAX_NUMEL = 1024
};

static size_t
golden_numel(const struct golden *golden)
{
    size_t numel = 1;
    for (size_t i = 0; i < golden->num_dims; i++)
        numel *= golden->dims[i];
    return numel;
}

static void
expect_close(const float *got, const struct golden *expected, float tolerance, const char *what,
             size_t index)
{
    size_t numel = golden_numel(expected);
    float largest = 1.0f;
    for (size_t i = 0; i < numel; i++)
        largest = fmaxf(largest, fabsf(expected->data[i]));
    for (size_t i = 0; i < numel; i++)
        cr_expect(fabsf(got[i] - expected->data[i]) <= tolerance * largest,
                  "case %zu: %s[%zu] is %.9g, PyTorch's %.9g", index, what, i, (double)got[i],
                  (double)expected->data[i]);
}

static void
expect_shape(const exo_tensor *tensor, const struct golden *expected, size_t index)
{
    size_t dims[EXO_MAX_DIMS];
    cr_assert_eq(exo_tensor_dims(tensor, dims), expected->num_dims, "case %zu", index);
    for (size_t i = 0; i < expected->num_dims; i++)
        cr_assert_eq(dims[i], expected->dims[i], "case %zu", index);
}

static void
expect_value(const exo_tensor *tensor, const struct golden *expected, const char *what,
             size_t index)
{
    static float got[MAX_NUMEL];
    cr_assert_leq(golden_numel(expected), (size_t)MAX_NUMEL);
    expect_shape(tensor, expected, index);
    exo_tensor_read(tensor, got);
    expect_close(got, expected, TOLERANCE, what, index);
}

static void
expect_grad(const exo_tensor *tensor, const struct golden *expected, const char *what, size_t index)
{
    static float got[MAX_NUMEL];
    cr_assert_leq(golden_numel(expected), (size_t)MAX_NUMEL);
    expect_shape(tensor, expected, index);
    exo_tensor_grad(tensor, got);
    expect_close(got, expected, TOLERANCE, what, index);
}

/* --- One operation ---------------------------------------------------------------------------- */

static exo_tape *
open_tape(bool train)
{
    exo_tape *tape = NULL;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    exo_tape_begin(tape, NULL, &(exo_pass){.train = train, .grad = true});
    return tape;
}

/* A variable with the golden values; NULL if the case has none. */
static exo_tensor *
variable(exo_tape *tape, const struct golden *golden)
{
    return golden->data ? exo_tape_variable(tape, golden->num_dims, golden->dims, golden->data)
                        : NULL;
}

/* Fails here with the tape's error, instead of later with a NULL tensor. */
static void
expect_no_error(const exo_tape *tape, size_t index)
{
    exo_err err = {0};
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "case %zu: %s", index, err.text);
}

/* Runs backward from sum(y * dy), so that the gradient at y is dy. Read values before: backward
 * reuses their memory. */
static void
backward(exo_tape *tape, exo_tensor *y, const struct golden *dy)
{
    exo_err err = {0};
    exo_tensor *weights = exo_tape_input(tape, EXO_F32, dy->num_dims, dy->dims, dy->data);
    exo_tensor *loss = exo_mean(tape, exo_mul(tape, y, weights));
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_tape_backward(tape, loss, (float)golden_numel(dy), &err), EXO_OK, "%s",
                 err.text);
}

Test(golden, conv2d)
{
    for (size_t i = 0; i < COUNT(golden_conv2d); i++) {
        const struct golden_conv2d *c = &golden_conv2d[i];
        exo_tape *tape = open_tape(true);
        exo_tensor *x = variable(tape, &c->x);
        exo_tensor *weight = variable(tape, &c->weight);
        exo_tensor *bias = variable(tape, &c->bias);
        exo_conv2d_opts opts = {.stride = c->stride, .padding = c->padding};
        exo_tensor *y = exo_conv2d(tape, x, weight, bias, &opts);
        expect_no_error(tape, i);
        expect_value(y, &c->y, "y", i);
        backward(tape, y, &c->dy);
        expect_grad(x, &c->dx, "dx", i);
        expect_grad(weight, &c->dweight, "dweight", i);
        if (bias)
            expect_grad(bias, &c->dbias, "dbias", i);
        exo_tape_free(&tape);
    }
}

/* Running statistics are buffers of a model copy, so batch-norm needs a model. This one has two
 * buffers, a parameter because each model has one, and no outputs. */
struct statistics {
    exo_param mean, var;
};

static exo_status
statistics_build(void *self, exo_builder *builder, exo_config *config, exo_err *err)
{
    struct statistics *s = self;
    uint64_t channels = 0;
    exo_status st = exo_config_u64(config, "channels", 1, 1, 64, &channels, err);
    if (st != EXO_OK)
        return st;
    size_t dims[] = {(size_t)channels};
    exo_build_param(builder, "unused", 1, dims, exo_init_constant(0));
    s->mean = exo_build_buffer(builder, "mean", 1, dims, exo_init_constant(0));
    s->var = exo_build_buffer(builder, "var", 1, dims, exo_init_constant(1));
    return exo_build_status(builder, err);
}

static void
no_outputs(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs)
{
    (void)self, (void)tape, (void)batch, (void)outputs;
}

/* The buffers lie in the order of their declaration: mean, variance. */
static exo_params *
make_statistics(exo_model **model, const struct golden *mean, const struct golden *var)
{
    static const char *const none[] = {NULL};
    static const exo_model_class statistics_class = {.name = "statistics",
                                                     .state_size = sizeof(struct statistics),
                                                     .build = statistics_build,
                                                     .outputs = none,
                                                     .forward = no_outputs};
    size_t channels = mean->dims[0];
    char text[32];
    snprintf(text, sizeof text, "{channels: %zu}", channels);
    exo_config_doc *doc = NULL;
    exo_params *params = NULL;
    exo_err err = {0};
    cr_assert_eq(exo_config_parse(&doc, "test", text, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_new(model, &statistics_class, exo_config_root(doc), &err), EXO_OK, "%s",
                 err.text);
    cr_assert_eq(exo_model_params(*model, 0, &params, &err), EXO_OK, "%s", err.text);
    exo_config_free(&doc);
    cr_assert_eq(exo_params_buffer_numel(params), 2 * channels);
    memcpy(exo_params_buffers(params), mean->data, channels * sizeof(float));
    memcpy(exo_params_buffers(params) + channels, var->data, channels * sizeof(float));
    return params;
}

Test(golden, batch_norm)
{
    for (size_t i = 0; i < COUNT(golden_batch_norm); i++) {
        const struct golden_batch_norm *c = &golden_batch_norm[i];
        size_t channels = c->mean.dims[0];
        exo_model *model = NULL;
        exo_params *params = make_statistics(&model, &c->mean, &c->var);
        exo_tape *tape = NULL;
        cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
        exo_tape_begin(tape, params, &(exo_pass){.train = c->train, .grad = true});

        exo_tensor *x = variable(tape, &c->x);
        exo_tensor *weight = variable(tape, &c->weight);
        exo_tensor *bias = variable(tape, &c->bias);
        exo_tensor *mean = exo_tape_param(tape, (exo_param){1});
        exo_tensor *var = exo_tape_param(tape, (exo_param){2});
        exo_batch_norm_opts opts = {.relu = c->relu};
        exo_tensor *y = exo_batch_norm(tape, x, weight, bias, mean, var, &opts);
        expect_no_error(tape, i);
        expect_value(y, &c->y, "y", i);
        backward(tape, y, &c->dy);
        expect_grad(x, &c->dx, "dx", i);
        expect_grad(weight, &c->dweight, "dweight", i);
        expect_grad(bias, &c->dbias, "dbias", i);
        expect_close(exo_params_buffers(params), &c->mean_after, TOLERANCE, "running_mean", i);
        expect_close(exo_params_buffers(params) + channels, &c->var_after, TOLERANCE, "running_var",
                     i);

        exo_tape_free(&tape);
        exo_params_free(&params);
        exo_model_drop(&model);
    }
}

static void
check_unary(exo_tensor *(*operation)(exo_tape *tape, exo_tensor *x), const struct golden *x_values,
            const struct golden *y_values, const struct golden *dy, const struct golden *dx,
            size_t index)
{
    exo_tape *tape = open_tape(true);
    exo_tensor *x = variable(tape, x_values);
    exo_tensor *y = operation(tape, x);
    expect_no_error(tape, index);
    expect_value(y, y_values, "y", index);
    backward(tape, y, dy);
    expect_grad(x, dx, "dx", index);
    exo_tape_free(&tape);
}

Test(golden, relu)
{
    for (size_t i = 0; i < COUNT(golden_relu); i++) {
        const struct golden_relu *c = &golden_relu[i];
        check_unary(exo_relu, &c->x, &c->y, &c->dy, &c->dx, i);
    }
}

Test(golden, tanh)
{
    for (size_t i = 0; i < COUNT(golden_tanh); i++) {
        const struct golden_tanh *c = &golden_tanh[i];
        check_unary(exo_tanh, &c->x, &c->y, &c->dy, &c->dx, i);
    }
}

Test(golden, max_pool2d)
{
    for (size_t i = 0; i < COUNT(golden_max_pool2d); i++) {
        const struct golden_max_pool2d *c = &golden_max_pool2d[i];
        exo_tape *tape = open_tape(true);
        exo_tensor *x = variable(tape, &c->x);
        exo_tensor *y = exo_max_pool2d(tape, x, c->size);
        expect_no_error(tape, i);
        expect_value(y, &c->y, "y", i);
        backward(tape, y, &c->dy);
        expect_grad(x, &c->dx, "dx", i);
        exo_tape_free(&tape);
    }
}

Test(golden, linear)
{
    for (size_t i = 0; i < COUNT(golden_linear); i++) {
        const struct golden_linear *c = &golden_linear[i];
        exo_tape *tape = open_tape(true);
        exo_tensor *x = variable(tape, &c->x);
        exo_tensor *weight = variable(tape, &c->weight);
        exo_tensor *bias = variable(tape, &c->bias);
        exo_tensor *y = exo_linear(tape, x, weight, bias);
        expect_no_error(tape, i);
        expect_value(y, &c->y, "y", i);
        backward(tape, y, &c->dy);
        expect_grad(x, &c->dx, "dx", i);
        expect_grad(weight, &c->dweight, "dweight", i);
        if (bias)
            expect_grad(bias, &c->dbias, "dbias", i);
        exo_tape_free(&tape);
    }
}

Test(golden, softmax_cross_entropy)
{
    for (size_t i = 0; i < COUNT(golden_cross_entropy); i++) {
        const struct golden_cross_entropy *c = &golden_cross_entropy[i];
        exo_tape *tape = open_tape(true);
        exo_tensor *logits = variable(tape, &c->logits);
        exo_tensor *labels = exo_tape_input(tape, EXO_I32, 1, c->logits.dims, c->labels);
        exo_tensor *loss = exo_softmax_cross_entropy(tape, logits, labels);
        cr_assert_eq(exo_tape_error(tape, NULL), EXO_OK);
        cr_expect_float_eq(exo_tensor_item(loss), c->loss, TOLERANCE * fmaxf(1, c->loss));
        cr_assert_eq(exo_tape_backward(tape, loss, 1, NULL), EXO_OK);
        expect_grad(logits, &c->dlogits, "dlogits", i);
        exo_tape_free(&tape);
    }
}

/* --- Whole models ----------------------------------------------------------------------------- */

/* A batch over golden values: `rows` samples of `x`. The fields have the dimensions of `x` after
 * dimension first_dim. */
static exo_batch
golden_batch(const struct golden *x, size_t first_dim, size_t rows, const float *values,
             const int32_t *labels)
{
    exo_batch batch = {.size = rows, .num_fields = 2};
    batch.fields[0] =
        (exo_field){.name = "x", .dtype = EXO_F32, .num_dims = x->num_dims - first_dim - 1};
    for (size_t i = 0; i < batch.fields[0].num_dims; i++)
        batch.fields[0].dims[i] = x->dims[first_dim + 1 + i];
    batch.fields[1] = (exo_field){.name = "label", .dtype = EXO_I32};
    batch.data[0] = (void *)(uintptr_t)values;
    batch.data[1] = (void *)(uintptr_t)labels;
    return batch;
}

static exo_params *
golden_model(exo_model **model, const exo_model_class *model_class, const struct golden *values)
{
    exo_err err = {0};
    exo_params *params = NULL;
    cr_assert_eq(exo_model_new(model, model_class, NULL, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_model_params(*model, 0, &params, &err), EXO_OK, "%s", err.text);
    cr_assert_eq(exo_params_numel(params), golden_numel(values));
    memcpy(exo_params_values(params), values->data, golden_numel(values) * sizeof(float));
    return params;
}

struct conv_block {
    exo_param weight, bias, scale, shift, mean, var;
};

struct small_cnn {
    struct conv_block block[2];
    exo_param weight1, bias1, weight2, bias2;
};

static exo_status
small_cnn_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    (void)config;
    static const char *const names[2][6] = {
        {"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias", "bn1.mean", "bn1.var"},
        {"conv2.weight", "conv2.bias", "bn2.weight", "bn2.bias", "bn2.mean", "bn2.var"},
    };
    static const size_t channels[] = {1, 3, 4};
    struct small_cnn *m = self;
    exo_init any = exo_init_constant(0);
    for (size_t i = 0; i < 2; i++) {
        struct conv_block *block = &m->block[i];
        size_t out[] = {channels[i + 1]};
        block->weight =
            exo_build_param(b, names[i][0], 4, (size_t[]){out[0], channels[i], 3, 3}, any);
        block->bias = exo_build_param(b, names[i][1], 1, out, any);
        block->scale = exo_build_param(b, names[i][2], 1, out, any);
        block->shift = exo_build_param(b, names[i][3], 1, out, any);
        block->mean = exo_build_buffer(b, names[i][4], 1, out, exo_init_constant(0));
        block->var = exo_build_buffer(b, names[i][5], 1, out, exo_init_constant(1));
    }
    m->weight1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){8, 36}, any);
    m->bias1 = exo_build_param(b, "fc1.bias", 1, (size_t[]){8}, any);
    m->weight2 = exo_build_param(b, "fc2.weight", 2, (size_t[]){4, 8}, any);
    m->bias2 = exo_build_param(b, "fc2.bias", 1, (size_t[]){4}, any);
    return exo_build_status(b, err);
}

static void
small_cnn_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct small_cnn *m = self;
    exo_tensor *h = exo_batch_tensor(t, batch, 0); /* (N, 1, 7, 6) */
    for (size_t i = 0; i < 2; i++) {
        const struct conv_block *block = &m->block[i];
        h = exo_conv2d(t, h, exo_tape_param(t, block->weight), exo_tape_param(t, block->bias),
                       &(exo_conv2d_opts){.padding = 1});
        h = exo_batch_norm(t, h, exo_tape_param(t, block->scale), exo_tape_param(t, block->shift),
                           exo_tape_param(t, block->mean), exo_tape_param(t, block->var),
                           &(exo_batch_norm_opts){.relu = true});
    }
    h = exo_flatten(t, exo_max_pool2d(t, h, 2)); /* (N, 36) */
    h = exo_relu(t, exo_linear(t, h, exo_tape_param(t, m->weight1), exo_tape_param(t, m->bias1)));
    h = exo_linear(t, h, exo_tape_param(t, m->weight2), exo_tape_param(t, m->bias2));
    exo_outputs_give(outputs, "logits", h);
}

static const exo_model_class small_cnn_class = {.name = "small_cnn",
                                                .state_size = sizeof(struct small_cnn),
                                                .build = small_cnn_build,
                                                .outputs = (const char *const[]){"logits", NULL},
                                                .forward = small_cnn_forward,
                                                .objective = &exo_classification};

Test(golden, cnn_loss_gradients_and_statistics)
{
    const struct golden_cnn *c = &golden_cnn[0];
    exo_model *model = NULL;
    exo_params *params = golden_model(&model, &small_cnn_class, &c->params);
    exo_batch batch = golden_batch(&c->x, 0, c->x.dims[0], c->x.data, c->labels);
    exo_tape *tape = NULL;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);

    exo_err err = {0};
    exo_params_zero_grads(params);
    exo_tape_begin(tape, params, &(exo_pass){.train = true, .grad = true});
    exo_tensor *loss = exo_model_loss(model, tape, &batch);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    cr_expect_float_eq(exo_tensor_item(loss), c->loss, TOLERANCE);
    cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
    expect_close(exo_params_grads(params), &c->grads, TOLERANCE, "gradient", 0);
    expect_close(exo_params_buffers(params), &c->buffers, TOLERANCE, "statistics", 0);

    /* Evaluation uses the statistics of the training pass. */
    exo_tape_begin(tape, params, &(exo_pass){.train = false});
    loss = exo_model_loss(model, tape, &batch);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    cr_expect_float_eq(exo_tensor_item(loss), c->eval_loss, TOLERANCE);

    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_model_drop(&model);
}

/* bf16 has 8 bits of mantissa: products are off by up to 2^-8 each, the loss by far less than 2
 * percent. */
Test(golden, cnn_loss_with_autocast)
{
    const struct golden_cnn *c = &golden_cnn[0];
    if (!numbers_bf16_runs())
        cr_skip("this processor has no bf16");
    exo_model *model = NULL;
    exo_params *params = golden_model(&model, &small_cnn_class, &c->params);
    exo_batch batch = golden_batch(&c->x, 0, c->x.dims[0], c->x.data, c->labels);
    exo_tape *tape = NULL;
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);

    exo_err err = {0};
    exo_tape_begin(tape, params, &(exo_pass){.train = true, .autocast = true});
    exo_tensor *loss = exo_model_loss(model, tape, &batch);
    cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
    cr_expect_float_eq(exo_tensor_item(loss), c->loss, 0.02f * c->loss);

    exo_tape_free(&tape);
    exo_params_free(&params);
    exo_model_drop(&model);
}

struct small_mlp {
    exo_param weight1, bias1, weight2, bias2;
};

static exo_status
small_mlp_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    (void)config;
    struct small_mlp *m = self;
    exo_init any = exo_init_constant(0);
    m->weight1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){8, 5}, any);
    m->bias1 = exo_build_param(b, "fc1.bias", 1, (size_t[]){8}, any);
    m->weight2 = exo_build_param(b, "fc2.weight", 2, (size_t[]){3, 8}, any);
    m->bias2 = exo_build_param(b, "fc2.bias", 1, (size_t[]){3}, any);
    return exo_build_status(b, err);
}

static void
small_mlp_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct small_mlp *m = self;
    exo_tensor *h = exo_batch_tensor(t, batch, 0); /* (N, 5) */
    h = exo_tanh(t, exo_linear(t, h, exo_tape_param(t, m->weight1), exo_tape_param(t, m->bias1)));
    h = exo_linear(t, h, exo_tape_param(t, m->weight2), exo_tape_param(t, m->bias2));
    exo_outputs_give(outputs, "logits", h);
}

static const exo_model_class small_mlp_class = {.name = "small_mlp",
                                                .state_size = sizeof(struct small_mlp),
                                                .build = small_mlp_build,
                                                .outputs = (const char *const[]){"logits", NULL},
                                                .forward = small_mlp_forward,
                                                .objective = &exo_classification};

Test(golden, first_steps_with_adamw)
{
    const struct golden_curve *c = &golden_curve[0];
    size_t steps = c->x.dims[0], rows = c->x.dims[1], features = c->x.dims[2];
    exo_model *model = NULL;
    exo_params *params = golden_model(&model, &small_mlp_class, &c->params);
    exo_optim_spec spec = exo_optim_spec_init(EXO_ADAMW);
    spec.lr = c->lr;
    spec.weight_decay = c->weight_decay;
    exo_optim *optim = NULL;
    exo_tape *tape = NULL;
    cr_assert_eq(exo_optim_new(&optim, &spec, exo_device_cpu(), exo_params_numel(params), NULL),
                 EXO_OK);
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);

    for (size_t step = 0; step < steps; step++) {
        exo_batch batch = golden_batch(&c->x, 1, rows, c->x.data + step * rows * features,
                                       c->labels + step * rows);
        exo_err err = {0};
        exo_params_zero_grads(params);
        exo_tape_begin(tape, params, &(exo_pass){.train = true, .grad = true, .step = step});
        exo_tensor *loss = exo_model_loss(model, tape, &batch);
        cr_assert_eq(exo_tape_error(tape, &err), EXO_OK, "%s", err.text);
        cr_expect_float_eq(exo_tensor_item(loss), c->losses.data[step], TOLERANCE,
                           "step %zu: %.9g, PyTorch's %.9g", step, (double)exo_tensor_item(loss),
                           (double)c->losses.data[step]);
        cr_assert_eq(exo_tape_backward(tape, loss, 1, &err), EXO_OK, "%s", err.text);
        exo_optim_step(
            optim, exo_host_array(EXO_F32, exo_params_values(params), exo_params_numel(params)),
            exo_host_array(EXO_F32, exo_params_grads(params), exo_params_numel(params)), spec.lr);
    }
    expect_close(exo_params_values(params), &c->params_after, TOLERANCE, "parameter", 0);

    exo_tape_free(&tape);
    exo_optim_free(&optim);
    exo_params_free(&params);
    exo_model_drop(&model);
}
