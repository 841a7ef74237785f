/* Gradients of each operation against central finite differences, through the tape as a model uses
 * it. Each check owns its tape. Read next: exogym/tensor.h, exogym/loss.h. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/exogym.h>

#include "nn/ops/head_norms.h"
#include "support/numbers.h"

enum {
    MAX_VARIABLES = 4
};

/* An operation as a function of a few variables. */
struct check {
    const char *name;
    size_t count;
    struct {
        size_t num_dims;
        size_t dims[4];
    } variable[MAX_VARIABLES];
    exo_tensor *(*run)(exo_tape *tape, exo_tensor **v);
};

static exo_tensor *
run_conv(exo_tape *t, exo_tensor **v)
{
    return exo_conv2d(t, v[0], v[1], v[2], &(exo_conv2d_opts){.stride = 2, .padding = 1});
}

/* The buffers of the statistics are reset in each pass, so they do not affect the slope. */
static float mean_buffer[8], var_buffer[8];

static exo_tensor *
run_norm(exo_tape *t, exo_tensor **v, bool relu)
{
    size_t dims[4];
    exo_tensor_dims(v[0], dims);
    for (int i = 0; i < 8; i++) {
        mean_buffer[i] = 0.1f;
        var_buffer[i] = 1.5f;
    }
    return exo_batch_norm(t, v[0], v[1], v[2], exo_tape_input(t, EXO_F32, 1, &dims[1], mean_buffer),
                          exo_tape_input(t, EXO_F32, 1, &dims[1], var_buffer),
                          &(exo_batch_norm_opts){.relu = relu});
}

static exo_tensor *
run_batch_norm(exo_tape *t, exo_tensor **v)
{
    return run_norm(t, v, false);
}

static exo_tensor *
run_batch_norm_relu(exo_tape *t, exo_tensor **v)
{
    return run_norm(t, v, true);
}

static exo_tensor *
run_relu(exo_tape *t, exo_tensor **v)
{
    return exo_relu(t, v[0]);
}

static exo_tensor *
run_tanh(exo_tape *t, exo_tensor **v)
{
    return exo_tanh(t, v[0]);
}

static exo_tensor *
run_max_pool(exo_tape *t, exo_tensor **v)
{
    return exo_max_pool2d(t, v[0], 2);
}

static exo_tensor *
run_dropout(exo_tape *t, exo_tensor **v)
{
    return exo_dropout(t, v[0], 0.4f);
}

static exo_tensor *
run_dropout2d(exo_tape *t, exo_tensor **v)
{
    return exo_dropout2d(t, v[0], 0.4f);
}

static exo_tensor *
run_flatten(exo_tape *t, exo_tensor **v)
{
    return exo_flatten(t, exo_max_pool2d(t, v[0], 1));
}

static exo_tensor *
run_linear(exo_tape *t, exo_tensor **v)
{
    return exo_linear(t, v[0], v[1], v[2]);
}

/* Rows 1 to 3 of the weight have a part of rank 2. */
static exo_tensor *
run_lora(exo_tape *t, exo_tensor **v)
{
    return exo_lora_linear(t, v[0], v[1], NULL,
                           &(exo_lora_opts){.parts = {{.a = v[2], .b = v[3], .first = 1}},
                                            .count = 1,
                                            .scale = 0.7f,
                                            .activation = EXO_GELU});
}

/* Two parts share out the rows of a weight that is not learned. */
static exo_tensor *
run_lora_residual(exo_tape *t, exo_tensor **v)
{
    static const float weight[30] = {0.5f, -1, 0.25f, 0, 2, 1, 0.125f};
    exo_tensor *w = exo_tape_input(t, EXO_F32, 2, (size_t[]){5, 6}, weight);
    return exo_lora_linear(
        t, v[0], w, NULL,
        &(exo_lora_opts){.parts = {{.a = v[1], .b = v[2]}, {.a = v[1], .b = v[2], .first = 3}},
                         .count = 2,
                         .scale = 1.5f,
                         .residual = v[3]});
}

