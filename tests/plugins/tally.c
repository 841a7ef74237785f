/* A plugin with a model whose parameters count samples: the loss is the mean of the parameters that
 * the tokens name, so a batch of N tokens has the gradient 1 / N at each of them, whatever the
 * parameters are. With `sgd` the parameters say at the end which tokens were used, how often, and as
 * which part of a mean. Read next: tests/cluster/elastic_tally.py. */
#include <exogym/model.h>
#include <exogym/plugin.h>
#include <exogym/sequence.h>

struct tally {
    exo_param weight;
};

static exo_status
build(void *self, exo_builder *builder, exo_config *config, exo_err *err)
{
    struct tally *m = self;
    uint64_t vocabulary = 0;
    exo_status st = exo_config_u64(config, "vocabulary", 256, 1, 1 << 24, &vocabulary, err);
    if (st != EXO_OK)
        return st;
    m->weight = exo_build_param(builder, "weight", 2, (size_t[]){(size_t)vocabulary, 1},
                                exo_init_constant(0));
    return exo_build_status(builder, err);
}

static void
forward(const void *self, exo_tape *tape, const exo_batch *batch, exo_outputs *outputs)
{
    const struct tally *m = self;
    exo_outputs_give(outputs, "counts",
                     exo_embedding(tape, exo_batch_field(tape, batch, "tokens"),
                                   exo_tape_param(tape, m->weight)));
}

static exo_tensor *
loss(const void *self, exo_tape *tape, exo_outputs *outputs, const exo_batch *batch)
{
    (void)self;
    (void)batch;
    return exo_mean(tape, exo_outputs_get(outputs, "counts"));
}

static const exo_objective mean_of_counts = {
    .name = "mean_of_counts", .outputs = (const char *const[]){"counts", NULL}, .loss = loss};

static const exo_model_class tally = {.name = "tally",
                                      .help = "counts tokens",
                                      .state_size = sizeof(struct tally),
                                      .build = build,
                                      .outputs = (const char *const[]){"counts", NULL},
                                      .forward = forward,
                                      .objective = &mean_of_counts,
                                      .takes_vocabulary = true};

EXO_PLUGIN
{
    return exo_model_register(&tally, err);
}
