/* Stages of the class "gpt" for pipeline parallelism (Huang et al., 2019, arXiv:1811.06965): their
 * making, and their passes. decoder.c declares the parameters, and decoder_forward.c has the pass. No
 * state; any thread. Read next: exogym/parallel.h. */
#include <string.h>

#include "nn/builtin_models.h"
#include "nn/model_impl.h"
#include "nn/models/decoder.h"
#include "nn/ops/objectives.h"
#include "nn/tape_impl.h"

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

/* --- Passes ----------------------------------------------------------------------------------- */

bool
exo_model_is_stage(const exo_model *model)
{
    return stage_of(model) != NULL;
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

size_t
exo_stage_numel(const exo_model *stage, const exo_batch *batch)
{
    const exo_decoder *d = stage_of(stage);
    for (size_t i = 0; d && i < batch->num_fields; i++)
        if (batch->fields[i].name && strcmp(batch->fields[i].name, "tokens") == 0)
            return batch->size * batch->fields[i].dims[0] * d->spec.width;
    return 0;
}

bool
exo_stage_forward(const exo_model *stage, exo_tape *tape, const exo_batch *batch,
                  const float *input, exo_stage_pass *out)
{
    const exo_decoder *d = stage_of(stage);
    const size_t samples = batch->size ? batch->size : 1;
    exo_batch with = *batch;
    *out = (exo_stage_pass){0};
    if (!d || with.num_fields == EXO_MAX_FIELDS) {
        exo_tape_fail(tape, EXO_INVAL,
                      d ? "a stage's batch has too many fields"
                        : "the model is no stage of a pipeline");
        return false;
    }
    const bool last = exo_decoder_has_last(d);
    if (!exo_decoder_has_first(d)) {
        with.fields[with.num_fields] = (exo_field){
            .name = "hidden",
            .dtype = EXO_F32,
            .num_dims = 2,
            .dims = {exo_stage_numel(stage, batch) / samples / d->spec.width, d->spec.width}};
        with.data[with.num_fields++] = (void *)(uintptr_t)input;
    }
    exo_outputs outputs =
        exo_outputs_init((const char *const[]){"input", "hidden", last ? "logits" : NULL, NULL});
    if (!exo_model_forward(stage, tape, &with, &outputs))
        return false;
    out->input = exo_decoder_has_first(d) ? NULL : exo_outputs_get(&outputs, "input");
    out->output =
        last ? exo_next_token.loss(d, tape, &outputs, &with) : exo_outputs_get(&outputs, "hidden");
    return out->output && exo_tape_error(tape, NULL) == EXO_OK;
}

exo_status
exo_stage_backward(exo_tape *tape, const exo_stage_pass *pass, float scale, const float *grad,
                   exo_err *err)
{
    return grad ? exo_tape_backward_from(tape, pass->output, grad, err)
                : exo_tape_backward(tape, pass->output, scale, err);
}