static exo_tensor *
run_add(exo_tape *t, exo_tensor **v)
{
    return exo_add(t, v[0], v[1]);
}

static exo_tensor *
run_mul(exo_tape *t, exo_tensor **v)
{
    return exo_mul(t, v[0], v[1]);
}

static exo_tensor *
run_scale(exo_tape *t, exo_tensor **v)
{
    return exo_scale(t, v[0], -1.7f);
}

static exo_tensor *
run_mean(exo_tape *t, exo_tensor **v)
{
    return exo_mean(t, v[0]);
}

static exo_tensor *
run_cross_entropy(exo_tape *t, exo_tensor **v)
{
    static const int32_t labels[5] = {0, 3, 1, 2, 3};
    return exo_softmax_cross_entropy(t, v[0], exo_tape_input(t, EXO_I32, 1, (size_t[]){5}, labels));
}

/* A tensor that is used three times. Its gradients must add up in any order of the operations. */
static exo_tensor *
run_shared(exo_tape *t, exo_tensor **v)
{
    exo_tensor *y = exo_linear(t, v[0], v[1], NULL);
    return exo_add(t, exo_mul(t, exo_tanh(t, y), exo_relu(t, y)), exo_scale(t, y, 0.5f));
}

/* The same with images, through operations that change gradients in place. */
static exo_tensor *
run_shared_images(exo_tape *t, exo_tensor **v)
{
    exo_tensor *y = exo_conv2d(t, v[0], v[1], NULL, &(exo_conv2d_opts){.padding = 1});
    exo_tensor *a = exo_conv2d(t, exo_relu(t, y), v[1], NULL, &(exo_conv2d_opts){.padding = 1});
    exo_tensor *b = exo_dropout2d(t, y, 0.3f);
    return exo_add(t, exo_add(t, a, b), exo_dropout(t, y, 0.3f));
}

static const int32_t tokens[6] = {2, 0, 3, 2, -1, 1};

static exo_tensor *
run_embedding(exo_tape *t, exo_tensor **v)
{
    static const int32_t some[6] = {2, 0, 3, 2, 2, 1};
    return exo_add_positions(
        t, exo_embedding(t, exo_tape_input(t, EXO_I32, 2, (size_t[]){2, 3}, some), v[0]), v[1], 3,
        1);
}

static exo_tensor *
run_gelu(exo_tape *t, exo_tensor **v)
{
    return exo_linear_activation(t, v[0], v[1], v[2], EXO_GELU);
}

static exo_tensor *
run_gelu_tanh(exo_tape *t, exo_tensor **v)
{
    return exo_linear_activation(t, v[0], v[1], v[2], EXO_GELU_TANH);
}

static exo_tensor *
run_silu(exo_tape *t, exo_tensor **v)
{
    return exo_linear_activation(t, v[0], v[1], NULL, EXO_SILU);
}

/* One layer alone uses the activation. */
static exo_tensor *
run_mlp(exo_tape *t, exo_tensor **v)
{
    exo_tensor *inner = exo_linear_activation(t, v[0], v[1], v[2], EXO_GELU_TANH);
    return exo_linear(t, inner, v[3], NULL);
}

/* Two layers use it, in one order of backward and in the other. */
static exo_tensor *
run_shared_activation(exo_tape *t, exo_tensor **v)
{
    exo_tensor *inner = exo_linear_activation(t, v[0], v[1], v[2], EXO_SILU);
    exo_tensor *first = exo_linear(t, inner, v[3], NULL);
    exo_tensor *last = exo_linear(t, exo_tanh(t, inner), v[3], NULL);
    return exo_add(t, exo_add(t, first, last), exo_linear(t, inner, v[3], NULL));
}

/* The residual is used twice, as in a model. */
static exo_tensor *
run_residual(exo_tape *t, exo_tensor **v)
{
    return exo_linear_residual(t, exo_tanh(t, v[0]), v[1], v[2], v[0]);
}

