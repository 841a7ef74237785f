/* Softmax cross-entropy and accuracy. */
#include <exogym/tensor.h>

#include <math.h>

#include "nn/cpu/kernels.h"
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

/* -log softmax(row)[label]; writes (softmax - one-hot) * scale. */
static double
row_loss(const float *row, size_t classes, size_t label, float scale, float *grad)
{
    float max = row[0];
    for (size_t k = 1; k < classes; k++)
        max = row[k] > max ? row[k] : max;
    double sum = 0;
    for (size_t k = 0; k < classes; k++) {
        grad[k] = expf(row[k] - max);
        sum += (double)grad[k];
    }
    for (size_t k = 0; k < classes; k++)
        grad[k] = ((float)((double)grad[k] / sum) - (k == label ? 1.0f : 0.0f)) * scale;
    return log(sum) - (double)(row[label] - max);
}

exo_tensor *
exo_softmax_cross_entropy(exo_tape *tape, exo_tensor *logits, exo_tensor *labels)
{
    char a[96], b[96];
    if (!logits || !labels || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (logits->num_dims != 2 || labels->num_dims != 1 || labels->dims[0] != logits->dims[0] ||
        labels->dtype != EXO_I32 || logits->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL,
                             "softmax_cross_entropy: logits %s and labels %s %s: expected (N, K) and (N) int32",
                             exo_shape_text(logits, a), exo_shape_text(labels, b), exo_dtype_name(labels->dtype));
    logits = exo_to_dtype(tape, logits, EXO_F32);
    exo_op *op = logits ? exo_tape_op(tape, &cross_entropy_class, (exo_tensor *[]){logits, labels}, 2) : NULL;
    exo_tensor *loss = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    float *grad = loss ? exo_tape_buffer(tape, logits->numel * sizeof *grad) : NULL;
    if (!grad)
        return NULL;
    op->saved[0] = grad;
    size_t rows = logits->dims[0], classes = logits->dims[1];
    const float *x = logits->data;
    const int32_t *label = labels->data;
    double sum = 0;
    for (size_t n = 0; n < rows; n++) {
        if (label[n] < 0 || (size_t)label[n] >= classes)
            return exo_tape_fail(tape, EXO_INVAL, "softmax_cross_entropy: label %d of sample %zu is not in [0, %zu)",
                                 label[n], n, classes);
        sum += row_loss(x + n * classes, classes, (size_t)label[n], 1.0f / (float)rows, grad + n * classes);
    }
    *(float *)loss->data = (float)(sum / (double)rows);
    return exo_tape_finish(tape, op, loss);
}

double
exo_accuracy(const exo_tensor *logits, const exo_tensor *labels)
{
    if (logits->num_dims != 2 || logits->numel == 0 || labels->numel != logits->dims[0] || labels->dtype != EXO_I32 ||
        !exo_is_float(logits))
        return (double)NAN;
    size_t rows = logits->dims[0], classes = logits->dims[1], hits = 0;
    const int32_t *label = labels->data;
    for (size_t n = 0; n < rows; n++) {
        size_t best = 0;
        float top = -INFINITY;
        for (size_t k = 0; k < classes; k++) {
            float v;
            exo_cast(logits->dtype, (const char *)logits->data + (n * classes + k) * exo_dtype_size(logits->dtype),
                     EXO_F32, &v, 1);
            if (v > top) {
                top = v;
                best = k;
            }
        }
        hits += label[n] >= 0 && (size_t)label[n] == best;
    }
    return (double)hits / (double)rows;
}
