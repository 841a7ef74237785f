/* Stages of the class "gpt" for pipeline parallelism (Huang et al., 2019, arXiv:1811.06965): their
 * making. decoder.c declares the parameters, decoder_forward.c has the pass, and nn/stage.c runs it. No
 * state; any thread. Read next: exogym/parallel.h. */
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
    const exo_decoder *d = exo_model_state_of(model, &exo_gpt_stage);
    return d ? d : exo_model_state_of(model, &exo_gpt_last_stage);
}

/* --- Making a stage --------------------------------------------------------------------------- */

exo_status
exo_model_stage(exo_model **out, const exo_model *whole, uint32_t stage, uint32_t stages,
                exo_err *err)
{
    const exo_decoder *d = exo_model_state_of(whole, &exo_gpt);
    const char *lacks = d ? exo_decoder_no_parts(d, whole) : NULL;
    if (!d)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "pipeline parallelism needs a model of the class gpt, not '%s'",
                        exo_model_name(whole));
    if (lacks)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "pipeline parallelism does not support a gpt with %s: leave it out", lacks);
    if (stages < 2 || stage >= stages)
        return exo_fail(err, EXO_INVAL, "pipeline parallelism: there is no stage %u of %u", stage,
                        stages);
    if (d->spec.layers < stages)
        return exo_fail(err, EXO_INVAL,
                        "pipeline parallelism over %u stages: the model has only %zu layers",
                        stages, d->spec.layers);
    const exo_decoder part = {
        .spec = d->spec, .values = d->values, .part = {.stage = stage, .stages = stages}};
    return exo_model_new_from(out, stage + 1 == stages ? &exo_gpt_last_stage : &exo_gpt_stage,
                              &part, err);
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