static exo_tensor *
run_gated(exo_tape *t, exo_tensor **v)
{
    return exo_gated(t, v[0], EXO_SILU);
}

static exo_tensor *
run_layer_norm(exo_tape *t, exo_tensor **v)
{
    return exo_layer_norm(t, v[0], v[1], v[2], 1e-5f);
}

static exo_tensor *
run_rms_norm(exo_tape *t, exo_tensor **v)
{
    return exo_rms_norm(t, v[0], v[1], 1e-5f);
}

static exo_tensor *
run_head_norms(exo_tape *t, exo_tensor **v)
{
    return exo_head_norms(t, v[0], 3, 2, v[1], v[2], 1e-5f);
}

/* The gradient of x begins with that of the sum. */
static exo_tensor *
run_head_norms_and_more(exo_tape *t, exo_tensor **v)
{
    return exo_add(t, exo_head_norms(t, v[0], 1, 1, v[1], v[1], 1e-5f), v[0]);
}

static exo_tensor *
run_linear_cross_entropy(exo_tape *t, exo_tensor **v)
{
    return exo_linear_cross_entropy(t, v[0], v[1],
                                    exo_tape_input(t, EXO_I32, 1, (size_t[]){6}, tokens));
}

static exo_tensor *
run_log_probs(exo_tape *t, exo_tensor **v)
{
    return exo_linear_log_probs(t, v[0], v[1], exo_tape_input(t, EXO_I32, 1, (size_t[]){6}, tokens),
                                0.7f);
}

/* Logits as a tensor, and logits as a product with a weight. */
static exo_tensor *
run_rows(exo_tape *t, exo_logits logits)
{
    exo_tensor *log_probs =
        exo_log_probs(t, logits, exo_tape_input(t, EXO_I32, 1, (size_t[]){6}, tokens), 0.7f);
    return exo_add(t, log_probs, exo_scale(t, exo_entropy(t, logits, 1.3f), 2));
}

static exo_tensor *
run_whole_rows(exo_tape *t, exo_tensor **v)
{
    return run_rows(t, (exo_logits){.x = v[0]});
}

static exo_tensor *
run_product_rows(exo_tape *t, exo_tensor **v)
{
    return run_rows(t, (exo_logits){.x = v[0], .weight = v[1]});
}

static exo_tensor *
run_ignoring_cross_entropy(exo_tape *t, exo_tensor **v)
{
    return exo_cross_entropy(t, (exo_logits){.x = v[0]},
                             exo_tape_input(t, EXO_I32, 1, (size_t[]){6}, tokens));
}

/* Ratios and values stay away from the bounds of the clips, where the slope is not defined. */
static const float masks[6] = {1, 0, 0.5f, 2, 1, 1}, by[6] = {1, 9, -2, 0.5f, -1, 2};

static exo_tensor *
row(exo_tape *t, const float *values)
{
    return exo_tape_input(t, EXO_F32, 1, (size_t[]){6}, values);
}

static exo_tensor *
run_policy_loss(exo_tape *t, exo_tensor **v)
{
    static const float old[6] = {0};
    exo_tensor *log_probs = exo_scale(t, exo_tanh(t, v[0]), 0.4f);
    return exo_policy_loss(t, log_probs, row(t, old), row(t, by), row(t, masks), 0.5f);
}

static exo_tensor *
run_policy_terms(exo_tape *t, exo_tensor **v)
{
    static const float old[6] = {0, 0, 2, 0, 0, -2};
    exo_tensor *log_probs = exo_scale(t, exo_tanh(t, v[0]), 0.4f);
    return exo_policy_terms(t, log_probs, row(t, old), row(t, by), row(t, masks),
                            (exo_policy_clip){.low = 0.5, .high = 0.6, .dual = 3});
}

