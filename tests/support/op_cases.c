/* Cases of the tape's operations: see kernel_cases.h. */
#include "support/kernel_cases.h"

#include "nn/device/device_impl.h"

/* Runs a kernel and waits for it. */
#define RUN(kernel_name, ...)                                                                      \
    do {                                                                                           \
        exo_status st_ = x->device->device_class->kernels->kernel_name(                            \
            x->device, &(const exo_##kernel_name##_args){__VA_ARGS__}, err);                       \
        return st_ == EXO_OK ? exo_device_synchronize(x->device, err) : st_;                       \
    } while (0)

#define CASE(NAME) static exo_status NAME(const exo_array *x, double *sum, exo_err *err)

/* Converts half of the numbers of x[a] to bf16, in the memory of x[b]. */
static void *
as_bf16(const exo_array *x, size_t a, size_t b)
{
    exo_array half = exo_array_part(x[b], 0, x->count / 2);
    half.dtype = EXO_BF16;
    exo_vec_cast(half, exo_array_part(x[a], 0, half.count));
    return half.data;
}

CASE(mean)
{
    (void)sum;
    if (x->count == 0)
        return EXO_OK;
    RUN(mean, .count = x->count, .y = x[0].data, .x = x[1].data);
}

CASE(mean_backward)
{
    (void)sum;
    RUN(mean_backward, .count = x->count, .dx = x[0].data, .dy = x[1].data);
}

CASE(mean_backward_add)
{
    (void)sum;
    RUN(mean_backward, .count = x->count, .dx = x[0].data, .dy = x[1].data, .add = true);
}

CASE(relu)
{
    (void)sum;
    RUN(relu, .count = x->count, .dtype = EXO_F32, .y = x[0].data, .x = x[1].data);
}

CASE(relu_bf16)
{
    (void)sum;
    void *in = as_bf16(x, 0, 1);
    RUN(relu, .count = x->count / 2, .dtype = EXO_BF16, .y = x[2].data, .x = in);
}

CASE(relu_backward)
{
    (void)sum;
    RUN(relu_backward, .count = x->count, .dtype = EXO_F32, .dx = x[1].data, .y = x[0].data,
        .dy = x[1].data);
}

CASE(relu_backward_add)
{
    (void)sum;
    RUN(relu_backward, .count = x->count, .dtype = EXO_F32, .dx = x[2].data, .y = x[0].data,
        .dy = x[1].data, .add = true);
}

CASE(tanh_forward)
{
    (void)sum;
    RUN(tanh, .count = x->count, .y = x[0].data, .x = x[1].data);
}

CASE(tanh_backward)
{
    (void)sum;
    RUN(tanh_backward, .count = x->count, .dx = x[2].data, .y = x[3].data, .dy = x[1].data);
}

CASE(tanh_backward_add)
{
    (void)sum;
    RUN(tanh_backward, .count = x->count, .dx = x[2].data, .y = x[3].data, .dy = x[1].data,
        .add = true);
}

CASE(dropout_draw)
{
    (void)sum;
    RUN(dropout_draw, .count = 4 * x->count, .keep = x[4].data, .seed = 7, .step = 3, .node = 1,
        .ordinal = 1029, .threshold = 858993459);
}

CASE(dropout)
{
    (void)sum;
    RUN(dropout, .count = x->count, .dtype = EXO_F32, .y = x[0].data, .x = x[1].data,
        .keep = x[4].data, .factor = 1.25f);
}

CASE(dropout_add_bf16)
{
    (void)sum;
    void *in = as_bf16(x, 0, 1), *out = as_bf16(x, 3, 2);
    RUN(dropout, .count = x->count / 2, .dtype = EXO_BF16, .y = out, .x = in, .keep = x[4].data,
        .factor = 1.25f, .add = true);
}

CASE(select)
{
    (void)sum;
    RUN(select, .count = x->count, .y = x[0].data, .keep = x[4].data, .value = 1.25f);
}

/* --- Images: two samples of 5 x W pixels with 3 channels -------------------------------------- */

enum {
    SAMPLES = 2,
    HEIGHT = 5,
    CHANNELS = 3
};

static size_t
width_of(size_t count)
{
    return count / (SAMPLES * HEIGHT * CHANNELS);
}

CASE(channel_scale)
{
    (void)sum;
    RUN(channel_scale, .samples = SAMPLES, .rows = HEIGHT * width_of(x->count),
        .channels = CHANNELS, .dtype = EXO_F32, .y = x[0].data, .x = x[1].data,
        .factor = x[3].data);
}

CASE(channel_scale_add)
{
    (void)sum;
    RUN(channel_scale, .samples = SAMPLES, .rows = HEIGHT * width_of(x->count),
        .channels = CHANNELS, .dtype = EXO_F32, .y = x[0].data, .x = x[1].data, .factor = x[3].data,
        .add = true);
}

CASE(max_pool)
{
    (void)sum;
    RUN(max_pool, .samples = SAMPLES, .height = HEIGHT, .width = width_of(x->count),
        .channels = CHANNELS, .size = 2, .dtype = EXO_F32, .y = x[0].data, .winner = x[4].data,
        .x = x[1].data);
}

CASE(max_pool_3_bf16)
{
    (void)sum;
    void *in = as_bf16(x, 0, 1);
    RUN(max_pool, .samples = SAMPLES, .height = HEIGHT, .width = width_of(x->count / 2),
        .channels = CHANNELS, .size = 3, .dtype = EXO_BF16, .y = x[2].data, .winner = x[4].data,
        .x = in);
}

/* A forward pass first computes the winners. */
static exo_status
pool_backward(const exo_array *x, bool add, exo_err *err)
{
    size_t width = width_of(x->count);
    exo_device_run(x->device, max_pool, .samples = SAMPLES, .height = HEIGHT, .width = width,
                   .channels = CHANNELS, .size = 2, .dtype = EXO_F32, .y = x[0].data,
                   .winner = x[4].data, .x = x[1].data);
    RUN(max_pool_backward, .samples = SAMPLES, .height = HEIGHT, .width = width,
        .channels = CHANNELS, .size = 2, .dtype = EXO_F32, .dx = x[1].data, .winner = x[4].data,
        .dy = x[2].data, .add = add);
}

CASE(max_pool_backward)
{
    (void)sum;
    return pool_backward(x, false, err);
}

CASE(max_pool_backward_add)
{
    (void)sum;
    return pool_backward(x, true, err);
}

CASE(transpose)
{
    (void)sum;
    RUN(transpose, .samples = SAMPLES, .rows = HEIGHT * CHANNELS, .columns = width_of(x->count),
        .dtype = EXO_F32, .y = x[0].data, .x = x[1].data);
}

CASE(transpose_add)
{
    (void)sum;
    RUN(transpose, .samples = SAMPLES, .rows = HEIGHT * CHANNELS, .columns = width_of(x->count),
        .dtype = EXO_F32, .y = x[0].data, .x = x[1].data, .add = true);
}

/* --- Gates: rows of 2 x 7; of 2 x 8 for SiLU and GELU by tanh --------------------------------- */

enum {
    WIDTH = 7
};

static size_t
gate_width(exo_activation activation)
{
    return activation == EXO_GELU_TANH || activation == EXO_SILU ? WIDTH + 1 : WIDTH;
}

static exo_status
gate_of(const exo_array *x, exo_activation activation, exo_err *err)
{
    const size_t width = gate_width(activation);
    RUN(gate, .rows = x->count / (2 * width), .width = width, .activation = activation,
        .dtype = EXO_F32, .y = x[0].data, .x = x[1].data);
}

static exo_status
gate_backward_of(const exo_array *x, exo_activation activation, bool add, exo_err *err)
{
    const size_t width = gate_width(activation);
    RUN(gate_backward, .rows = x->count / (2 * width), .width = width, .activation = activation,
        .dtype = EXO_F32, .dx = x[0].data, .x = x[1].data, .dy = x[2].data, .add = add);
}

#define GATE(NAME, ACTIVATION)                                                                     \
    CASE(gate_##NAME)                                                                              \
    {                                                                                              \
        (void)sum;                                                                                 \
        return gate_of(x, ACTIVATION, err);                                                        \
    }                                                                                              \
    CASE(gate_backward_##NAME)                                                                     \
    {                                                                                              \
        (void)sum;                                                                                 \
        return gate_backward_of(x, ACTIVATION, (ACTIVATION) == EXO_SILU, err);                     \
    }

GATE(linear, EXO_LINEAR)
GATE(relu, EXO_RELU)
GATE(gelu, EXO_GELU)
GATE(gelu_tanh, EXO_GELU_TANH)
GATE(silu, EXO_SILU)

/* --- Losses: rows of 7 logits, few of which have a target; half of a mask is zeros ------------ */

CASE(log_probs)
{
    (void)sum;
    RUN(log_probs, .rows = x->count / WIDTH, .columns = WIDTH, .y = x[0].data, .log_sum = x[2].data,
        .x = x[1].data, .targets = x[4].data, .scale = 1.25f);
}

CASE(log_probs_backward)
{
    (void)sum;
    RUN(log_probs_backward, .rows = x->count / WIDTH, .columns = WIDTH, .dx = x[0].data,
        .x = x[1].data, .log_sum = x[3].data, .dy = x[2].data, .targets = x[4].data,
        .scale = 1.25f);
}

CASE(log_probs_backward_add)
{
    (void)sum;
    RUN(log_probs_backward, .rows = x->count / WIDTH, .columns = WIDTH, .dx = x[0].data,
        .x = x[1].data, .log_sum = x[3].data, .dy = x[2].data, .targets = x[4].data, .scale = 1.25f,
        .add = true);
}

CASE(entropy)
{
    (void)sum;
    RUN(entropy, .rows = x->count / WIDTH, .columns = WIDTH, .y = x[0].data, .log_sum = x[2].data,
        .x = x[1].data, .scale = 0.75f);
}

CASE(entropy_backward)
{
    (void)sum;
    RUN(entropy_backward, .rows = x->count / WIDTH, .columns = WIDTH, .dx = x[0].data,
        .x = x[1].data, .log_sum = x[3].data, .y = x[3].data, .dy = x[2].data, .scale = 0.75f,
        .add = true);
}

CASE(policy_loss)
{
    (void)sum;
    RUN(policy_loss, .count = x->count, .y = x[0].data, .slope = x[2].data, .log_probs = x[1].data,
        .old = x[3].data, .advantages = x[2].data, .clip = {.low = 0.2, .high = 0.2});
}

/* Sets the negative half of x[0] to 0, which makes it a mask. */
static const float *
as_mask(const exo_array *x)
{
    exo_device_run(x->device, relu, .count = x->count, .dtype = EXO_F32, .y = x[0].data,
                   .x = x[0].data);
    return x[0].data;
}

CASE(policy_loss_masked)
{
    (void)sum;
    const float *mask = as_mask(x);
    RUN(policy_loss, .count = x->count, .y = x[2].data, .slope = x[1].data, .log_probs = x[1].data,
        .old = x[3].data, .advantages = x[2].data, .mask = mask,
        .clip = {.low = 0.2, .high = 0.3, .dual = 1.5});
}

CASE(kl_terms)
{
    (void)sum;
    const float *mask = as_mask(x);
    RUN(kl_terms, .count = x->count, .y = x[2].data, .slope = x[1].data, .log_probs = x[1].data,
        .old = x[3].data, .mask = mask, .kind = EXO_KL_K3);
}

CASE(value_loss)
{
    (void)sum;
    const float *mask = as_mask(x);
    RUN(value_loss, .count = x->count, .y = x[2].data, .slope = x[1].data, .values = x[1].data,
        .old = x[3].data, .targets = x[2].data, .mask = mask, .clip = 0.4f);
}

CASE(ranking_loss)
{
    (void)sum;
    RUN(ranking_loss, .count = x->count / 2, .y = x[0].data, .slope = x[2].data, .x = x[1].data,
        .smoothing = 0.1f);
}

CASE(ranking_loss_backward)
{
    (void)sum;
    RUN(ranking_loss_backward, .count = x->count / 2, .dx = x[0].data, .slope = x[1].data,
        .dy = x[2].data);
}

CASE(ranking_loss_backward_add)
{
    (void)sum;
    RUN(ranking_loss_backward, .count = x->count / 2, .dx = x[0].data, .slope = x[1].data,
        .dy = x[2].data, .add = true);
}

CASE(masked_mean)
{
    (void)sum;
    if (x->count < 2)
        return EXO_OK;
    const float *mask = as_mask(x);
    RUN(masked_mean, .count = x->count, .y = x[2].data, .factor = (float *)x[2].data + 1,
        .x = x[1].data, .mask = mask);
}

CASE(masked_mean_backward)
{
    (void)sum;
    RUN(masked_mean_backward, .count = x->count, .dx = x[0].data, .mask = x[3].data,
        .factor = x[1].data, .dy = x[2].data, .add = true);
}

/* Columns 1 to 4 of 7, as rows of 4. */
CASE(copy_columns)
{
    (void)sum;
    RUN(copy_columns, .rows = x->count / 7, .count = 4, .y_pitch = 4, .x_pitch = 7, .y = x[0].data,
        .x = (const float *)x[1].data + 1);
}

/* The same to columns 3 to 6 of 7. */
CASE(copy_columns_add)
{
    (void)sum;
    RUN(copy_columns, .rows = x->count / 7, .count = 4, .y_pitch = 7, .x_pitch = 7,
        .y = (float *)x[0].data + 3, .x = (const float *)x[1].data + 1, .add = true);
}

const kernel_case op_cases[] = {
    {"mean", "mean", 0, 1, mean},
    {"mean_backward", "mean_backward", 0, 1, mean_backward},
    {"mean_backward", "mean_backward, add", 0, 2, mean_backward_add},
    {"relu", "relu fp32", 0, 2, relu},
    {"relu", "relu bf16", 0, 3, relu_bf16},
    {"relu_backward", "relu_backward, in place", 0, 3, relu_backward},
    {"relu_backward", "relu_backward, add", 0, 4, relu_backward_add},
    {"tanh", "tanh", 0, 2, tanh_forward},
    {"tanh_backward", "tanh_backward", 0, 3, tanh_backward},
    {"tanh_backward", "tanh_backward, add", 0, 4, tanh_backward_add},
    {"dropout_draw", "dropout_draw", 0, 1, dropout_draw},
    {"dropout", "dropout fp32", 0, 2, dropout},
    {"dropout", "dropout bf16, add", 0, 4, dropout_add_bf16},
    {"select", "select", 0, 1, select},
    {"channel_scale", "channel_scale", 0, 2, channel_scale},
    {"channel_scale", "channel_scale, add", 0, 3, channel_scale_add},
    {"max_pool", "max_pool 2 fp32", 0, 1, max_pool},
    {"max_pool", "max_pool 3 bf16", 0, 2, max_pool_3_bf16},
    {"max_pool_backward", "max_pool_backward", 0, 2, max_pool_backward},
    {"max_pool_backward", "max_pool_backward, add", 0, 3, max_pool_backward_add},
    {"transpose", "transpose", 0, 2, transpose},
    {"transpose", "transpose, add", 0, 3, transpose_add},
    {"copy_columns", "copy_columns", 0, 2, copy_columns},
    {"copy_columns", "copy_columns, add", 0, 2, copy_columns_add},
    {"gate", "gate, linear", 1e-6, 2, gate_linear},
    {"gate", "gate, relu", 1e-6, 2, gate_relu},
    {"gate", "gate, gelu", 1e-5, 2, gate_gelu},
    {"gate", "gate, gelu_tanh", 1e-5, 2, gate_gelu_tanh},
    {"gate", "gate, silu", 1e-5, 2, gate_silu},
    {"gate_backward", "gate_backward, linear", 1e-5, 3, gate_backward_linear},
    {"gate_backward", "gate_backward, relu", 1e-5, 3, gate_backward_relu},
    {"gate_backward", "gate_backward, gelu", 1e-4, 3, gate_backward_gelu},
    {"gate_backward", "gate_backward, gelu_tanh", 1e-4, 3, gate_backward_gelu_tanh},
    {"gate_backward", "gate_backward, silu, add", 1e-4, 4, gate_backward_silu},
    {"log_probs", "log_probs", 1e-5, 1, log_probs},
    {"log_probs_backward", "log_probs_backward", 1e-5, 2, log_probs_backward},
    {"log_probs_backward", "log_probs_backward, add", 1e-5, 3, log_probs_backward_add},
    {"entropy", "entropy", 1e-5, 1, entropy},
    {"entropy_backward", "entropy_backward, add", 1e-4, 3, entropy_backward},
    {"policy_loss", "policy_loss", 0, 5, policy_loss},
    {"policy_loss", "policy_loss, masked", 0, 5, policy_loss_masked},
    {"kl_terms", "kl_terms, masked", 0, 4, kl_terms},
    {"value_loss", "value_loss, masked", 0, 5, value_loss},
    {"ranking_loss", "ranking_loss", 0, 2, ranking_loss},
    {"ranking_loss_backward", "ranking_loss_backward", 0, 2, ranking_loss_backward},
    {"ranking_loss_backward", "ranking_loss_backward, add", 0, 3, ranking_loss_backward_add},
    {"masked_mean", "masked_mean", 0, 2, masked_mean},
    {"masked_mean_backward", "masked_mean_backward, add", 0, 3, masked_mean_backward},
};

const size_t num_op_cases = sizeof op_cases / sizeof *op_cases;
