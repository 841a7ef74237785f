/* The training steps of benchmarks. Contracts: training.h. */
#include "training.h"

#include "limits.h"

enum {
    MAX_STEPS = 1000
};

exo_status
bench_training_init(bench_training *t, exo_model *model, bool bf16, float lr, exo_err *err)
{
    const exo_optim_spec rule = exo_optim_spec_init(EXO_ADAMW);
    *t = (bench_training){.model = model, .bf16 = bf16, .lr = lr};
    exo_status st = exo_model_values(model, 1, &t->params, err);
    if (st == EXO_OK)
        st = exo_tape_new(&t->tape, err);
    return st == EXO_OK
               ? exo_optim_new(&t->optim, &rule, exo_device_cpu(), exo_params_numel(t->params), err)
               : st;
}

void
bench_training_release(bench_training *t)
{
    exo_optim_free(&t->optim);
    exo_tape_free(&t->tape);
    exo_params_free(&t->params);
    exo_model_drop(&t->model);
}

static exo_status
step(bench_training *t, const exo_batch *batch, uint64_t index, exo_err *err)
{
    exo_pass pass = {.train = true,
                     .grad = true,
                     .autocast = t->bf16,
                     .invariant = t->invariant,
                     .seed = 1,
                     .step = index};
    const exo_grad_sink sink = exo_optim_sink(
        t->optim,
        exo_host_array(EXO_F32, exo_params_values(t->params), exo_params_numel(t->params)), t->lr);
    pass.sink = &sink;
    exo_tape_begin(t->tape, t->params, &pass);
    exo_tensor *loss = t->loss_of ? t->loss_of(t->model, t->tape, batch)
                                  : exo_model_loss(t->model, t->tape, batch);
    if (!loss)
        return exo_tape_error(t->tape, err);
    t->loss = exo_tensor_item(loss);
    return exo_tape_backward(t->tape, loss, 1.0f, err);
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
