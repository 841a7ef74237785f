/* Passes over a stage of a pipeline, of a model of any class that declares itself one
 * (exo_build_stage). No state; any thread. Read next: exogym/parallel.h; models/decoder_stage.c. */
#include <string.h>

#include "nn/model_private.h"
#include "nn/outputs.h"
#include "nn/tape_impl.h"

void
exo_build_stage(exo_builder *builder, size_t width, size_t shares, bool follows)
{
    builder->stage_width = width;
    builder->stage_shares = shares > 0 ? shares : 1;
    builder->stage_follows = follows;
}

bool
exo_model_is_stage(const exo_model *model)
{
    return model->built.stage_width > 0;
}

size_t
exo_stage_numel(const exo_model *stage, const exo_batch *batch)
{
    for (size_t i = 0; i < batch->num_fields; i++)
        if (batch->fields[i].name && strcmp(batch->fields[i].name, "tokens") == 0)
            return batch->size * (batch->fields[i].dims[0] / stage->built.stage_shares) *
                   stage->built.stage_width;
    return 0;
}

/* Adds what the stage before has computed to the batch, as its field "hidden". False: there is no
 * room. */
static bool
add_hidden(const exo_model *stage, exo_batch *batch, const float *input)
{
    const size_t width = stage->built.stage_width, samples = batch->size ? batch->size : 1;
    if (batch->num_fields == EXO_MAX_FIELDS)
        return false;
    batch->fields[batch->num_fields] =
        (exo_field){.name = "hidden",
                    .dtype = EXO_F32,
                    .num_dims = 2,
                    .dims = {exo_stage_numel(stage, batch) / samples / width, width}};
    batch->data[batch->num_fields++] = (void *)(uintptr_t)input;
    return true;
}

bool
exo_stage_forward(const exo_model *stage, exo_tape *tape, const exo_batch *batch,
                  const float *input, exo_stage_pass *out)
{
    const char *names[EXO_MAX_OUTPUTS + 1] = {"input", "hidden", NULL};
    const exo_objective *objective = exo_model_objective(stage); /* of the last stage only */
    const bool follows = stage->built.stage_follows;
    exo_batch with = *batch;
    *out = (exo_stage_pass){0};
    const char *wrong = !exo_model_is_stage(stage) ? "the model is no stage of a pipeline"
                        : follows && !add_hidden(stage, &with, input)
                            ? "a stage's batch has too many fields"
                            : NULL;
    if (wrong) {
        exo_tape_fail(tape, EXO_INVAL, "%s", wrong);
        return false;
    }
    for (size_t i = 0, n = 2; objective && objective->outputs[i] && n < EXO_MAX_OUTPUTS; i++)
        if (!exo_names_have(names, objective->outputs[i]))
            names[n++] = objective->outputs[i];
    exo_outputs outputs = exo_outputs_init(names);
    if (!exo_model_forward(stage, tape, &with, &outputs))
        return false;
    out->input = follows ? exo_outputs_find(&outputs, "input")->made.x : NULL;
    out->output = objective ? objective->loss(stage->self, tape, &outputs, &with)
                            : exo_outputs_find(&outputs, "hidden")->made.x;
    if (!out->output && exo_tape_error(tape, NULL) == EXO_OK)
        exo_tape_fail(tape, EXO_FAILED, "the stage gave no result and no reason");
    return exo_tape_error(tape, NULL) == EXO_OK;
}

exo_status
exo_stage_backward(exo_tape *tape, const exo_stage_pass *pass, float scale, const float *grad,
                   exo_err *err)
{
    return grad ? exo_tape_backward_from(tape, pass->output, grad, err)
                : exo_tape_backward(tape, pass->output, scale, err);
}
