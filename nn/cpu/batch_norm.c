/* Batch normalization (Ioffe & Szegedy, 2015), with ReLU in the same sweep if wanted.
 *
 * Forward in training: two sweeps, one for the statistics and one that applies them. Statistics are
 * sums over pieces of samples, taken around the first row's values so that a large mean costs no
 * digits, and added up in double in the order of the pieces.
 *
 * Backward: with x^ = (x - mean) / deviation over M values a channel,
 *
 *     d beta = sum dy, d gamma = sum dy x^,
 *     dx = gamma / deviation * (dy - d beta / M - x^ d gamma / M);
 *
 * outside training mean and deviation are constants and the two last terms fall away. */
#include "nn/cpu/cpu_device.h"

#include <math.h>
#include <string.h>

#include "nn/cpu/kernels.h"
#include "nn/cpu/pieces.h"
#include "nn/cpu/plans.h"

enum {
    SAMPLES = 32 /* a piece */
};

/* What forward keeps, (channels) each, and working memory. */
struct work {
    float *mean, *scale, *shift; /* y = scale x + shift */
    float *inverse;              /* 1 / sqrt(var + eps) */
    float *k_dy, *k_x, *k_1;
    double *sum, *product; /* (pieces, channels) */
};

struct loop {
    exo_dtype type;
    struct work work;
    const char *x, *dy;
    char *y;
    const float *origin; /* what statistics are taken around */
    size_t samples, rows, channels;
    bool relu, add;
};

size_t
exo_cpu_batch_norm_scratch(const exo_batch_norm_shape *shape)
{
    return shape->channels *
           (2 * exo_pieces(shape->samples, SAMPLES) * sizeof(double) + 3 * sizeof(float));
}

static struct work
work_of(const exo_batch_norm_shape *shape, const float *kept, void *scratch)
{
    size_t c = shape->channels, pieces = exo_pieces(shape->samples, SAMPLES);
    float *of = (float *)(uintptr_t)kept;
    struct work w = {
        .mean = of, .scale = of + c, .shift = of + 2 * c, .inverse = of + 3 * c, .sum = scratch};
    w.product = w.sum + pieces * c;
    w.k_dy = (float *)(void *)(w.product + pieces * c);
    w.k_x = w.k_dy + c;
    w.k_1 = w.k_x + c;
    return w;
}

/* Where a piece starts, in bytes, and how many rows it has. */
static size_t
piece_rows(const struct loop *l, size_t piece, size_t *skip)
{
    *skip = piece * SAMPLES * l->rows * l->channels * exo_dtype_size(l->type);
    return exo_piece_length(l->samples, SAMPLES, piece) * l->rows;
}

static void
sums_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_sums(l->type, l->x + skip, rows, l->channels, l->origin,
                l->work.sum + piece * l->channels, l->work.product + piece * l->channels);
}

static void
apply_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_apply(l->type, l->x + skip, l->y + skip, rows, l->channels, l->work.scale, l->work.shift,
                 l->relu);
}

static void
grad_sums_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    const struct work *w = &l->work;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_grad_sums(l->type, l->x + skip, l->dy + skip, rows, l->channels, w->mean, w->scale,
                     w->shift, l->relu, w->sum + piece * l->channels,
                     w->product + piece * l->channels);
}

static void
grad_apply_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    const struct work *w = &l->work;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_grad_apply(l->type, l->x + skip, l->dy + skip, l->y + skip, rows, l->channels, w->scale,
                      w->shift, l->relu, w->k_dy, w->k_x, w->k_1, l->add);
}

/* Fills the sums of all pieces and adds them up, in their order, into those of the first. */
static void
sum_up(struct loop *l, void (*piece)(void *context, size_t piece))
{
    size_t pieces = exo_pieces(l->samples, SAMPLES);
    const struct work *w = &l->work;
    memset(w->sum, 0, 2 * pieces * l->channels * sizeof *w->sum);
    exo_parallel_for(pieces, piece, l);
    for (size_t p = 1; p < pieces; p++) {
        for (size_t c = 0; c < l->channels; c++) {
            w->sum[c] += w->sum[p * l->channels + c];
            w->product[c] += w->product[p * l->channels + c];
        }
    }
}