static exo_tensor *
run_kl_terms(exo_tape *t, exo_tensor **v)
{
    static const float ref[6] = {-1, 0, 2, 0.5f, 0, -2};
    exo_tensor *k1 = exo_kl_terms(t, v[0], row(t, ref), row(t, masks), EXO_KL_K1);
    exo_tensor *k2 = exo_kl_terms(t, v[0], row(t, ref), NULL, EXO_KL_K2);
    return exo_add(t, exo_add(t, k1, k2), exo_kl_terms(t, v[0], row(t, ref), NULL, EXO_KL_K3));
}

/* Two sequences, of which one is empty, and rows of none. v[0] is used twice, so that gradients are
 * added. */
static exo_tensor *
run_sequence_sum(exo_tape *t, exo_tensor **v)
{
    static const int32_t offsets[4] = {1, 3, 3, 5};
    exo_tensor *o = exo_tape_input(t, EXO_I32, 1, (size_t[]){4}, offsets);
    return exo_mul(t, exo_sequence_sum(t, v[0], row(t, masks), o),
                   exo_sequence_sum(t, v[0], NULL, o));
}

static exo_tensor *
run_masked_sum(exo_tape *t, exo_tensor **v)
{
    return exo_masked_sum(t, v[0], row(t, masks));
}

static exo_tensor *
run_value_loss(exo_tape *t, exo_tensor **v)
{
    static const float old[6] = {0, 0, 0, 5, -5, 0};
    return exo_value_loss(t, exo_tanh(t, v[0]), row(t, old), row(t, by), row(t, masks), 1.5f);
}

static exo_tensor *
run_ranking_loss(exo_tape *t, exo_tensor **v)
{
    return exo_ranking_loss(t, v[0]);
}

static exo_tensor *
run_smoothed_ranking_loss(exo_tape *t, exo_tensor **v)
{
    return exo_smoothed_ranking_loss(t, v[0], 0.2f);
}

static exo_tensor *
run_masked_mean(exo_tape *t, exo_tensor **v)
{
    return exo_masked_mean(t, v[0], row(t, masks));
}

static exo_tensor *
checkpointed(void *context, exo_tape *t, exo_tensor *x)
{
    exo_tensor **v = context;
    exo_tensor *y = exo_linear_activation(t, x, v[1], v[2], EXO_SILU);
    return exo_add(t, exo_dropout(t, y, 0.3f), exo_scale(t, x, 0.5f));
}

/* The input is also used outside the checkpoint. */
static exo_tensor *
run_checkpoint(exo_tape *t, exo_tensor **v)
{
    exo_tensor *y = exo_checkpoint(t, exo_tanh(t, v[0]), checkpointed, v);
    return exo_mul(t, exo_checkpoint(t, y, checkpointed, v), v[0]);
}

