/* The convolutional network of EXO Gym's MNIST comparison, with 1,868,234 parameters:
 *
 *     [Conv 64 - BN - ReLU] x 2, MaxPool 2, Dropout2d 0.25,
 *     [Conv 128 - BN - ReLU] x 2, MaxPool 2, Dropout2d 0.25,
 *     Linear 6272 -> 256, ReLU, Dropout 0.5, Linear 256 -> 10
 *
 * Every convolution is 3x3 with padding 1. State: the indices of its parameters, read-only once
 * built. Read next: exogym/model.h. */
#include <stdio.h>

#include "nn/builtin_models.h"

enum {
    BLOCKS = 4,
    HIDDEN = 256,
    CLASSES = 10,
    SIDE = 28
};

static const size_t channels[BLOCKS + 1] = {1, 64, 64, 128, 128};

struct block {
    exo_param weight, bias;
    exo_param gamma, beta, mean, variance;
};

struct mnist_cnn {
    struct block blocks[BLOCKS];
    exo_param w1, b1, w2, b2;
};

static exo_param
build(exo_builder *b, const char *layer, size_t number, const char *part, size_t num_dims,
      const size_t *dims, exo_init init, bool buffer)
{
    char name[64];
    snprintf(name, sizeof name, "%s%zu.%s", layer, number, part);
    return buffer ? exo_build_buffer(b, name, num_dims, dims, init)
                  : exo_build_param(b, name, num_dims, dims, init);
}

static exo_status
mnist_cnn_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    (void)config; /* no options */
    struct mnist_cnn *m = self;
    for (size_t i = 0; i < BLOCKS; i++) {
        struct block *k = &m->blocks[i];
        size_t in = channels[i], out = channels[i + 1];
        exo_init init = exo_init_kaiming_uniform(in * 9);
        char unit[16];
        snprintf(unit, sizeof unit, "conv%zu", i + 1);
        exo_build_unit(b, unit);
        k->weight = build(b, "conv", i + 1, "weight", 4, (size_t[]){out, in, 3, 3}, init, false);
        k->bias = build(b, "conv", i + 1, "bias", 1, &out, init, false);
        k->gamma = build(b, "bn", i + 1, "weight", 1, &out, exo_init_constant(1), false);
        k->beta = build(b, "bn", i + 1, "bias", 1, &out, exo_init_constant(0), false);
        k->mean = build(b, "bn", i + 1, "running_mean", 1, &out, exo_init_constant(0), true);
        k->variance = build(b, "bn", i + 1, "running_var", 1, &out, exo_init_constant(1), true);
    }
    size_t flat = channels[BLOCKS] * (SIDE / 4) * (SIDE / 4);
    exo_build_unit(b, "fc1");
    m->w1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){HIDDEN, flat},
                            exo_init_kaiming_uniform(flat));
    m->b1 = exo_build_param(b, "fc1.bias", 1, (size_t[]){HIDDEN}, exo_init_kaiming_uniform(flat));
    exo_build_unit(b, "fc2");
    m->w2 = exo_build_param(b, "fc2.weight", 2, (size_t[]){CLASSES, HIDDEN},
                            exo_init_kaiming_uniform(HIDDEN));
    exo_build_boundary(b, m->w2);
    m->b2 =
        exo_build_param(b, "fc2.bias", 1, (size_t[]){CLASSES}, exo_init_kaiming_uniform(HIDDEN));
    return exo_build_status(b, err);
}

static exo_tensor *
block_forward(exo_tape *t, const struct block *k, exo_tensor *x)
{
    x = exo_conv2d(t, x, exo_tape_param(t, k->weight), exo_tape_param(t, k->bias),
                   &(exo_conv2d_opts){.stride = 1, .padding = 1});
    return exo_batch_norm(t, x, exo_tape_param(t, k->gamma), exo_tape_param(t, k->beta),
                          exo_tape_param(t, k->mean), exo_tape_param(t, k->variance),
                          &(exo_batch_norm_opts){.relu = true});
}

static void
mnist_cnn_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct mnist_cnn *m = self;
    exo_tensor *x = exo_batch_tensor(t, batch, 0); /* (N, 1, 28, 28) */
    for (size_t i = 0; i < BLOCKS; i++) {
        x = block_forward(t, &m->blocks[i], x);
        if (i % 2 == 1) {
            x = exo_max_pool2d(t, x, 2);
            x = exo_dropout2d(t, x, 0.25f);
        }
    }
    x = exo_flatten(t, x); /* (N, 6272) */
    x = exo_relu(t, exo_linear(t, x, exo_tape_param(t, m->w1), exo_tape_param(t, m->b1)));
    x = exo_dropout(t, x, 0.5f);
    x = exo_linear(t, x, exo_tape_param(t, m->w2), exo_tape_param(t, m->b2)); /* (N, 10) */
    exo_outputs_give(outputs, "logits", x);
}

const exo_model_class exo_mnist_cnn = {
    .name = "mnist_cnn",
    .help = "four convolutions with batch-norm, two linear layers, for 28x28 images; 1,868,234 "
            "parameters",
    .state_size = sizeof(struct mnist_cnn),
    .build = mnist_cnn_build,
    .outputs = (const char *const[]){"logits", NULL},
    .forward = mnist_cnn_forward,
    .objective = &exo_classification,
};
