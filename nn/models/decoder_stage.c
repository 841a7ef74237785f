/* Stages of the class "gpt" for pipeline parallelism (Huang et al., 2019, arXiv:1811.06965): their
 * classes. decoder_part.c makes them, decoder_forward.c has the pass, and nn/stage.c runs it. A last stage
 * of which a member has a part, or some tokens, has the class of such a decoder (decoder_loss.c). No state;
 * any thread. Read next: exogym/parallel.h. */
#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/ops/objectives.h"

const exo_model_class exo_gpt_stage = {
    .name = "gpt",
    .help = "the first layers of a decoder, or some that follow, for a stage of a pipeline",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"input", "hidden", NULL},
    .forward = exo_decoder_forward,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

const exo_model_class exo_gpt_last_stage = {
    .name = "gpt",
    .help = "the last layers of a decoder, for a stage of a pipeline",
    .state_size = sizeof(exo_decoder),
    .build = exo_decoder_build,
    .outputs = (const char *const[]){"input", "hidden", "logits", "values", NULL},
    .forward = exo_decoder_forward,
    .objective = &exo_next_token,
    .release = exo_decoder_release,
    .takes_vocabulary = true,
};

/* NULL: the model is no stage. */
static const exo_decoder *
stage_of(const exo_model *model)
{
    static const exo_model_class *const classes[] = {&exo_gpt_stage, &exo_gpt_last_stage,
                                                     &exo_gpt_part, &exo_gpt_context};
    const exo_decoder *d = NULL;
    for (size_t i = 0; !d && i < sizeof classes / sizeof *classes; i++)
        d = exo_model_state_of(model, classes[i]);
    return d && d->part.stages > 0 ? d : NULL;
}

bool
exo_stage_tied(const exo_model *stage, size_t *first, size_t *count)
{
    const exo_decoder *d = stage_of(stage);
    if (!d || !d->spec.tied || (!exo_decoder_has_first(d) && !exo_decoder_has_last(d)))
        return false;
    const exo_param_info *table = &exo_model_infos(stage)[d->embedding.index];
    *first = table->offset;
    *count = table->numel;
    return true;
}
