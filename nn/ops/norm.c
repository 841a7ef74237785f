/* Batch normalization (Ioffe & Szegedy, 2015), with ReLU in the same sweep if wanted.
 *
 * Forward in training: two sweeps, one for the statistics and one that applies them. Statistics are sums over pieces of samples,
 * taken around the first row's values so that a large mean costs no digits, and added up in double in the order of the pieces.
 * Backward: with x^ = (x - mean) / deviation over M values a channel,
 *     d beta = sum dy, d gamma = sum dy x^, dx = gamma / deviation * (dy - d beta / M - x^ d gamma / M);
 * outside training mean and deviation are constants and the two last terms fall away. */
#include <exogym/tensor.h>

#include <math.h>
#include <string.h>

#include <exogym/memory.h>

#include "nn/cpu/kernels.h"
#include "nn/ops/pieces.h"
#include "nn/tape_impl.h"

enum {
    INPUT,
    GAMMA,
    BETA,
    RUNNING_MEAN,
    RUNNING_VAR
};
enum {
    SAMPLES = 32
}; /* a piece */

/* Plan and working memory; (channels) each, the sums (pieces, channels). */
struct state {
    float *mean, *scale, *shift; /* y = scale x + shift */
    float *inverse;              /* 1 / sqrt(var + eps) */
    float *k_dy, *k_x, *k_1;
    double *sum, *product;
};

struct signature {
    size_t channels, pieces;
};

struct loop {
    exo_dtype type;
    const struct state *state;
    const char *x, *dy;
    char *y;
    const float *origin; /* what statistics are taken around */
    size_t samples, rows, channels;
    bool relu, add;
};

static void
release_state(void *state)
{
    struct state *s = state;
    exo_free(s->mean);
    exo_free(s->sum);
}

static bool
make_state(struct state *s, const struct signature *sig)
{
    size_t c = sig->channels;
    float *floats = exo_calloc(7 * c, sizeof *floats);
    double *doubles = exo_calloc(2 * c * sig->pieces, sizeof *doubles);
    s->mean = floats; /* the first: what release_state frees */
    s->sum = doubles;
    if (!floats || !doubles)
        return false;
    s->scale = floats + c;
    s->shift = floats + 2 * c;
    s->inverse = floats + 3 * c;
    s->k_dy = floats + 4 * c;
    s->k_x = floats + 5 * c;
    s->k_1 = floats + 6 * c;
    s->product = doubles + c * sig->pieces;
    return true;
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
    exo_bn_sums(l->type, l->x + skip, rows, l->channels, l->origin, l->state->sum + piece * l->channels,
                l->state->product + piece * l->channels);
}

static void
apply_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_apply(l->type, l->x + skip, l->y + skip, rows, l->channels, l->state->scale, l->state->shift, l->relu);
}

static void
grad_sums_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    const struct state *s = l->state;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_grad_sums(l->type, l->x + skip, l->dy + skip, rows, l->channels, s->mean, s->scale, s->shift, l->relu,
                     s->sum + piece * l->channels, s->product + piece * l->channels);
}

static void
grad_apply_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    const struct state *s = l->state;
    size_t skip, rows = piece_rows(l, piece, &skip);
    exo_bn_grad_apply(l->type, l->x + skip, l->dy + skip, l->y + skip, rows, l->channels, s->scale, s->shift, l->relu,
                      s->k_dy, s->k_x, s->k_1, l->add);
}

/* Adds the pieces' sums up, in their order, into those of the first. */
static void
fold_sums(const struct state *s, size_t pieces, size_t channels)
{
    for (size_t p = 1; p < pieces; p++) {
        for (size_t c = 0; c < channels; c++) {
            s->sum[c] += s->sum[p * channels + c];
            s->product[c] += s->product[p * channels + c];
        }
    }
}

static void
clear_sums(const struct state *s, size_t pieces, size_t channels)
{
    memset(s->sum, 0, 2 * pieces * channels * sizeof *s->sum);
}

