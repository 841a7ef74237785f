/* Softmax cross-entropy and accuracy. */
#include <exogym/tensor.h>

#include <math.h>
#include <string.h>

#include "nn/cpu/kernels.h"
#include "nn/ops/targets.h"
#include "nn/tape_impl.h"

/* The gradient of the loss by the logits, (softmax - one-hot) / N, is ready after forward: saved[0], fp32. */
static exo_status
cross_entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *logits = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, logits, &add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    float dy = *(const float *)op->out->grad;
    const float *local = op->saved[0];
    for (size_t i = 0; i < logits->numel; i++)
        dx[i] = (add ? dx[i] : 0.0f) + dy * local[i];
    return EXO_OK;
}

static const exo_op_class cross_entropy_class = {.name = "softmax_cross_entropy", .backward = cross_entropy_backward};

/* -log softmax(row)[target]; writes (softmax - one-hot) * scale. Without a target both are 0. */
static double
row_loss(const float *row, size_t classes, int32_t target, float scale, float *grad)
{
    if (target < 0) {
        memset(grad, 0, classes * sizeof *grad);
        return 0;
    }
    float max = row[0];
    for (size_t k = 1; k < classes; k++)
        max = row[k] > max ? row[k] : max;
    double sum = 0;
    for (size_t k = 0; k < classes; k++) {
        grad[k] = expf(row[k] - max);
        sum += (double)grad[k];
    }
    for (size_t k = 0; k < classes; k++)
        grad[k] = ((float)((double)grad[k] / sum) - (k == (size_t)target ? 1.0f : 0.0f)) * scale;
    return log(sum) - (double)(row[target] - max);
}

exo_tensor *
exo_softmax_cross_entropy(exo_tape *tape, exo_tensor *logits, exo_tensor *labels)
{
    size_t counted;
    if (!exo_check_targets(tape, cross_entropy_class.name, logits, labels, &counted))
        return NULL;
    logits = exo_to_dtype(tape, logits, EXO_F32);
    exo_op *op = logits ? exo_tape_op(tape, &cross_entropy_class, (exo_tensor *[]){logits, labels}, 2) : NULL;
    exo_tensor *loss = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    float *grad = loss ? exo_tape_buffer(tape, logits->numel * sizeof *grad) : NULL;
    if (!grad)
        return NULL;
    op->saved[0] = grad;
    size_t rows = logits->dims[0], classes = logits->dims[1];
    const float *x = logits->data, scale = counted ? 1.0f / (float)counted : 0.0f;
    const int32_t *label = labels->data;
    double sum = 0;
    for (size_t n = 0; n < rows; n++)
        sum += row_loss(x + n * classes, classes, label[n], scale, grad + n * classes);
    *(float *)loss->data = counted ? (float)(sum / (double)counted) : 0.0f;
    return exo_tape_finish(tape, op, loss);
}

/* Whether the largest logit of a row, the first among equals, is at the label. */
static bool
hits(const exo_tensor *logits, size_t row, int32_t label)
{
    size_t classes = logits->dims[1], best = 0;
    float top = -INFINITY;
    for (size_t k = 0; k < classes; k++) {
        float v;
        exo_cast(logits->dtype, (const char *)logits->data + (row * classes + k) * exo_dtype_size(logits->dtype),
                 EXO_F32, &v, 1);
        if (v > top) {
            top = v;
            best = k;
        }
    }
    return best == (size_t)label;
}

double
exo_accuracy(const exo_tensor *logits, const exo_tensor *labels)
{
    if (logits->num_dims != 2 || logits->numel == 0 || labels->numel != logits->dims[0] || labels->dtype != EXO_I32 ||
        !exo_is_float(logits))
        return (double)NAN;
    size_t judged = 0, right = 0;
    const int32_t *label = labels->data;
    for (size_t n = 0; n < logits->dims[0]; n++) {
        judged += label[n] >= 0;
        right += label[n] >= 0 && hits(logits, n, label[n]);
    }
    return judged > 0 ? (double)right / (double)judged : (double)NAN;
}
