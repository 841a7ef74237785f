/* A plugin with the smallest language model: one parameter for each token, the logarithm of its
 * frequency. Read next: include/exogym/model.h. */
#include <exogym/model.h>
#include <exogym/plugin.h>

enum {
    MAX_ROWS = 4096
};

struct unigram {
    exo_param weight, bias;
};

static exo_status
build(void *self, exo_builder *builder, exo_config *config, exo_err *err)
{
    struct unigram *m = self;
    uint64_t vocabulary = 0;
    exo_status st = exo_config_u64(config, "vocabulary", 256, 1, 1 << 24, &vocabulary, err);
    if (st != EXO_OK)
        return st;
    m->weight = exo_build_param(builder, "weight", 2, (size_t[]){(size_t)vocabulary, 1},
                                exo_init_constant(0));
    m->bias =
        exo_build_param(builder, "bias", 1, (size_t[]){(size_t)vocabulary}, exo_init_constant(0));
    return exo_build_status(builder, err);
}

static void
forward(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs)
{
    static const float nothing[MAX_ROWS];
    const struct unigram *m = self;
    size_t rows = batch->size * batch->fields[1].dims[0];
    if (rows > MAX_ROWS) {
        exo_tape_fail(tape, EXO_INVAL, "%zu rows are too many", rows);
        return;
    }
    exo_tensor *x = exo_tape_input(tape, EXO_F32, 2, (size_t[]){rows, 1}, nothing);
    exo_outputs_give(
        outputs, "logits",
        exo_linear(tape, x, exo_tape_param(tape, m->weight), exo_tape_param(tape, m->bias)));
}

static const exo_model_class unigram = {.name = "unigram",
                                        .help = "frequencies of tokens",
                                        .state_size = sizeof(struct unigram),
                                        .build = build,
                                        .outputs = (const char *const[]){"logits", NULL},
                                        .forward = forward,
                                        .objective = &exo_next_token,
                                        .takes_vocabulary = true};

/* The same without an objective, for a program that defines its own loss. */
static const exo_model_class scores = {.name = "unigram_scores",
                                       .help = "frequencies of tokens, without an objective",
                                       .state_size = sizeof(struct unigram),
                                       .build = build,
                                       .outputs = (const char *const[]){"logits", NULL},
                                       .forward = forward,
                                       .takes_vocabulary = true};

EXO_PLUGIN
{
    exo_status st = exo_model_register(&unigram, err);
    return st == EXO_OK ? exo_model_register(&scores, err) : st;
}
