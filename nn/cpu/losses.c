/* Kernels of losses (exogym/loss.h), in pieces of elements or of rows. Softmaxes use vector code,
 * like the head's (softmax.h). No state. Read next: nn/device/loss_terms.c. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include <exogym/loss.h>

#include "base/parallel.h"
#include "nn/cpu/softmax.h"
#include "nn/cpu/vector_math.h"

/* Defines a kernel of `args->count` elements. NAME_piece computes its pieces. */
#define SWEEP(NAME)                                                                                \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        return exo_cpu_sweep(args->count, NAME##_piece, args);                                     \
    }

/* --- Rows of logits --------------------------------------------------------------------------- */

/* The number of rows in a piece, which depends on the columns only. */
static size_t
rows_of_piece(size_t columns)
{
    return columns < EXO_CPU_PIECE ? EXO_CPU_PIECE / (columns ? columns : 1) : 1;
}

/* Defines a kernel of `args->rows` rows. NAME_row computes one row. */
#define ROWS(NAME)                                                                                 \
    static void NAME##_piece(void *args, size_t piece)                                             \
    {                                                                                              \
        const exo_##NAME##_args *k = args;                                                         \
        size_t per = rows_of_piece(k->columns), first = piece * per;                               \
        for (size_t r = first; r < k->rows && r < first + per; r++)                                \
            NAME##_row(k, r);                                                                      \
    }                                                                                              \
    exo_status exo_cpu_##NAME(exo_device *device, const exo_##NAME##_args *args, exo_err *err)     \
    {                                                                                              \
        size_t per = rows_of_piece(args->columns);                                                 \
        (void)device;                                                                              \
        (void)err;                                                                                 \
        exo_parallel_for((args->rows + per - 1) / per, NAME##_piece, (void *)(uintptr_t)args);     \
        return EXO_OK;                                                                             \
    }

static bool
is_column(int32_t target, size_t columns)
{
    return target >= 0 && (size_t)target < columns;
}

static void
log_probs_row(const exo_log_probs_args *k, size_t r)
{
    const float *x = k->x + r * k->columns;
    double log_sum = exo_softmax_log_sum(x, k->columns, k->scale);
    k->log_sum[r] = (float)log_sum;
    k->y[r] = is_column(k->targets[r], k->columns)
                  ? (float)((double)(x[k->targets[r]] * k->scale) - log_sum)
                  : 0.0f;
}
ROWS(log_probs)

static void
log_probs_backward_row(const exo_log_probs_backward_args *k, size_t r)
{
    size_t columns = k->columns, target = (size_t)k->targets[r];
    const float *restrict x = k->x + r * columns;
    float *restrict dx = k->dx + r * columns;
    bool counts = is_column(k->targets[r], columns);
    const float by = counts ? k->dy[r] * k->scale : 0.0f, scale = k->scale, off = k->log_sum[r];
    float kept = counts && k->add ? dx[target] : 0.0f;
    if (k->add)
        for (size_t v = 0; counts && v < columns; v++)
            dx[v] -= by * exo_vexp(x[v] * scale - off);
    else
        for (size_t v = 0; v < columns; v++)
            dx[v] = counts ? -by * exo_vexp(x[v] * scale - off) : 0.0f;
    if (counts) /* p - 1 by expm1: a subtraction would lose its digits for p near 1 */
        dx[target] = kept - by * (float)expm1((double)x[target] * (double)scale - (double)off);
}
ROWS(log_probs_backward)

/* With d = scale (top - x), S = sum e^-d and G = sum d e^-d, the entropy is log S + G / S. Nothing
 * cancels, and differences of logits are exact in double, however large the logits are. */
static void
entropy_row(const exo_entropy_args *k, size_t r)
{
    const float *x = k->x + r * k->columns;
    double scale = (double)k->scale, sum = 0, margin = 0;
    float top = -INFINITY;
    for (size_t v = 0; v < k->columns; v++)
        top = x[v] > top ? x[v] : top;
    for (size_t v = 0; v < k->columns; v++) {
        double below = scale * ((double)top - (double)x[v]), e = exp(-below);
        sum += e;
        margin += e > 0 ? below * e : 0; /* a logit of -infinity adds 0, not NaN */
    }
    k->log_sum[r] = (float)(scale * (double)top + log(sum));
    k->y[r] = (float)(log(sum) + margin / sum);
}
ROWS(entropy)

static void
entropy_backward_row(const exo_entropy_backward_args *k, size_t r)
{
    const float *restrict x = k->x + r * k->columns;
    float *restrict dx = k->dx + r * k->columns;
    const float by = -k->dy[r] * k->scale, scale = k->scale, off = k->log_sum[r], entropy = k->y[r];
    for (size_t v = 0; v < k->columns; v++) {
        float log_p = x[v] * scale - off, p = exo_vexp(log_p);
        float d = p > 0.0f ? by * p * (log_p + entropy) : 0.0f;
        dx[v] = k->add ? dx[v] + d : d;
    }
}
ROWS(entropy_backward)

/* --- Terms ------------------------------------------------------------------------------------ */

static void
policy_loss_piece(void *args, size_t piece)
{
    const exo_policy_loss_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0.0f)
            y = exo_policy_term((double)k->log_probs[i] - (double)k->old[i],
                                (double)k->advantages[i], k->clip, &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
}
SWEEP(policy_loss)

static void
kl_terms_piece(void *args, size_t piece)
{
    const exo_kl_terms_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0.0f)
            y = exo_kl_term(k->kind, (double)k->log_probs[i] - (double)k->old[i], &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
}
SWEEP(kl_terms)

static void
value_loss_piece(void *args, size_t piece)
{
    const exo_value_loss_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        double slope = 0, y = 0;
        if (!k->mask || k->mask[i] != 0.0f)
            y = exo_value_loss_term((double)k->values[i], (double)k->old[i], (double)k->targets[i],
                                    (double)k->clip, &slope);
        k->y[i] = (float)y;
        k->slope[i] = (float)slope;
    }
}
SWEEP(value_loss)

