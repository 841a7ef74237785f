/* The memory that a pass takes. A rehearsal calls the pass's operations on phantom memory, with
 * parallel loops that do nothing, and counts the buffers that they ask for. State: none beyond the
 * call. Read next: phantom.h; tape_memory.c. */
#include <malloc.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/model.h>
#include <exogym/parallel.h>

#include "base/parallel.h"
#include "nn/dataset_impl.h"
#include "nn/model_impl.h"
#include "nn/phantom.h"
#include "nn/tape_impl.h"

static size_t
allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static exo_status
run_stage(const exo_model *model, exo_tape *tape, const exo_pass *pass, const exo_batch *batch,
          exo_err *err)
{
    exo_stage_pass stage;
    const size_t bytes = exo_stage_numel(model, batch) * sizeof(float);
    float *input = exo_phantom_new(bytes);
    exo_status st =
        input ? EXO_OK : exo_fail(err, EXO_NOMEM, "no addresses for a stage's activations");
    if (st == EXO_OK && !exo_stage_forward(model, tape, batch, input, &stage))
        st = exo_tape_error(tape, err);
    const bool last = exo_model_objective(model) != NULL;
    if (st == EXO_OK && pass->grad)
        st = exo_stage_backward(tape, &stage, 1.0f, last ? NULL : input, err);
    exo_phantom_free(input, bytes);
    return st;
}

static exo_status
run_pass(const exo_model *model, exo_tape *tape, const exo_pass *pass, const exo_batch *batch,
         exo_err *err)
{
    if (exo_model_is_stage(model))
        return run_stage(model, tape, pass, batch, err);
    exo_tensor *loss = exo_model_loss(model, tape, batch);
    if (!loss) {
        exo_status st = exo_tape_error(tape, err);
        return st != EXO_OK ? st
                            : exo_fail(err, EXO_FAILED, "the model gave no loss and no reason");
    }
    return pass->grad ? exo_tape_backward(tape, loss, 1.0f, err) : EXO_OK;
}

static exo_status
rehearse(const exo_model *model, const exo_pass *pass, exo_params *params, const exo_batch *batch,
         exo_pass_memory *out, exo_err *err)
{
    exo_tape *tape = NULL;
    exo_status st = exo_tape_new_rehearsal(&tape, err);
    if (st != EXO_OK)
        return st;
    size_t before = allocated();
    exo_parallel_rehearse(true);
    exo_tape_begin(tape, params, pass);
    st = run_pass(model, tape, pass, batch, err);
    exo_parallel_rehearse(false);
    size_t now = allocated(), not_plans = before + exo_tape_real_bytes(tape);
    *out = (exo_pass_memory){.tape = exo_tape_bytes(tape),
                             .plans = now > not_plans ? now - not_plans : 0,
                             .padding = exo_tape_padding(tape)};
    exo_tape_free(&tape);
    return st;
}

exo_status
exo_model_pass_memory(const exo_model *model, const exo_pass *pass, const exo_dataset *data,
                      size_t size, exo_pass_memory *out, exo_err *err)
{
    exo_params *params = NULL;
    exo_batch batch = {0};
    *out = (exo_pass_memory){0};
    /* A batch of zeros: valid labels and tokens. The first label is the largest, so that a model with
     * too few classes fails. */
    exo_status st = exo_batch_init(&batch, data, size, err);
    batch.size = size;
    if (st == EXO_OK && size > 0 && exo_images_largest_label(data) > 0)
        *(int32_t *)batch.data[1] = exo_images_largest_label(data);
    if (st == EXO_OK)
        st = exo_model_params_phantom(model, &params, err);
    /* The first pass of its shapes also leaves what the process keeps once, such as oneDNN's code; only
     * what the second one takes belongs to each tape. */
    for (int i = 0; st == EXO_OK && i < 2; i++)
        st = rehearse(model, pass, params, &batch, out, err);
    exo_params_free(&params);
    exo_batch_release(&batch);
    return st;
}
