/* Training from C against the public headers alone, with its own model and its own data.
 *
 * The model learns to which of two interleaved spirals a point belongs. It is a small network,
 * which is defined here. A data set factory gives each node its own points. DDP, DiLoCo and SPARTA
 * train it with four nodes each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <exogym/exogym.h>

/* --- A model: its parameters, and the function from a batch to outputs ------------------------ */

enum {
    WIDTH = 32
};

struct spiral_net {
    exo_param w1, b1, w2, b2, w3, b3;
};

static exo_status
spiral_build(void *self, exo_builder *b, exo_config *config, exo_err *err)
{
    (void)config; /* no options */
    struct spiral_net *m = self;
    m->w1 = exo_build_param(b, "fc1.weight", 2, (size_t[]){WIDTH, 2}, exo_init_kaiming_uniform(2));
    m->b1 = exo_build_param(b, "fc1.bias", 1, (size_t[]){WIDTH}, exo_init_kaiming_uniform(2));
    m->w2 = exo_build_param(b, "fc2.weight", 2, (size_t[]){WIDTH, WIDTH},
                            exo_init_kaiming_uniform(WIDTH));
    m->b2 = exo_build_param(b, "fc2.bias", 1, (size_t[]){WIDTH}, exo_init_kaiming_uniform(WIDTH));
    m->w3 =
        exo_build_param(b, "fc3.weight", 2, (size_t[]){2, WIDTH}, exo_init_kaiming_uniform(WIDTH));
    m->b3 = exo_build_param(b, "fc3.bias", 1, (size_t[]){2}, exo_init_kaiming_uniform(WIDTH));
    return exo_build_status(b, err);
}

static void
spiral_forward(const void *self, exo_tape *t, const exo_batch *batch, exo_outputs *outputs)
{
    const struct spiral_net *m = self;
    exo_tensor *x = exo_batch_tensor(t, batch, 0); /* (N, 2) */
    x = exo_tanh(t, exo_linear(t, x, exo_tape_param(t, m->w1), exo_tape_param(t, m->b1)));
    x = exo_tanh(t, exo_linear(t, x, exo_tape_param(t, m->w2), exo_tape_param(t, m->b2)));
    x = exo_linear(t, x, exo_tape_param(t, m->w3), exo_tape_param(t, m->b3));
    exo_outputs_give(outputs, "logits", x); /* (N, 2) */
}

static const exo_model_class spiral_net = {
    .name = "spiral_net",
    .help = "2 - 32 - 32 - 2 with tanh",
    .state_size = sizeof(struct spiral_net),
    .build = spiral_build,
    .outputs = (const char *const[]){"logits", NULL},
    .forward = spiral_forward,
    .objective = &exo_classification, /* cross-entropy with the batch's second field */
};

/* --- Data: each point is computed when it is read --------------------------------------------- */

struct spirals {
    size_t count;
    uint64_t seed;
};

static size_t
spirals_length(const void *self)
{
    return ((const struct spirals *)self)->count;
}

static size_t
spirals_fields(const void *self, exo_field *out)
{
    (void)self;
    out[0] = (exo_field){.name = "point", .dtype = EXO_F32, .num_dims = 1, .dims = {2}};
    out[1] = (exo_field){.name = "spiral", .dtype = EXO_I32};
    return 2;
}

static exo_status
spirals_get(const void *self, size_t index, const exo_sample_key *key, void *const *out,
            exo_err *err)
{
    (void)key;
    (void)err;
    const struct spirals *s = self;
    exo_rng rng;
    exo_rng_init(&rng, s->seed, EXO_RNG_USER, 0, index);
    int32_t label = (int32_t)(index % 2);
    float turn = 0.2f + 0.8f * exo_rng_uniform(&rng); /* the part of the spiral's 1.5 turns */
    float angle = turn * 9.42f + (label ? 3.1416f : 0.0f);
    float *point = out[0];
    point[0] = 2 * turn * cosf(angle) + 0.05f * exo_rng_normal(&rng);
    point[1] = 2 * turn * sinf(angle) + 0.05f * exo_rng_normal(&rng);
    *(int32_t *)out[1] = label;
    return EXO_OK;
}

static const exo_dataset_class spirals_class = {
    .name = "spirals",
    .length = spirals_length,
    .fields = spirals_fields,
    .get = spirals_get,
    .free = exo_free,
};

/* The library calls this once for the training data of each node, and once for validation. */
static exo_status
make_spirals(void *context, uint32_t rank, uint32_t num_nodes, bool train, exo_dataset **out,
             exo_err *err)
{
    (void)context;
    (void)num_nodes;
    struct spirals *s = exo_calloc(1, sizeof *s);
    if (!s)
        return exo_fail(err, EXO_NOMEM, "no memory for the spirals");
    *s = (struct spirals){.count = train ? 2048 : 512, .seed = train ? 100 + rank : 1};
    return exo_dataset_new(out, &spirals_class, s, err);
}

/* --- Training --------------------------------------------------------------------------------- */

static exo_status
compare(exo_trainer *trainer, exo_err *err)
{
    static const char *const strategies[][2] = {
        {"ddp", "{optimizer: {name: adamw, lr: 0.01}}"},
        {"diloco", "{H: 20, optimizer: {name: adamw, lr: 0.01}}"},
        {"sparta", "{p: 0.05, optimizer: {name: adamw, lr: 0.01}}"},
    };
    exo_fit_opts opts = exo_fit_opts_init();
    opts.num_nodes = 4;
    opts.batch_size = 64;
    opts.max_steps = 400;
    opts.val_size = 0; /* validates on the whole set */
    opts.save_dir = NULL;
    opts.factory.make = make_spirals;

    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        exo_fit_result result;
        exo_status st =
            exo_trainer_fit_text(trainer, strategies[i][0], strategies[i][1], &opts, &result, err);
        if (st != EXO_OK)
            return st;
        printf("%-8s loss %.4f accuracy %.3f, %8.1f kB sent by each node, sha256 %.16s\n",
               strategies[i][0], result.global_loss, result.global_accuracy,
               (double)result.bytes_sent / 1000, result.sha256);
        exo_params_free(&result.params);
    }
    return EXO_OK;
}

int
main(void)
{
    exo_err err = {0};
    exo_model *model = NULL;
    exo_trainer *trainer = NULL;
    exo_status st = exo_model_new(&model, &spiral_net, NULL, &err);
    if (st == EXO_OK)
        st = exo_trainer_new(&trainer, model, NULL, NULL, &err);
    if (st == EXO_OK)
        st = compare(trainer, &err);
    if (st != EXO_OK)
        fprintf(stderr, "two_spirals: %s\n", err.text);
    exo_trainer_free(&trainer);
    exo_model_drop(&model);
    return st == EXO_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