static void
ranking_loss_piece(void *args, size_t piece)
{
    const exo_ranking_loss_args *k = args;
    size_t first, end;
    exo_cpu_piece(k->count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        double margin = (double)k->x[2 * i] - (double)k->x[2 * i + 1], slope;
        double y = exo_ranking_loss_term(margin, &slope);
        k->y[i] = (float)(y + (double)k->smoothing * margin);
        k->slope[i] = (float)(slope + (double)k->smoothing);
    }
}
SWEEP(ranking_loss)

static void
ranking_loss_backward_piece(void *args, size_t piece)
{
    const exo_ranking_loss_backward_args k = *(const exo_ranking_loss_backward_args *)args;
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        float d = k.dy[i] * k.slope[i];
        k.dx[2 * i] = k.add ? k.dx[2 * i] + d : d;
        k.dx[2 * i + 1] = k.add ? k.dx[2 * i + 1] - d : -d;
    }
}
SWEEP(ranking_loss_backward)

/* --- The masked mean -------------------------------------------------------------------------- */

static void
masked_mean_piece(void *args, size_t piece)
{
    const exo_masked_mean_args *k = args;
    double sum = 0, weight = 0;
    (void)piece;
    for (size_t i = 0; i < k->count; i++)
        if (k->mask[i] != 0.0f) {
            sum += (double)k->x[i] * (double)k->mask[i];
            weight += (double)k->mask[i];
        }
    if (k->sum)
        weight = 1;
    k->y[0] = weight != 0 ? (float)(sum / weight) : 0.0f;
    k->factor[0] = weight != 0 ? (float)(1 / weight) : 0.0f;
}

exo_status
exo_cpu_masked_mean(exo_device *device, const exo_masked_mean_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(1, masked_mean_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

static void
masked_mean_backward_piece(void *args, size_t piece)
{
    const exo_masked_mean_backward_args k = *(const exo_masked_mean_backward_args *)args;
    const float by = k.dy[0] * k.factor[0];
    size_t first, end;
    exo_cpu_piece(k.count, piece, &first, &end);
    for (size_t i = first; i < end; i++) {
        float d = by * k.mask[i];
        k.dx[i] = k.add ? k.dx[i] + d : d;
    }
}
SWEEP(masked_mean_backward)

/* --- Sums over sequences ---------------------------------------------------------------------- */

static void
sequence_sum_piece(void *args, size_t n)
{
    const exo_sequence_sum_args *k = args;
    double sum = 0;
    for (size_t r = (size_t)k->offsets[n]; r < (size_t)k->offsets[n + 1]; r++)
        if (!k->mask)
            sum += (double)k->x[r];
        else if (k->mask[r] != 0.0f)
            sum += (double)k->x[r] * (double)k->mask[r];
    k->y[n] = (float)sum;
}

exo_status
exo_cpu_sequence_sum(exo_device *device, const exo_sequence_sum_args *args, exo_err *err)
{
    (void)device;
    (void)err;
    exo_parallel_for(args->count, sequence_sum_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}

static void
sequence_sum_backward_piece(void *args, size_t n)
{
    const exo_sequence_sum_backward_args *k = args;
    for (size_t r = (size_t)k->offsets[n]; r < (size_t)k->offsets[n + 1]; r++) {
        float d = k->mask ? k->dy[n] * k->mask[r] : k->dy[n];
        k->dx[r] = k->add ? k->dx[r] + d : d;
    }
}

exo_status
exo_cpu_sequence_sum_backward(exo_device *device, const exo_sequence_sum_backward_args *args,
                              exo_err *err)
{
    size_t first = (size_t)args->offsets[0], end = (size_t)args->offsets[args->count];
    (void)device;
    (void)err;
    if (!args->add) {
        memset(args->dx, 0, first * sizeof *args->dx);
        memset(args->dx + end, 0, (args->rows - end) * sizeof *args->dx);
    }
    exo_parallel_for(args->count, sequence_sum_backward_piece, (void *)(uintptr_t)args);
    return EXO_OK;
}
