/* An operation of your own on the tape, and a model that uses it: a plugin, built outside exogym
 * against the public headers alone. Snake (Liu, Hartwig and Ueda, 2020) can learn periodic
 * functions and extrapolate them, unlike ReLU and tanh. It has a learned frequency `a` for each
 * feature:
 *
 *     y = x + sin^2(a x) / a
 *     dy/dx = 1 + sin(2 a x)        dy/da = x sin(2 a x) / a - sin^2(a x) / a^2 */
#include <exogym/exogym.h>

#include <math.h>

/* Computes y (N, D) from x (N, D) and a (D). */
static exo_status
forward(const exo_custom_call *call, exo_err *err)
{
    const float *x = exo_array_host(call->inputs[0]), *a = exo_array_host(call->inputs[1]);
    float *y = exo_array_host(call->output);
    size_t features = call->inputs[1].count;
    if (!x || !a || !y)
        return exo_fail(err, EXO_UNSUPPORTED, "computes on the CPU, not on %s",
                        exo_device_name(call->output.device));
    for (size_t i = 0; i < call->output.count; i++) {
        float f = a[i % features], s = sinf(f * x[i]);
        y[i] = x[i] + s * s / f;
    }
    return EXO_OK;
}

static exo_status
backward(const exo_custom_call *call, exo_err *err)
{
    const float *x = exo_array_host(call->inputs[0]), *a = exo_array_host(call->inputs[1]);
    const float *dy = exo_array_host(call->output_grad);
    /* NULL: no gradient of that input is needed */
    float *dx = exo_array_host(call->input_grads[0]), *da = exo_array_host(call->input_grads[1]);
    size_t features = call->inputs[1].count;
    (void)err;
    for (size_t i = 0; i < call->output.count; i++) {
        float f = a[i % features], s = sinf(f * x[i]), two = sinf(2 * f * x[i]);
        if (dx)
            dx[i] += dy[i] * (1 + two);
        if (da)
            da[i % features] += dy[i] * (x[i] * two / f - s * s / (f * f));
    }
    return EXO_OK;
}

static const exo_custom_op snake = {.name = "snake", .forward = forward, .backward = backward};

/* pixels -> hidden features with snake -> ten classes */
struct snake_mlp {
    exo_param in, in_bias, frequency, out, out_bias;
    uint64_t hidden;
};

static exo_status
build(void *self, exo_builder *builder, exo_config *config, exo_err *err)
{
    struct snake_mlp *m = self;
    exo_status st = exo_config_u64(config, "hidden", 64, 1, 4096, &m->hidden, err);
    if (st != EXO_OK)
        return st;
    size_t hidden = (size_t)m->hidden;
    m->in =
        exo_build_param(builder, "in.weight", 2, (size_t[]){hidden, 784}, exo_init_uniform(0.05f));
    m->in_bias = exo_build_param(builder, "in.bias", 1, &hidden, exo_init_constant(0));
    m->frequency = exo_build_param(builder, "frequency", 1, &hidden, exo_init_constant(0.5f));
    m->out =
        exo_build_param(builder, "out.weight", 2, (size_t[]){10, hidden}, exo_init_uniform(0.1f));
    m->out_bias = exo_build_param(builder, "out.bias", 1, (size_t[]){10}, exo_init_constant(0));
    return exo_build_status(builder, err);
}

static void
model_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct snake_mlp *m = self;
    size_t hidden[] = {batch->size, (size_t)m->hidden};
    exo_tensor *x = exo_tape_input(t, EXO_F32, 2, (size_t[]){batch->size, 784}, batch->data[0]);
    x = exo_linear(t, x, exo_tape_param(t, m->in), exo_tape_param(t, m->in_bias));
    x = exo_tape_custom(t, &snake, (exo_tensor *[]){x, exo_tape_param(t, m->frequency)}, 2, 2,
                        hidden, 0, NULL);
    exo_outputs_give(outputs, "logits",
                     exo_linear(t, x, exo_tape_param(t, m->out), exo_tape_param(t, m->out_bias)));
}

static const exo_model_class snake_mlp = {.name = "snake_mlp",
                                          .help = "pixels, snake, ten classes",
                                          .state_size = sizeof(struct snake_mlp),
                                          .build = build,
                                          .outputs = (const char *const[]){"logits", NULL},
                                          .forward = model_forward,
                                          .objective = &exo_classification};

EXO_PLUGIN
{
    return exo_model_register(&snake_mlp, err);
}
