/* Optimizers over flat buffers: state, the constants of a step, and the sweep in pieces.
 *
 * An exo_optim is owned by one thread at a time; during a step, pieces of its buffers are written by the threads that help.
 * Read next: nn/optim_kernels.c for the formulas, nn/optim_spec.c for names and constants.
 */
#include <exogym/optim.h>

#include <math.h>
#include <stdio.h>

#include <exogym/memory.h>

#include "optim_kernels.h"
#include "parallel.h"

enum {
    MAX_BUFFERS = 3,
    PIECE = 1 << 15 /* elements: five buffers of it fit the second-level cache */
};

/* One step: the sweep's constants are those of the rule, in single precision at the last moment. */
struct sweep {
    const exo_optim *optim;
    float *params;
    const float *grads;
    union {
        exo_adam_step adam;
        exo_sgd_step sgd;
        exo_rmsprop_step rmsprop;
        exo_adagrad_step adagrad;
    };
};

struct exo_optim {
    exo_optim_spec spec;
    size_t numel;
    uint64_t steps;              /* done so far */
    float *buffers[MAX_BUFFERS]; /* (numel) each, NULL where the rule needs none; buffer_name says what they are */
    struct sweep sweep;          /* of the step that goes on */
};

/* What buffer `index` of a rule holds, in torch.optim's words; NULL: the rule does without. */
static const char *
buffer_name(const exo_optim_spec *spec, size_t index)
{
    static const char *const names[][MAX_BUFFERS] = {
        [EXO_ADAM] = {"exp_avg", "exp_avg_sq"},
        [EXO_ADAMW] = {"exp_avg", "exp_avg_sq"},
        [EXO_SGD] = {"momentum_buffer"},
        [EXO_RMSPROP] = {"square_avg", "grad_avg", "momentum_buffer"},
        [EXO_ADAGRAD] = {"sum"},
    };
    if (spec->kind == EXO_SGD && spec->momentum == 0)
        return NULL;
    if (spec->kind == EXO_RMSPROP && ((index == 1 && !spec->centered) || (index == 2 && spec->momentum == 0)))
        return NULL;
    return names[spec->kind][index];
}

exo_status
exo_optim_new(exo_optim **out, const exo_optim_spec *spec, size_t numel, exo_err *err)
{
    exo_optim *optim = NULL;
    exo_status st = exo_optim_spec_check(spec, err);
    if (st != EXO_OK)
        goto done;
    size_t bytes = 0;
    if (__builtin_mul_overflow(numel, sizeof(float), &bytes))
        goto no_memory;
    optim = exo_calloc(1, sizeof *optim);
    if (!optim)
        goto no_memory;
    optim->spec = *spec;
    optim->numel = numel;
    for (size_t b = 0; b < MAX_BUFFERS; b++) {
        if (!buffer_name(spec, b))
            continue;
        optim->buffers[b] = exo_alloc_aligned(bytes);
        if (!optim->buffers[b])
            goto no_memory;
    }
    if (spec->kind == EXO_ADAGRAD && spec->initial_accumulator != 0)
        for (size_t i = 0; i < numel; i++)
            optim->buffers[0][i] = (float)spec->initial_accumulator;
    *out = optim;
    optim = NULL; /* moved to the caller */
    goto done;

no_memory:
    st = exo_fail(err, EXO_NOMEM, "no memory for the optimizer's state of %zu parameters", numel);
done:
    exo_optim_free(&optim);
    return st;
}

void
exo_optim_free(exo_optim **optim)
{
    if (!optim || !*optim)
        return;
    for (size_t b = 0; b < MAX_BUFFERS; b++)
        exo_free((*optim)->buffers[b]);
    exo_free(*optim);
    *optim = NULL;
}

