/* Softmax cross-entropy and accuracy. No state beyond the pass's buffers. Read next: vocabulary.c,
 * which fuses the loss with the head. */
#include <exogym/tensor.h>

#include <math.h>

#include <exogym/memory.h>

#include "nn/ops/targets.h"
#include "nn/tape_run.h"

/* Forward has computed the gradient with respect to the logits, (softmax - one-hot) / N, in fp32:
 * saved[0]. */
static exo_status
cross_entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *logits = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, logits, &add, &st);
    if (dx)
        st = exo_tape_run(tape, scale_by, .count = logits->numel, .y = dx, .x = op->saved[0],
                          .factor = op->out->grad, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class cross_entropy_class = {.name = "softmax_cross_entropy",
                                                 .backward = cross_entropy_backward};

exo_tensor *
exo_softmax_cross_entropy(exo_tape *tape, exo_tensor *logits, exo_tensor *labels)
{
    size_t counted;
    if (!exo_check_targets(tape, cross_entropy_class.name, logits, labels, &counted))
        return NULL;
    logits = exo_to_dtype(tape, logits, EXO_F32);
    exo_op *op = logits
                     ? exo_tape_op(tape, &cross_entropy_class, (exo_tensor *[]){logits, labels}, 2)
                     : NULL;
    exo_tensor *loss = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    float *grad = loss ? exo_tape_buffer(tape, logits->numel * sizeof *grad) : NULL;
    if (!grad)
        return NULL;
    op->saved[0] = grad;
    if (exo_tape_run(tape, cross_entropy, .rows = logits->dims[0], .columns = logits->dims[1],
                     .counted = counted, .y = loss->data, .dx = grad, .x = logits->data,
                     .targets = labels->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, loss);
}

const double *
exo_count_hits(exo_tape *tape, const exo_tensor *logits, const exo_tensor *labels)
{
    double *hits = exo_tape_buffer(tape, sizeof *hits);
    return hits && exo_tape_run(tape, hits, .rows = logits->dims[0], .columns = logits->dims[1],
                                .dtype = logits->dtype, .out = hits, .x = logits->data,
                                .targets = labels->data) == EXO_OK
               ? hits
               : NULL;
}

double
exo_accuracy(const exo_tensor *logits, const exo_tensor *labels)
{
    const int32_t *label = exo_tensor_host(labels);
    exo_tape *tape = logits->tape;
    exo_device *device = exo_tape_device(tape);
    double hits = 0;
    size_t judged = 0;
    if (logits->num_dims != 2 || logits->numel == 0 || labels->numel != logits->dims[0] ||
        labels->dtype != EXO_I32 || !exo_is_float(logits) || !label)
        return (double)NAN;
    for (size_t n = 0; n < logits->dims[0]; n++)
        judged += label[n] >= 0;
    if (exo_tape_run(tape, hits, .rows = logits->dims[0], .columns = logits->dims[1],
                     .dtype = logits->dtype, .out = device->scalar ? device->scalar : &hits,
                     .x = logits->data, .targets = labels->data) != EXO_OK ||
        (device->scalar && exo_tape_read(tape, &hits, device->scalar, sizeof hits) != EXO_OK))
        return (double)NAN;
    return judged > 0 ? hits / (double)judged : (double)NAN;
}