static const struct check checks[] = {
    {"conv2d", 3, {{4, {3, 2, 5, 6}}, {4, {4, 2, 3, 3}}, {1, {4}}}, run_conv},
    {"batch_norm", 3, {{4, {4, 3, 2, 3}}, {1, {3}}, {1, {3}}}, run_batch_norm},
    {"batch_norm of rows", 3, {{2, {7, 5}}, {1, {5}}, {1, {5}}}, run_batch_norm},
    {"batch_norm with relu", 3, {{4, {4, 3, 2, 3}}, {1, {3}}, {1, {3}}}, run_batch_norm_relu},
    {"relu", 1, {{2, {4, 9}}}, run_relu},
    {"tanh", 1, {{2, {4, 9}}}, run_tanh},
    {"max_pool2d", 1, {{4, {2, 3, 4, 5}}}, run_max_pool},
    {"dropout", 1, {{2, {6, 7}}}, run_dropout},
    {"dropout2d", 1, {{4, {4, 5, 2, 2}}}, run_dropout2d},
    {"flatten", 1, {{4, {3, 4, 2, 3}}}, run_flatten},
    {"linear", 3, {{2, {4, 6}}, {2, {5, 6}}, {1, {5}}}, run_linear},
    {"lora_linear", 4, {{2, {4, 6}}, {2, {5, 6}}, {2, {2, 6}}, {2, {3, 2}}}, run_lora},
    {"lora_linear with a residual",
     4,
     {{2, {4, 6}}, {2, {3, 6}}, {2, {2, 3}}, {2, {4, 5}}},
     run_lora_residual},
    {"add", 2, {{2, {3, 4}}, {2, {3, 4}}}, run_add},
    {"mul", 2, {{2, {3, 4}}, {2, {3, 4}}}, run_mul},
    {"scale", 1, {{2, {3, 4}}}, run_scale},
    {"mean", 1, {{2, {3, 4}}}, run_mean},
    {"softmax_cross_entropy", 1, {{2, {5, 4}}}, run_cross_entropy},
    {"embedding and positions", 2, {{2, {5, 3}}, {2, {4, 3}}}, run_embedding},
    {"linear and gelu", 3, {{2, {4, 6}}, {2, {5, 6}}, {1, {5}}}, run_gelu},
    {"linear and gelu by tanh", 3, {{2, {4, 6}}, {2, {5, 6}}, {1, {5}}}, run_gelu_tanh},
    {"linear and silu", 2, {{2, {4, 6}}, {2, {5, 6}}}, run_silu},
    {"two layers", 4, {{2, {4, 6}}, {2, {5, 6}}, {1, {5}}, {2, {3, 5}}}, run_mlp},
    {"an activation used three times",
     4,
     {{2, {4, 6}}, {2, {5, 6}}, {1, {5}}, {2, {3, 5}}},
     run_shared_activation},
    {"linear and residual", 3, {{2, {4, 6}}, {2, {6, 6}}, {1, {6}}}, run_residual},
    {"gated", 1, {{2, {4, 6}}}, run_gated},
    {"layer_norm", 3, {{2, {5, 7}}, {1, {7}}, {1, {7}}}, run_layer_norm},
    {"rms_norm", 2, {{2, {5, 7}}, {1, {7}}}, run_rms_norm},
    {"head_norms", 3, {{2, {3, 28}}, {1, {4}}, {1, {4}}}, run_head_norms},
    {"head_norms of one weight, and its input",
     2,
     {{2, {3, 9}}, {1, {3}}},
     run_head_norms_and_more},
    {"linear_cross_entropy", 2, {{2, {6, 3}}, {2, {4, 3}}}, run_linear_cross_entropy},
    {"linear_log_probs", 2, {{2, {6, 3}}, {2, {4, 3}}}, run_log_probs},
    {"log_probs and entropy", 1, {{2, {6, 4}}}, run_whole_rows},
    {"log_probs and entropy of a product", 2, {{2, {6, 3}}, {2, {4, 3}}}, run_product_rows},
    {"cross_entropy without some targets", 1, {{2, {6, 4}}}, run_ignoring_cross_entropy},
    {"policy_loss", 1, {{1, {6}}}, run_policy_loss},
    {"policy_terms", 1, {{1, {6}}}, run_policy_terms},
    {"kl_terms", 1, {{1, {6}}}, run_kl_terms},
    {"sequence_sum", 1, {{1, {6}}}, run_sequence_sum},
    {"masked_sum", 1, {{2, {2, 3}}}, run_masked_sum},
    {"value_loss", 1, {{1, {6}}}, run_value_loss},
    {"smoothed ranking_loss", 1, {{2, {3, 2}}}, run_smoothed_ranking_loss},
    {"ranking_loss", 1, {{2, {3, 2}}}, run_ranking_loss},
    {"masked_mean", 1, {{2, {2, 3}}}, run_masked_mean},
    {"checkpoint", 3, {{2, {4, 5}}, {2, {5, 5}}, {1, {5}}}, run_checkpoint},
    {"a tensor used three times", 2, {{2, {3, 4}}, {2, {5, 4}}}, run_shared},
    {"images used three times", 2, {{4, {2, 3, 3, 3}}, {4, {3, 3, 3, 3}}}, run_shared_images},
};

