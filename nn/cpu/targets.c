/* Losses of classification: cross-entropy of whole logits, hits, and what a head's kernels leave to
 * do. Rows in their order: sums have one. No state. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/kernels.h"

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

exo_status
exo_cpu_cross_entropy(exo_device *device, const exo_cross_entropy_args *k, exo_err *err)
{
    float scale = k->counted ? 1.0f / (float)k->counted : 0.0f;
    double sum = 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        sum += row_loss(k->x + r * k->columns, k->columns, k->targets[r], scale,
                        k->dx + r * k->columns);
    k->y[0] = k->counted ? (float)(sum / (double)k->counted) : 0.0f;
    return EXO_OK;
}

/* Whether the largest element of a row, the first among equals, is at the target. */
static bool
is_hit(const exo_hits_args *k, size_t row)
{
    size_t best = 0, size = exo_dtype_size(k->dtype);
    float top = -INFINITY;
    for (size_t c = 0; c < k->columns; c++) {
        float v;
        exo_cast(k->dtype, (const char *)k->x + (row * k->columns + c) * size, EXO_F32, &v, 1);
        if (v > top) {
            top = v;
            best = c;
        }
    }
    return k->targets[row] >= 0 && best == (size_t)k->targets[row];
}

exo_status
exo_cpu_hits(exo_device *device, const exo_hits_args *k, exo_err *err)
{
    size_t hits = 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        hits += is_hit(k, r);
    k->out[0] = (double)hits;
    return EXO_OK;
}

static void
scale_by_piece(void *args, size_t piece)
{
    const exo_scale_by_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    const float factor = k->factor[0], *x = k->x;
    float *y = k->y;
    if (k->add)
        for (size_t i = first; i < end; i++)
            y[i] += x[i] * factor;
    else
        for (size_t i = first; i < end; i++)
            y[i] = x[i] * factor;
}

exo_status
exo_cpu_scale_by(exo_device *device, const exo_scale_by_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    return exo_cpu_sweep(args->count, scale_by_piece, args);
}

exo_status
exo_cpu_row_factors(exo_device *device, const exo_row_factors_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        float dy = k->dy ? k->dy[r * k->stride] : 1.0f;
        k->y[r] = k->targets[r] >= 0 ? dy * k->a / k->divisor : 0.0f;
    }
    return EXO_OK;
}

exo_status
exo_cpu_picked_log_probs(exo_device *device, const exo_picked_log_probs_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        k->y[r] = k->targets[r] >= 0 ? k->y[r] - k->log_sum[r] : 0.0f;
    return EXO_OK;
}

exo_status
exo_cpu_picked_loss(exo_device *device, const exo_picked_loss_args *k, exo_err *err)
{
    double sum = 0;
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        sum += k->targets[r] >= 0 ? (double)k->log_sum[r] - (double)k->picked[r] : 0.0;
    k->y[0] = k->counted > 0 ? (float)(sum / (double)k->counted) : 0.0f;
    return EXO_OK;
}
