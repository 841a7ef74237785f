/* The training steps of benchmarks. Contracts: training.h. */
#include "training.h"

#include <math.h>

#include <exogym/memory.h>
#include <exogym/rng.h>

#include "limits.h"

enum {
    MAX_STEPS = 1000
};

exo_status
bench_training_init(bench_training *t, exo_model *model, const char *device, exo_autocast autocast,
                    float lr, exo_err *err)
{
    const exo_optim_spec rule = exo_optim_spec_init(EXO_ADAMW);
    *t = (bench_training){.model = model, .autocast = autocast, .lr = lr};
    exo_status st = exo_device_open(&t->device, device, err);
    if (st == EXO_OK)
        st = exo_device_is_host(t->device) ? exo_model_values(model, 1, &t->params, err)
                                           : exo_model_params(model, 1, &t->params, err);
    if (st == EXO_OK)
        st = exo_params_move(&t->params, t->device, err);
    if (st == EXO_OK)
        st = exo_tape_new_on(&t->tape, t->device, err);
    return st == EXO_OK
               ? exo_optim_new(&t->optim, &rule, t->device, exo_params_numel(t->params), err)
               : st;
}

void
bench_training_release(bench_training *t)
{
    exo_optim_free(&t->optim);
    exo_tape_free(&t->tape);
    exo_params_free(&t->params);
    exo_model_drop(&t->model);
    exo_device_close(&t->device);
}

/* Parameters are updated during backward on the host, and after it elsewhere. *out: the loss. */
static exo_status
take_step(bench_training *t, const exo_batch *batch, uint64_t index, exo_tensor **out, exo_err *err)
{
    exo_pass pass = {.train = true,
                     .grad = true,
                     .autocast = t->autocast,
                     .invariant = t->invariant,
                     .seed = 1,
                     .step = index};
    const bool within = exo_device_is_host(t->device);
    const exo_array values = exo_params_values_array(t->params);
    exo_grad_sink sink = {0};
    if (within) {
        sink = exo_optim_sink(t->optim, values, t->lr);
        pass.sink = &sink;
    } else {
        exo_params_zero_grads(t->params);
    }
    exo_tape_begin(t->tape, t->params, &pass);
    *out = t->loss_of ? t->loss_of(t->model, t->tape, batch)
                      : exo_model_loss(t->model, t->tape, batch);
    if (!*out)
        return exo_tape_error(t->tape, err);
    exo_status st = exo_tape_backward(t->tape, *out, 1.0f, err);
    if (st == EXO_OK && !within)
        exo_optim_step(t->optim, values, exo_params_grads_array(t->params), t->lr);
    return st;
}

/* A step, as a replica takes it, whose loss is waited for. */
static exo_status
step(bench_training *t, const exo_batch *batch, uint64_t index, exo_err *err)
{
    exo_tensor *loss = NULL;
    exo_device_section_begin(t->device);
    exo_status st = take_step(t, batch, index, &loss, err);
    const exo_status ended = exo_device_section_end(t->device, st == EXO_OK ? err : NULL);
    st = st == EXO_OK ? ended : st;
    t->loss = st == EXO_OK ? exo_tensor_item(loss) : 0; /* waits for the device */
    return st;
}

exo_status
bench_training_run(bench_training *t, const exo_batch *batch, int warm_up, int steps,
                   double *seconds, exo_err *err)
{
    static double times[MAX_STEPS];
    if (steps < 1 || steps > MAX_STEPS)
        return exo_fail(err, EXO_INVAL, "steps: expected 1 to %d, got %d", MAX_STEPS, steps);
    exo_status st = EXO_OK;
    for (int i = 0; st == EXO_OK && i < warm_up + steps; i++) {
        int64_t before = bench_now();
        st = step(t, batch, (uint64_t)i, err);
        if (i >= warm_up)
            times[i - warm_up] = (double)(bench_now() - before) * 1e-9;
    }
    *seconds = st == EXO_OK ? bench_median(times, (size_t)steps) : 0;
    return st;
}

/* --- Policies --------------------------------------------------------------------------------- */

exo_status
bench_policy_batch(exo_batch *out, size_t size, size_t block, size_t vocabulary, exo_err *err)
{
    exo_rng rng;
    exo_rng_init(&rng, 1, EXO_RNG_USER, 0, 0);
    static const char *const names[] = {"tokens", "targets", "old", "advantages"};
    size_t count = size * block;
    *out = (exo_batch){.size = size, .num_fields = 4};
    for (int f = 0; f < 4; f++) {
        exo_dtype dtype = f < 2 ? EXO_I32 : EXO_F32;
        out->fields[f] =
            (exo_field){.name = names[f], .dtype = dtype, .num_dims = 1, .dims = {block}};
        out->data[f] = exo_alloc_aligned(count * exo_dtype_size(dtype));
        if (!out->data[f])
            return exo_fail(err, EXO_NOMEM, "no memory for a batch");
    }
    int32_t *tokens = out->data[0], *targets = out->data[1];
    float *old = out->data[2], *advantages = out->data[3];
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)exo_rng_below(&rng, (uint32_t)vocabulary);
        targets[i] = (int32_t)exo_rng_below(&rng, (uint32_t)vocabulary);
        old[i] = 0.1f * exo_rng_normal(&rng) - logf((float)vocabulary);
        advantages[i] = exo_rng_normal(&rng);
    }
    return EXO_OK;
}

void
bench_policy_batch_release(exo_batch *batch)
{
    for (size_t f = 0; f < batch->num_fields; f++)
        exo_free(batch->data[f]);
}

exo_tensor *
bench_policy_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch)
{
    exo_outputs outputs = exo_outputs_init((const char *const[]){"logits", NULL});
    size_t rows = batch->size * batch->fields[0].dims[0];
    if (!exo_model_forward(model, tape, batch, &outputs))
        return NULL;
    exo_tensor *log_probs = exo_log_probs(tape, exo_outputs_logits(&outputs, "logits"),
                                          exo_batch_field(tape, batch, "targets"), 1.0f);
    return exo_policy_loss(tape, log_probs, exo_tape_input(tape, EXO_F32, 1, &rows, batch->data[2]),
                           exo_tape_input(tape, EXO_F32, 1, &rows, batch->data[3]), NULL, 0.2f);
}
