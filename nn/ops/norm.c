/* Batch normalization, followed by ReLU in the same sweep if asked for. Saves four numbers per
 * channel for backward. No other state; the running statistics are the model's buffers. Read next:
 * nn/cpu/batch_norm.c. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

enum {
    INPUT,
    GAMMA,
    BETA,
    RUNNING_MEAN,
    RUNNING_VAR
};
enum {
    KEPT /* index into op->saved: (4, channels) */
};

static size_t
rows_of(const exo_tensor *x)
{
    return x->num_dims == 4 ? x->dims[2] * x->dims[3] : 1;
}

static exo_status
batch_norm_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *gamma = op->in[GAMMA], *beta = op->in[BETA];
    const exo_batch_norm_shape shape = {.samples = x->dims[0], .channels = x->dims[1]};
    exo_status st = EXO_OK;
    bool add = false, add_gamma = false, add_beta = false;
    void *scratch = NULL, *dx = NULL;
    const void *dy = op->out->grad;
    float *dgamma = exo_tape_grad(tape, gamma, &add_gamma, &st);
    float *dbeta = exo_tape_grad(tape, beta, &add_beta, &st);
    if (x->needs_grad)
        dx = exo_tape_steal_grad(op, x) ? x->grad : exo_tape_grad(tape, x, &add, &st);
    if (st != EXO_OK ||
        !exo_tape_scratch(tape, EXO_SHAPE_BATCH_NORM, &shape, EXO_SCRATCH_BACKWARD, &scratch))
        return exo_tape_error(tape, err);
    st = exo_tape_run(tape, batch_norm_backward, .shape = shape, .rows = rows_of(x),
                      .dtype = x->dtype, .relu = op->number != 0,
                      .train = exo_tape_pass(tape)->train, .add = add, .add_weight = add_gamma,
                      .add_bias = add_beta, .dx = dx, .dweight = dgamma, .dbias = dbeta,
                      .kept = op->saved[KEPT], .x = x->data, .dy = dy, .scratch = scratch);
    exo_tape_buffer_done(tape, scratch);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class batch_norm_class = {.name = "batch_norm",
                                              .backward = batch_norm_backward};

static bool
check_shapes(exo_tape *tape, const exo_tensor *x, exo_tensor *const *per_channel)
{
    char text[96];
    if ((x->num_dims != 4 && x->num_dims != 2) || x->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL, "batch_norm: x %s: expected (N, C, H, W) or (N, C)",
                      exo_shape_text(x, text));
        return false;
    }
    if (!exo_is_float(x)) {
        exo_tape_fail(tape, EXO_INVAL, "batch_norm: takes fp32 or bf16, not %s",
                      exo_dtype_name(x->dtype));
        return false;
    }
    for (int i = 0; i < 4; i++) {
        if (per_channel[i]->dtype != EXO_F32) {
            exo_tape_fail(tape, EXO_INVAL,
                          "batch_norm: a parameter or statistic is %s: expected fp32",
                          exo_dtype_name(per_channel[i]->dtype));
            return false;
        }
        if (per_channel[i]->num_dims != 1 || per_channel[i]->dims[0] != x->dims[1]) {
            exo_tape_fail(tape, EXO_INVAL,
                          "batch_norm: a parameter or statistic is %s: expected (%zu)",
                          exo_shape_text(per_channel[i], text), x->dims[1]);
            return false;
        }
    }
    return true;
}

exo_tensor *
exo_batch_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias,
               exo_tensor *running_mean, exo_tensor *running_var, const exo_batch_norm_opts *opts)
{
    if (!x || !weight || !bias || !running_mean || !running_var ||
        exo_tape_error(tape, NULL) != EXO_OK ||
        !check_shapes(tape, x, (exo_tensor *[]){weight, bias, running_mean, running_var}))
        return NULL;
    float eps = opts && opts->eps > 0 ? opts->eps : 1e-5f;
    float momentum = opts && opts->momentum > 0 ? opts->momentum : 0.1f;
    if (x->num_dims == 4)
        x = exo_to_layout(tape, x, EXO_CHANNELS_LAST);
    exo_op *op = x ? exo_tape_op(tape, &batch_norm_class,
                                 (exo_tensor *[]){x, weight, bias, running_mean, running_var}, 5)
                   : NULL;
    if (!op)
        return NULL;
    op->number = opts && opts->relu;

    const exo_batch_norm_shape shape = {.samples = x->dims[0], .channels = x->dims[1]};
    bool train = exo_tape_pass(tape)->train;
    void *scratch = NULL;
    exo_tensor *y = exo_tape_tensor(tape, x->dtype, x->layout, x->num_dims, x->dims);
    op->saved[KEPT] = y ? exo_tape_buffer(tape, 4 * shape.channels * sizeof(float)) : NULL;
    if (!op->saved[KEPT] ||
        !exo_tape_scratch(tape, EXO_SHAPE_BATCH_NORM, &shape, EXO_SCRATCH_FORWARD, &scratch))
        return NULL;
    /* When a checkpoint runs this part again, the running statistics have moved already. */
    if (exo_tape_run(tape, batch_norm, .shape = shape, .rows = rows_of(x), .dtype = x->dtype,
                     .relu = op->number != 0, .train = train,
                     .move = train && !exo_tape_again(tape), .eps = eps, .momentum = momentum,
                     .y = y->data, .kept = op->saved[KEPT], .running_mean = running_mean->data,
                     .running_var = running_var->data, .x = x->data, .weight = weight->data,
                     .bias = bias->data, .scratch = scratch) != EXO_OK)
        return NULL;
    exo_tape_buffer_done(tape, scratch);
    return exo_tape_finish(tape, op, y);
}