/* Computes sum(f(v) * r) for a fixed r. v NULL: without gradients. */
static double
evaluate(exo_tape *tape, const struct check *c, float *const *values, bool train, exo_tensor **v)
{
    static float r[4096];
    const exo_pass pass = {.train = train, .grad = v != NULL, .seed = 1};
    exo_tensor *local[MAX_VARIABLES];
    exo_tensor **variable = v ? v : local;
    exo_err err = {0};
    exo_tape_begin(tape, NULL, &pass);
    for (size_t i = 0; i < c->count; i++)
        variable[i] =
            exo_tape_variable(tape, c->variable[i].num_dims, c->variable[i].dims, values[i]);
    exo_tensor *y = c->run(tape, variable);
    cr_assert_not_null(y, "%s: %s", c->name, (exo_tape_error(tape, &err), err.text));
    size_t dims[4], n = exo_tensor_dims(y, dims), numel = exo_tensor_numel(y);
    cr_assert_leq(numel, sizeof r / sizeof r[0]);
    float *numbers = numbers_new(numel, 99);
    memcpy(r, numbers, numel * sizeof *r);
    free(numbers);

    /* The sum is in double, because the rounding of an fp32 mean would hide the differences. */
    float *value = malloc(numel * sizeof *value);
    double sum = 0;
    exo_tensor_read(y, value);
    for (size_t i = 0; i < numel; i++)
        sum += (double)value[i] * (double)r[i];
    free(value);
    if (v) {
        exo_tensor *loss =
            exo_mean(tape, exo_mul(tape, y, exo_tape_input(tape, EXO_F32, n, dims, r)));
        cr_assert_not_null(loss);
        cr_assert_eq(exo_tape_backward(tape, loss, (float)numel, &err), EXO_OK, "%s: %s", c->name,
                     err.text);
    }
    return sum;
}

static void
check_gradients(const struct check *c, bool train)
{
    exo_tape *tape = NULL;
    exo_tensor *v[MAX_VARIABLES];
    float *values[MAX_VARIABLES], *grads[MAX_VARIABLES];
    size_t numel[MAX_VARIABLES];
    cr_assert_eq(exo_tape_new(&tape, NULL), EXO_OK);
    for (size_t i = 0; i < c->count; i++) {
        numel[i] = 1;
        for (size_t d = 0; d < c->variable[i].num_dims; d++)
            numel[i] *= c->variable[i].dims[d];
        values[i] = numbers_new(numel[i], 20 + i);
    }
    evaluate(tape, c, values, train, v);
    for (size_t i = 0; i < c->count; i++) {
        grads[i] = malloc(numel[i] * sizeof(float));
        exo_tensor_grad(v[i], grads[i]);
    }
    const float step = 1e-2f;
    size_t wrong = 0, all = 0;
    for (size_t i = 0; i < c->count; i++) {
        for (size_t k = 0; k < numel[i]; k++) {
            float kept = values[i][k];
            values[i][k] = kept + step;
            double above = evaluate(tape, c, values, train, NULL);
            values[i][k] = kept - step;
            double below = evaluate(tape, c, values, train, NULL);
            values[i][k] = kept;
            double slope = (above - below) / (2 * (double)step), got = (double)grads[i][k];
            all++;
            if (fabs(slope - got) > 2e-2 * (1 + fabs(slope)))
                wrong++;
        }
        free(grads[i]);
    }
    /* A step may cross a kink of ReLU or of a maximum, where the slope lies between two values.
     * Elsewhere each element must agree. */
    bool kinks = strstr(c->name, "relu") || strstr(c->name, "max_pool") ||
                 strstr(c->name, "three times") || strstr(c->name, "flatten");
    cr_expect_leq(wrong, kinks ? all / 12 : 0, "%s%s: %zu of %zu gradients are wrong", c->name,
                  train ? "" : " outside training", wrong, all);
    for (size_t i = 0; i < c->count; i++)
        free(values[i]);
    exo_tape_free(&tape);
}

Test(gradcheck, every_operation)
{
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        check_gradients(&checks[i], true);
        check_gradients(&checks[i], false);
    }
}