static void
batch_statistics(struct loop *l, const exo_batch_norm_args *k)
{
    const struct work *w = &l->work;
    double count = (double)l->samples * (double)l->rows;

    exo_cast(l->type, l->x, EXO_F32, w->k_1, l->channels); /* the first row */
    l->origin = w->k_1;
    sum_up(l, sums_piece);
    for (size_t c = 0; c < l->channels; c++) {
        double offset = w->sum[c] / count;
        double variance = w->product[c] / count - offset * offset;
        variance = variance > 0 ? variance : variance == variance ? 0 : variance;
        double mean = (double)w->k_1[c] + offset;
        w->mean[c] = (float)mean;
        w->inverse[c] = (float)(1.0 / sqrt(variance + (double)k->eps));
        double unbiased = count > 1 ? variance * count / (count - 1) : variance;
        if (!k->move)
            continue;
        k->running_mean[c] = (1 - k->momentum) * k->running_mean[c] + k->momentum * (float)mean;
        k->running_var[c] = (1 - k->momentum) * k->running_var[c] + k->momentum * (float)unbiased;
    }
}

static void
running_statistics(const struct work *w, const exo_batch_norm_args *k)
{
    for (size_t c = 0; c < k->shape.channels; c++) {
        w->mean[c] = k->running_mean[c];
        w->inverse[c] = (float)(1.0 / sqrt((double)k->running_var[c] + (double)k->eps));
    }
}

exo_status
exo_cpu_batch_norm(exo_device *device, const exo_batch_norm_args *k, exo_err *err)
{
    struct loop l = {.type = k->dtype,
                     .work = work_of(&k->shape, k->kept, k->scratch),
                     .x = k->x,
                     .y = k->y,
                     .samples = k->shape.samples,
                     .rows = k->rows,
                     .channels = k->shape.channels,
                     .relu = k->relu};
    const struct work *w = &l.work;
    (void)device;
    (void)err;
    if (k->train)
        batch_statistics(&l, k);
    else
        running_statistics(w, k);
    for (size_t c = 0; c < l.channels; c++) {
        w->scale[c] = k->weight[c] * w->inverse[c];
        w->shift[c] = k->bias[c] - w->mean[c] * w->scale[c];
    }
    exo_parallel_for(exo_pieces(l.samples, SAMPLES), apply_piece, &l);
    return EXO_OK;
}

exo_status
exo_cpu_batch_norm_backward(exo_device *device, const exo_batch_norm_backward_args *k, exo_err *err)
{
    struct loop l = {.type = k->dtype,
                     .work = work_of(&k->shape, k->kept, k->scratch),
                     .x = k->x,
                     .dy = k->dy,
                     .y = k->dx,
                     .samples = k->shape.samples,
                     .rows = k->rows,
                     .channels = k->shape.channels,
                     .relu = k->relu,
                     .add = k->add};
    const struct work *w = &l.work;
    double count = (double)l.samples * (double)l.rows;
    (void)device;
    (void)err;
    sum_up(&l, grad_sums_piece);
    for (size_t c = 0; c < l.channels; c++) {
        double sum_dy = w->sum[c], sum_dyx = w->product[c] * (double)w->inverse[c];
        if (k->dweight)
            k->dweight[c] = (k->add_weight ? k->dweight[c] : 0.0f) + (float)sum_dyx;
        if (k->dbias)
            k->dbias[c] = (k->add_bias ? k->dbias[c] : 0.0f) + (float)sum_dy;
        double scale = (double)w->scale[c]; /* gamma / deviation */
        double k_x = k->train ? -scale * (double)w->inverse[c] * sum_dyx / count : 0;
        w->k_dy[c] = (float)scale;
        w->k_x[c] = (float)k_x;
        w->k_1[c] = k->train ? (float)(-scale * sum_dy / count - k_x * (double)w->mean[c]) : 0.0f;
    }
    if (k->dx)
        exo_parallel_for(exo_pieces(l.samples, SAMPLES), grad_apply_piece, &l);
    return EXO_OK;
}
