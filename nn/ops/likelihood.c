/* Log-probabilities and entropies of rows of logits. This file has those of logits in memory;
 * vocabulary.c has those of a head. No state beyond the pass's buffers. */
#include <exogym/loss.h>
#include <exogym/sequence.h>

#include <math.h>

#include "nn/device/temperature.h"
#include "nn/ops/targets.h"
#include "nn/ops/vocabulary.h"
#include "nn/tape_run.h"

exo_tensor *
exo_logits_tensor(exo_tape *tape, exo_logits logits)
{
    return logits.weight ? exo_linear(tape, logits.x, logits.weight, NULL) : logits.x;
}

exo_tensor *
exo_cross_entropy(exo_tape *tape, exo_logits logits, exo_tensor *targets)
{
    return logits.weight ? exo_linear_cross_entropy(tape, logits.x, logits.weight, targets)
                         : exo_softmax_cross_entropy(tape, logits.x, targets);
}

/* *scale = 1 / temperature, and 1 for temperature 0. False: not a valid temperature, recorded. */
static bool
scale_of(exo_tape *tape, const char *name, float temperature, float *scale)
{
    if (exo_temperature_scale(temperature, scale))
        return true;
    exo_tape_fail(tape, EXO_INVAL, "%s: the temperature is %g; expected " EXO_TEMPERATURE_EXPECTED,
                  name, (double)temperature);
    return false;
}

/* Begins an operation on the logits (R, V) in fp32, with room for its result *y (R) and for log_sum
 * in saved[0]. NULL: recorded. */
static exo_op *
open_rows(exo_tape *tape, const exo_op_class *op_class, exo_tensor *logits, exo_tensor *targets,
          exo_tensor **y)
{
    logits = exo_to_dtype(tape, logits, EXO_F32);
    exo_op *op =
        logits ? exo_tape_op(tape, op_class, (exo_tensor *[]){logits, targets}, targets ? 2 : 1)
               : NULL;
    *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, logits->dims) : NULL;
    if (!*y)
        return NULL;
    op->saved[0] = exo_tape_buffer(tape, logits->dims[0] * sizeof(float));
    return op->saved[0] ? op : NULL;
}

/* --- Log-probabilities ------------------------------------------------------------------------ */

static exo_status
log_probs_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, log_probs_backward, .rows = x->dims[0], .columns = x->dims[1],
                          .dx = dx, .x = x->data, .log_sum = op->saved[0], .dy = op->out->grad,
                          .targets = op->in[1]->data, .scale = op->factor, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class log_probs_class = {.name = "log_probs", .backward = log_probs_backward};

exo_tensor *
exo_log_probs(exo_tape *tape, exo_logits logits, exo_tensor *targets, float temperature)
{
    exo_tensor *y;
    float scale;
    size_t counted;
    if (logits.weight)
        return exo_linear_log_probs(tape, logits.x, logits.weight, targets, temperature);
    if (!scale_of(tape, log_probs_class.name, temperature, &scale) ||
        !exo_check_targets(tape, log_probs_class.name, logits.x, targets, &counted))
        return NULL;
    exo_op *op = open_rows(tape, &log_probs_class, logits.x, targets, &y);
    if (!op)
        return NULL;
    const exo_tensor *x = op->in[0];
    op->factor = scale;
    if (exo_tape_run(tape, log_probs, .rows = x->dims[0], .columns = x->dims[1], .y = y->data,
                     .log_sum = op->saved[0], .x = x->data, .targets = targets->data,
                     .scale = scale) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

/* --- Entropy ---------------------------------------------------------------------------------- */

static exo_status
entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, entropy_backward, .rows = x->dims[0], .columns = x->dims[1],
                          .dx = dx, .x = x->data, .log_sum = op->saved[0], .y = op->out->data,
                          .dy = op->out->grad, .scale = op->factor, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class entropy_class = {.name = "entropy", .backward = entropy_backward};

exo_tensor *
exo_entropy(exo_tape *tape, exo_logits logits, float temperature)
{
    exo_tensor *y;
    float scale;
    char shape[96];
    if (!logits.x || exo_tape_error(tape, NULL) != EXO_OK ||
        !scale_of(tape, entropy_class.name, temperature, &scale))
        return NULL;
    if (logits.weight)
        return exo_linear_entropy(tape, logits.x, logits.weight, scale);
    if (logits.x->num_dims != 2 || logits.x->numel == 0 || !exo_is_float(logits.x))
        return exo_tape_fail(tape, EXO_INVAL, "entropy: logits %s: expected (R, V)",
                             exo_shape_text(logits.x, shape));
    exo_op *op = open_rows(tape, &entropy_class, logits.x, NULL, &y);
    if (!op)
        return NULL;
    const exo_tensor *x = op->in[0];
    op->factor = scale;
    if (exo_tape_run(tape, entropy, .rows = x->dims[0], .columns = x->dims[1], .y = y->data,
                     .log_sum = op->saved[0], .x = x->data, .scale = scale) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