static void
batch_statistics(struct loop *l, size_t pieces, const exo_op *op, float eps, float momentum, bool again)
{
    const struct state *s = l->state;
    float *running_mean = op->in[RUNNING_MEAN]->data, *running_var = op->in[RUNNING_VAR]->data;
    double count = (double)l->samples * (double)l->rows;

    exo_cast(l->type, l->x, EXO_F32, s->k_1, l->channels); /* the first row */
    l->origin = s->k_1;
    clear_sums(s, pieces, l->channels);
    exo_parallel_for(pieces, sums_piece, l);
    fold_sums(s, pieces, l->channels);
    for (size_t c = 0; c < l->channels; c++) {
        double offset = s->sum[c] / count;
        double variance = s->product[c] / count - offset * offset;
        variance = variance > 0 ? variance : variance == variance ? 0 : variance;
        double mean = (double)s->k_1[c] + offset;
        s->mean[c] = (float)mean;
        s->inverse[c] = (float)(1.0 / sqrt(variance + (double)eps));
        double unbiased = count > 1 ? variance * count / (count - 1) : variance;
        if (again)
            continue; /* a checkpoint: they have moved */
        running_mean[c] = (1 - momentum) * running_mean[c] + momentum * (float)mean;
        running_var[c] = (1 - momentum) * running_var[c] + momentum * (float)unbiased;
    }
}

static void
running_statistics(const struct state *s, const exo_op *op, size_t channels, float eps)
{
    const float *running_mean = op->in[RUNNING_MEAN]->data, *running_var = op->in[RUNNING_VAR]->data;
    for (size_t c = 0; c < channels; c++) {
        s->mean[c] = running_mean[c];
        s->inverse[c] = (float)(1.0 / sqrt((double)running_var[c] + (double)eps));
    }
}

static void
set_scale(const struct state *s, const exo_op *op, size_t channels)
{
    const float *gamma = op->in[GAMMA]->data, *beta = op->in[BETA]->data;
    for (size_t c = 0; c < channels; c++) {
        s->scale[c] = gamma[c] * s->inverse[c];
        s->shift[c] = beta[c] - s->mean[c] * s->scale[c];
    }
}

static struct loop
make_loop(const exo_op *op, const exo_tensor *x)
{
    return (struct loop){
        .type = x->dtype,
        .state = op->state,
        .x = x->data,
        .samples = x->dims[0],
        .rows = x->num_dims == 4 ? x->dims[2] * x->dims[3] : 1,
        .channels = x->dims[1],
        .relu = op->number != 0,
    };
}

static exo_status
batch_norm_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *gamma = op->in[GAMMA], *beta = op->in[BETA];
    const struct state *s = op->state;
    struct loop l = make_loop(op, x);
    size_t pieces = exo_pieces(l.samples, SAMPLES);
    bool train = exo_tape_pass(tape)->train;
    double count = (double)l.samples * (double)l.rows;
    exo_status st = EXO_OK;
    bool add_gamma = false, add_beta = false;
    float *dgamma = exo_tape_grad(tape, gamma, &add_gamma, &st);
    float *dbeta = exo_tape_grad(tape, beta, &add_beta, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);

    l.dy = op->out->grad;
    clear_sums(s, pieces, l.channels);
    exo_parallel_for(pieces, grad_sums_piece, &l);
    fold_sums(s, pieces, l.channels);
    for (size_t c = 0; c < l.channels; c++) {
        double sum_dy = s->sum[c], sum_dyx = s->product[c] * (double)s->inverse[c];
        if (dgamma)
            dgamma[c] = (add_gamma ? dgamma[c] : 0.0f) + (float)sum_dyx;
        if (dbeta)
            dbeta[c] = (add_beta ? dbeta[c] : 0.0f) + (float)sum_dy;
        double k = (double)s->scale[c]; /* gamma / deviation */
        double k_x = train ? -k * (double)s->inverse[c] * sum_dyx / count : 0;
        s->k_dy[c] = (float)k;
        s->k_x[c] = (float)k_x;
        s->k_1[c] = train ? (float)(-k * sum_dy / count - k_x * (double)s->mean[c]) : 0.0f;
    }
    if (!x->needs_grad)
        return EXO_OK;
    if (exo_tape_steal_grad(op, x))
        l.y = x->grad;
    else
        l.y = exo_tape_grad(tape, x, &l.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    exo_parallel_for(pieces, grad_apply_piece, &l);
    return EXO_OK;
}