static void
set_constants(struct sweep *sweep, double lr)
{
    const exo_optim_spec *spec = &sweep->optim->spec;
    double t = (double)sweep->optim->steps; /* this step counts: from 1 */
    float wd = (float)spec->weight_decay;
    switch (spec->kind) {
    case EXO_ADAM:
    case EXO_ADAMW:
        sweep->adam = (exo_adam_step){
            .l2 = spec->kind == EXO_ADAM ? wd : 0.0f,
            .shrink = spec->kind == EXO_ADAMW ? (float)(1.0 - lr * spec->weight_decay) : 1.0f,
            .beta1 = (float)spec->beta1,
            .one_minus_beta1 = (float)(1.0 - spec->beta1),
            .beta2 = (float)spec->beta2,
            .one_minus_beta2 = (float)(1.0 - spec->beta2),
            .sqrt_correction2 = (float)sqrt(1.0 - pow(spec->beta2, t)),
            .eps = (float)spec->eps,
            .step_size = (float)(lr / (1.0 - pow(spec->beta1, t))),
        };
        return;
    case EXO_SGD:
        sweep->sgd = (exo_sgd_step){
            .l2 = wd,
            .momentum = (float)spec->momentum,
            .one_minus_dampening = sweep->optim->steps == 1 ? 1.0f : (float)(1.0 - spec->dampening),
            .nesterov = spec->nesterov,
            .lr = (float)lr,
        };
        return;
    case EXO_RMSPROP:
        sweep->rmsprop = (exo_rmsprop_step){
            .l2 = wd,
            .alpha = (float)spec->alpha,
            .one_minus_alpha = (float)(1.0 - spec->alpha),
            .eps = (float)spec->eps,
            .momentum = (float)spec->momentum,
            .lr = (float)lr,
        };
        return;
    case EXO_ADAGRAD:
        sweep->adagrad = (exo_adagrad_step){
            .l2 = wd,
            .eps = (float)spec->eps,
            .lr = (float)(lr / (1.0 + (t - 1.0) * spec->lr_decay)),
        };
        return;
    }
}

static float *
buffer_at(const exo_optim *optim, size_t buffer, size_t first)
{
    return optim->buffers[buffer] ? optim->buffers[buffer] + first : NULL;
}

/* Elements [first, first + n), whose gradients are `grads` (n). */
static void
sweep_part(const struct sweep *sweep, size_t first, size_t n, const float *grads)
{
    const exo_optim *optim = sweep->optim;
    float *params = sweep->params + first;
    float *b0 = buffer_at(optim, 0, first), *b1 = buffer_at(optim, 1, first), *b2 = buffer_at(optim, 2, first);

    switch (optim->spec.kind) {
    case EXO_ADAM:
    case EXO_ADAMW:
        exo_kernel_adam(n, params, grads, b0, b1, &sweep->adam);
        return;
    case EXO_SGD:
        exo_kernel_sgd(n, params, grads, b0, &sweep->sgd);
        return;
    case EXO_RMSPROP:
        exo_kernel_rmsprop(n, params, grads, b0, b1, b2, &sweep->rmsprop);
        return;
    case EXO_ADAGRAD:
        exo_kernel_adagrad(n, params, grads, b0, &sweep->adagrad);
        return;
    }
}

static struct sweep *
begin_sweep(exo_optim *optim, float *params, const float *grads, float lr)
{
    struct sweep *sweep = &optim->sweep;
    *sweep = (struct sweep){.optim = optim, .params = params, .grads = grads};
    optim->steps++;
    set_constants(sweep, (double)lr);
    return sweep;
}

static void
sweep_piece(void *context, size_t index)
{
    const struct sweep *sweep = context;
    size_t first = index * PIECE, left = sweep->optim->numel - first;
    sweep_part(sweep, first, left < PIECE ? left : PIECE, sweep->grads + first);
}

void
exo_optim_step(exo_optim *optim, float *params, const float *grads, float lr)
{
    exo_parallel_for((optim->numel + PIECE - 1) / PIECE, sweep_piece, begin_sweep(optim, params, grads, lr));
}

static void
sweep_taken(void *context, size_t first, size_t count, const float *grad)
{
    sweep_part(context, first, count, grad);
}

exo_grad_sink
exo_optim_sink(exo_optim *optim, float *params, float lr)
{
    return (exo_grad_sink){.take = sweep_taken, .context = begin_sweep(optim, params, NULL, lr)};
}

void
exo_optim_state(exo_optim *optim, const char *name, exo_state *state)
{
    char entry[128];
    snprintf(entry, sizeof entry, "%s.step", name);
    exo_state_add_u64(state, entry, &optim->steps);
    for (size_t b = 0; b < MAX_BUFFERS; b++) {
        if (!optim->buffers[b])
            continue;
        snprintf(entry, sizeof entry, "%s.%s", name, buffer_name(&optim->spec, b));
        exo_state_add(state, entry, EXO_F32, optim->buffers[b], optim->numel);
    }
}
