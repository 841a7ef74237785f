/* Kernels of losses, written as their definitions: one loop for each dimension, in double. The
 * terms themselves exist once, in nn/device/loss_terms.c; tests/golden/losses.py computes them in
 * another way. No state. */
#include "nn/ref/ref_kernels.h"

#include <math.h>

#include <exogym/loss.h>

/* --- Rows of logits --------------------------------------------------------------------------- */

static double
log_sum_of(const float *x, size_t columns, double scale)
{
    double max = -INFINITY, sum = 0;
    for (size_t v = 0; v < columns; v++)
        max = fmax(max, (double)x[v] * scale);
    for (size_t v = 0; v < columns; v++)
        sum += exp((double)x[v] * scale - max);
    return max + log(sum);
}

static bool
is_column(int32_t target, size_t columns)
{
    return target >= 0 && (size_t)target < columns;
}

exo_status
exo_reference_log_probs(exo_device *device, const exo_log_probs_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        const float *x = k->x + r * k->columns;
        double log_sum = log_sum_of(x, k->columns, (double)k->scale);
        k->log_sum[r] = (float)log_sum;
        k->y[r] = is_column(k->targets[r], k->columns)
                      ? (float)((double)x[k->targets[r]] * (double)k->scale - log_sum)
                      : 0;
    }
    return EXO_OK;
}

exo_status
exo_reference_log_probs_backward(exo_device *device, const exo_log_probs_backward_args *k,
                                 exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t v = 0; v < k->columns; v++) {
            size_t i = r * k->columns + v;
            double p = exp((double)k->x[i] * (double)k->scale - (double)k->log_sum[r]);
            double by = (double)k->dy[r] * (double)k->scale;
            double dx = is_column(k->targets[r], k->columns)
                            ? by * (((size_t)k->targets[r] == v ? 1 : 0) - p)
                            : 0;
            k->dx[i] = (float)((k->add ? (double)k->dx[i] : 0) + dx);
        }
    return EXO_OK;
}

exo_status
exo_reference_entropy(exo_device *device, const exo_entropy_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++) {
        const float *x = k->x + r * k->columns;
        double log_sum = log_sum_of(x, k->columns, (double)k->scale);
        k->log_sum[r] = (float)log_sum;
        k->y[r] = (float)exo_entropy_term(k->columns, x, (double)k->scale, log_sum);
    }
    return EXO_OK;
}

exo_status
exo_reference_entropy_backward(exo_device *device, const exo_entropy_backward_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows; r++)
        for (size_t v = 0; v < k->columns; v++) {
            size_t i = r * k->columns + v;
            double log_p = (double)k->x[i] * (double)k->scale - (double)k->log_sum[r],
                   p = exp(log_p);
            double dx =
                p > 0 ? -(double)k->dy[r] * (double)k->scale * p * (log_p + (double)k->y[r]) : 0;
            k->dx[i] = (float)((k->add ? (double)k->dx[i] : 0) + dx);
        }
    return EXO_OK;
}

/* --- Terms ------------------------------------------------------------------------------------ */

exo_status
exo_reference_policy_loss(exo_device *device, const exo_policy_loss_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0)
            y = exo_policy_term((double)k->log_probs[i] - (double)k->old[i],
                                (double)k->advantages[i], k->clip, &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
    return EXO_OK;
}

exo_status
exo_reference_kl_terms(exo_device *device, const exo_kl_terms_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0)
            y = exo_kl_term(k->kind, (double)k->log_probs[i] - (double)k->old[i], &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
    return EXO_OK;
}

exo_status
exo_reference_value_loss(exo_device *device, const exo_value_loss_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0)
            y = exo_value_loss_term((double)k->values[i], (double)k->old[i], (double)k->targets[i],
                                    (double)k->clip, &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
    return EXO_OK;
}

exo_status
exo_reference_ranking_loss(exo_device *device, const exo_ranking_loss_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        double margin = (double)k->x[2 * i] - (double)k->x[2 * i + 1], slope;
        double y = exo_ranking_loss_term(margin, &slope);
        k->y[i] = (float)(y + (double)k->smoothing * margin);
        k->slope[i] = (float)(slope + (double)k->smoothing);
    }
    return EXO_OK;
}

exo_status
exo_reference_ranking_loss_backward(exo_device *device, const exo_ranking_loss_backward_args *k,
                                    exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float d = k->dy[i] * k->slope[i];
        k->dx[2 * i] = k->add ? k->dx[2 * i] + d : d;
        k->dx[2 * i + 1] = k->add ? k->dx[2 * i + 1] - d : -d;
    }
    return EXO_OK;
}

exo_status
exo_reference_masked_mean(exo_device *device, const exo_masked_mean_args *k, exo_err *err)
{
    double sum = 0, weight = 0;
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++)
        if (k->mask[i] != 0) {
            sum += (double)k->x[i] * (double)k->mask[i];
            weight += (double)k->mask[i];
        }
    if (k->sum)
        weight = 1;
    k->y[0] = weight != 0 ? (float)(sum / weight) : 0;
    k->factor[0] = weight != 0 ? (float)(1 / weight) : 0;
    return EXO_OK;
}

exo_status
exo_reference_masked_mean_backward(exo_device *device, const exo_masked_mean_backward_args *k,
                                   exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t i = 0; i < k->count; i++) {
        float d = k->dy[0] * k->factor[0] * k->mask[i];
        k->dx[i] = k->add ? k->dx[i] + d : d;
    }
    return EXO_OK;
}

exo_status
exo_reference_sequence_sum(exo_device *device, const exo_sequence_sum_args *k, exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t n = 0; n < k->count; n++) {
        double sum = 0;
        for (int32_t r = k->offsets[n]; r < k->offsets[n + 1]; r++)
            if (!k->mask || k->mask[r] != 0)
                sum += (double)k->x[r] * (k->mask ? (double)k->mask[r] : 1);
        k->y[n] = (float)sum;
    }
    return EXO_OK;
}

exo_status
exo_reference_sequence_sum_backward(exo_device *device, const exo_sequence_sum_backward_args *k,
                                    exo_err *err)
{
    (void)device;
    (void)err;
    for (size_t r = 0; r < k->rows && !k->add; r++)
        k->dx[r] = 0;
    for (size_t n = 0; n < k->count; n++)
        for (int32_t r = k->offsets[n]; r < k->offsets[n + 1]; r++)
            k->dx[r] += k->mask ? k->dy[n] * k->mask[r] : k->dy[n];
    return EXO_OK;
}
