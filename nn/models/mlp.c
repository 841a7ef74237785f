/* A multilayer perceptron: linear layers with ReLU between them. Options: in (784), hidden (128, or
 * a list), out (10). It has neither batch-norm nor dropout, so that identities between strategies
 * hold exactly. State: the indices of its parameters, read-only once built. Read next:
 * exogym/model.h. */
#include <stdio.h>
#include <stdlib.h>

#include "nn/builtin_models.h"

enum {
    MAX_LAYERS = 16,
    MAX_WIDTH = 1 << 20
};

struct mlp {
    exo_param weight[MAX_LAYERS], bias[MAX_LAYERS];
    size_t layers;
};

/* Reads `hidden`, one width or a list of widths. */
static exo_status
read_hidden(exo_config *config, size_t *widths, size_t *count, exo_err *err)
{
    exo_config *list = NULL;
    uint64_t width = 0;
    exo_status probe = exo_config_list(config, "hidden", &list, NULL);
    if (probe != EXO_OK || !list) {
        *count = 1;
        exo_status st = exo_config_u64(config, "hidden", 128, 1, MAX_WIDTH, &width, err);
        widths[0] = (size_t)width;
        return st;
    }
    *count = exo_config_length(list);
    if (*count > MAX_LAYERS - 1)
        return exo_config_fail(list, err, "hidden has at most %d layers", MAX_LAYERS - 1);
    for (size_t i = 0; i < *count; i++) {
        exo_config *item = exo_config_item(list, i);
        const char *text = exo_config_plain(item);
        char *end = NULL;
        unsigned long n = text ? strtoul(text, &end, 10) : 0;
        if (!text || *end != '\0' || n < 1 || n > MAX_WIDTH || text[0] == '-')
            return exo_config_fail(item, err, "hidden must be a list of widths from 1 to %d",
                                   MAX_WIDTH);
        widths[i] = n;
    }
    return EXO_OK;
}

static exo_status
mlp_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    struct mlp *m = self;
    uint64_t in = 0, out = 0;
    size_t widths[MAX_LAYERS + 1], count = 0;
    exo_status st = exo_config_u64(config, "in", 784, 1, MAX_WIDTH, &in, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "out", 10, 1, MAX_WIDTH, &out, err);
    if (st == EXO_OK)
        st = read_hidden(config, widths + 1, &count, err);
    if (st != EXO_OK)
        return st;
    widths[0] = (size_t)in;
    widths[count + 1] = (size_t)out;
    m->layers = count + 1;
    for (size_t i = 0; i < m->layers; i++) {
        char name[32];
        exo_init init = exo_init_kaiming_uniform(widths[i]);
        snprintf(name, sizeof name, "fc%zu", i + 1);
        exo_build_unit(b, name);
        snprintf(name, sizeof name, "fc%zu.weight", i + 1);
        m->weight[i] = exo_build_param(b, name, 2, (size_t[]){widths[i + 1], widths[i]}, init);
        snprintf(name, sizeof name, "fc%zu.bias", i + 1);
        m->bias[i] = exo_build_param(b, name, 1, &widths[i + 1], init);
    }
    exo_build_boundary(b, m->weight[m->layers - 1]);
    return exo_build_status(b, err);
}

static void
mlp_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct mlp *m = self;
    exo_tensor *x = exo_flatten(t, exo_batch_tensor(t, batch, 0));
    for (size_t i = 0; i < m->layers; i++) {
        x = exo_linear(t, x, exo_tape_param(t, m->weight[i]), exo_tape_param(t, m->bias[i]));
        if (i + 1 < m->layers)
            x = exo_relu(t, x);
    }
    exo_outputs_give(outputs, "logits", x);
}

const exo_model_class exo_mlp = {
    .name = "mlp",
    .help = "linear layers with ReLU between them; options in, hidden (a width or a list), out",
    .state_size = sizeof(struct mlp),
    .build = mlp_build,
    .outputs = (const char *const[]){"logits", NULL},
    .forward = mlp_forward,
    .objective = &exo_classification,
};