static const exo_op_class batch_norm_class = {
    .name = "batch_norm", .backward = batch_norm_backward, .release = release_state};

static bool
check_shapes(exo_tape *tape, const exo_tensor *x, exo_tensor *const *per_channel)
{
    char text[96];
    if ((x->num_dims != 4 && x->num_dims != 2) || x->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL, "batch_norm: x %s: expected (N, C, H, W) or (N, C)", exo_shape_text(x, text));
        return false;
    }
    if (!exo_is_float(x)) {
        exo_tape_fail(tape, EXO_INVAL, "batch_norm: takes fp32 or bf16, not %s", exo_dtype_name(x->dtype));
        return false;
    }
    for (int i = 0; i < 4; i++) {
        if (per_channel[i]->dtype != EXO_F32) {
            exo_tape_fail(tape, EXO_INVAL, "batch_norm: a parameter or statistic is %s: expected fp32",
                          exo_dtype_name(per_channel[i]->dtype));
            return false;
        }
        if (per_channel[i]->num_dims != 1 || per_channel[i]->dims[0] != x->dims[1]) {
            exo_tape_fail(tape, EXO_INVAL, "batch_norm: a parameter or statistic is %s: expected (%zu)",
                          exo_shape_text(per_channel[i], text), x->dims[1]);
            return false;
        }
    }
    return true;
}

exo_tensor *
exo_batch_norm(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *bias, exo_tensor *running_mean,
               exo_tensor *running_var, const exo_batch_norm_opts *opts)
{
    if (!x || !weight || !bias || !running_mean || !running_var || exo_tape_error(tape, NULL) != EXO_OK ||
        !check_shapes(tape, x, (exo_tensor *[]){weight, bias, running_mean, running_var}))
        return NULL;
    float eps = opts && opts->eps > 0 ? opts->eps : 1e-5f;
    float momentum = opts && opts->momentum > 0 ? opts->momentum : 0.1f;
    if (x->num_dims == 4)
        x = exo_to_layout(tape, x, EXO_CHANNELS_LAST);
    exo_op *op =
        x ? exo_tape_op(tape, &batch_norm_class, (exo_tensor *[]){x, weight, bias, running_mean, running_var}, 5)
          : NULL;
    if (!op)
        return NULL;
    op->number = opts && opts->relu;

    size_t pieces = exo_pieces(x->dims[0], SAMPLES);
    const struct signature sig = {.channels = x->dims[1], .pieces = pieces};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &sig, sizeof sig, sizeof *s, &fresh);
    if (!s)
        return NULL;
    if (fresh && !make_state(s, &sig)) {
        exo_tape_state_failed(tape, op);
        return exo_tape_fail(tape, EXO_NOMEM, "batch_norm: no memory");
    }
    exo_tensor *y = exo_tape_tensor(tape, x->dtype, x->layout, x->num_dims, x->dims);
    if (!y)
        return NULL;
    struct loop l = make_loop(op, x);
    if (exo_tape_pass(tape)->train)
        batch_statistics(&l, pieces, op, eps, momentum, exo_tape_again(tape));
    else
        running_statistics(s, op, l.channels, eps);
    set_scale(s, op, l.channels);
    l.y = y->data;
    exo_parallel_for(pieces, apply_piece, &l);
    return exo_tape_finish(tape, op, y);
}
