/* Cross-entropy, log-probabilities and entropy over a large vocabulary, with the head in them: of the logits there is a part at a time.
 *
 * Cross-entropy computes its gradients with the loss where that costs little memory, and keeps them for backward; else, as always for
 * log-probabilities and entropies, backward computes the logits again. */
#include <exogym/sequence.h>

#include <math.h>
#include <string.h>

#include "nn/cpu/kernels.h"
#include "nn/ops/head.h"
#include "nn/ops/targets.h"
#include "nn/ops/vocabulary.h"
#include "nn/tape_run.h"

enum {
    INPUT,
    WEIGHT,
    TARGETS
};

enum {
    LOG_SUMS, /* saved: (rows)                                                      */
    X_GRAD,   /* saved: of a loss whose gradients are there already (rows, width)   */
    W_GRAD,   /* (vocabulary, width)                                                */
    WEIGHTS   /* the weights as bf16, under autocast, where gradients are kept      */
};

enum {
    KEPT_BYTES = 1 << 26 /* a gradient of the weights up to this size comes with the loss */
};

struct state {
    exo_head_plan plan;
    size_t counted; /* targets of this pass that are not negative */
};

static void
release_state(void *state)
{
    exo_head_plan_release(&((struct state *)state)->plan);
}

/* --- Backward -------------------------------------------------------------------------------------------------------------------- */

struct sweep {
    const float *from;
    float *to;
    size_t count;
    float factor;
    bool add;
};

static void
sweep_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first = piece * EXO_PIECE_ELEMENTS, count = exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
    const float *restrict from = s->from + first;
    float *restrict to = s->to + first;
    if (s->add)
        for (size_t i = 0; i < count; i++)
            to[i] += from[i] * s->factor;
    else
        for (size_t i = 0; i < count; i++)
            to[i] = from[i] * s->factor;
}

static void
scale_into(const float *from, float *to, size_t count, float factor, bool add)
{
    struct sweep s = {.from = from, .to = to, .count = count, .factor = factor, .add = add};
    exo_parallel_for(exo_pieces(count, EXO_PIECE_ELEMENTS), sweep_piece, &s);
}

/* Hands a gradient of x, fp32, to x, which may be bf16. */
static exo_status
give_x_gradient(exo_tape *tape, exo_tensor *x, float *gradient, float factor)
{
    bool add = false;
    exo_status st = EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (!dx)
        return st;
    if (x->dtype == EXO_F32) {
        scale_into(gradient, dx, x->numel, factor, add);
        return EXO_OK;
    }
    scale_into(gradient, gradient, x->numel, factor, false);
    if (!add) {
        exo_cast_all(EXO_F32, gradient, x->dtype, dx, x->numel);
        return EXO_OK;
    }
    void *cast = exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype));
    if (!cast)
        return EXO_NOMEM;
    exo_cast_all(EXO_F32, gradient, x->dtype, cast, x->numel);
    exo_accumulate_all(x->dtype, cast, dx, x->numel);
    exo_tape_buffer_done(tape, cast);
    return EXO_OK;
}

/* Gradients that came with the loss, times the loss's own. */
static exo_status
give_kept(exo_tape *tape, exo_op *op)
{
    float factor = *(const float *)op->out->grad;
    exo_tensor *weight = op->in[WEIGHT];
    bool add = false;
    exo_status st = op->saved[X_GRAD] ? give_x_gradient(tape, op->in[INPUT], op->saved[X_GRAD], factor) : EXO_OK;
    float *dw = st == EXO_OK ? exo_tape_grad(tape, weight, &add, &st) : NULL;
    if (dw && op->saved[W_GRAD])
        scale_into(op->saved[W_GRAD], dw, weight->numel, factor, add);
    return st;
}

static exo_head
head_of(const exo_op *op)
{
    const exo_tensor *weight = op->in[WEIGHT], *targets = op->in[TARGETS];
    return (exo_head){.plan = &((struct state *)op->state)->plan,
                      .x = op->in[INPUT]->data,
                      .weight = weight->data,
                      .cast = op->saved[WEIGHTS],
                      .targets = targets ? targets->data : NULL,
                      .scale = op->factor};
}

/* The gradients of weights that are not kept, to a sink as they become whole or where there are all. */
static exo_status
compute_again(exo_tape *tape, exo_op *op, const float *factor, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT];
    exo_head h = head_of(op);
    bool add = false;
    exo_status st = EXO_OK;
    h.log_sum = op->saved[LOG_SUMS];
    h.factor = factor;
    h.entropy = h.targets ? NULL : op->out->data;
    if (h.plan->span >= h.plan->chunks && exo_tape_open_rows(tape, weight))
        h.open = weight;
    else
        h.dweight = exo_tape_grad(tape, weight, &add, &st);
    if (h.dweight && !add)
        memset(h.dweight, 0, weight->numel * sizeof *h.dweight);
    if (x->needs_grad)
        h.dx = exo_tape_buffer(tape, x->numel * sizeof *h.dx);
    if (exo_tape_error(tape, NULL) != EXO_OK || !exo_head_open(&h, tape))
        return exo_tape_error(tape, err);
    if (h.dx)
        memset(h.dx, 0, x->numel * sizeof *h.dx);
    st = exo_head_backward(&h, err);
    exo_head_close(&h);
    if (st == EXO_OK && h.dx && give_x_gradient(tape, x, h.dx, 1.0f) != EXO_OK)
        st = exo_tape_error(tape, err);
    exo_tape_buffer_done(tape, h.dx);
    return st;
}

static exo_status
cross_entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct state *s = op->state;
    if (s->counted == 0)
        return EXO_OK;
    if (op->number != 0)
        return give_kept(tape, op) == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    size_t rows = op->in[INPUT]->dims[0];
    const int32_t *target = op->in[TARGETS]->data;
    float *factor = exo_tape_buffer(tape, rows * sizeof *factor), scale = *(const float *)op->out->grad;
    if (!factor)
        return exo_tape_error(tape, err);
    for (size_t r = 0; r < rows; r++)
        factor[r] = target[r] >= 0 ? scale / (float)s->counted : 0.0f;
    exo_status st = compute_again(tape, op, factor, err);
    exo_tape_buffer_done(tape, factor);
    return st;
}

/* log p = scale logit[target] - log_sum: the gradient's sign is the other one. */
static exo_status
log_probs_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    size_t rows = op->in[INPUT]->dims[0];
    const int32_t *target = op->in[TARGETS]->data;
    const float *dy = op->out->grad;
    float *factor = exo_tape_buffer(tape, rows * sizeof *factor);
    if (!factor)
        return exo_tape_error(tape, err);
    for (size_t r = 0; r < rows; r++)
        factor[r] = target[r] >= 0 ? -dy[r] * op->factor : 0.0f;
    exo_status st = compute_again(tape, op, factor, err);
    exo_tape_buffer_done(tape, factor);
    return st;
}

/* H = log_sum - sum p z, z = scale logit: d H / d z = -p (log p + H). */
static exo_status
entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    size_t rows = op->in[INPUT]->dims[0];
    float *factor = exo_tape_buffer(tape, rows * sizeof *factor);
    if (!factor ||
        exo_tape_run(tape, scale, .count = rows, .y = factor, .a = -op->factor, .x = op->out->grad) != EXO_OK)
        return exo_tape_error(tape, err);
    exo_status st = compute_again(tape, op, factor, err);
    exo_tape_buffer_done(tape, factor);
    return st;
}

/* --- Forward --------------------------------------------------------------------------------------------------------------------- */

static const exo_op_class cross_entropy_class = {
    .name = "linear_cross_entropy", .backward = cross_entropy_backward, .release = release_state};
static const exo_op_class log_probs_class = {
    .name = "linear_log_probs", .backward = log_probs_backward, .release = release_state};
static const exo_op_class entropy_class = {
    .name = "linear_entropy", .backward = entropy_backward, .release = release_state};

/* targets may be NULL. */
static bool
check(exo_tape *tape, const char *name, const exo_tensor *x, const exo_tensor *weight, const exo_tensor *targets,
      size_t *counted)
{
    char a[96], b[96], c[96];
    *counted = 0;
    if (x->num_dims != 2 || weight->num_dims != 2 || x->dims[1] != weight->dims[1] || x->numel == 0 ||
        weight->numel == 0 || weight->dtype != EXO_F32) {
        exo_tape_fail(tape, EXO_INVAL, "%s: x %s, weight %s: expected (R, W), (V, W) fp32", name, exo_shape_text(x, a),
                      exo_shape_text(weight, b));
        return false;
    }
    if (targets && (targets->dtype != EXO_I32 || targets->numel != x->dims[0])) {
        exo_tape_fail(tape, EXO_INVAL, "%s: x %s, weight %s, targets %s %s: expected (R, W), (V, W) fp32, R int32",
                      name, exo_shape_text(x, a), exo_shape_text(weight, b), exo_shape_text(targets, c),
                      exo_dtype_name(targets->dtype));
        return false;
    }
    return !targets || exo_count_targets(tape, name, targets, weight->dims[0], counted);
}

/* The operation with its plan, x in the type of products; `has_targets`: NULL in place of them is an error that was recorded; `keeps`: gradients
 * come with the forward pass where they are small. NULL: recorded in the tape. */
static exo_op *
begin(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_tensor *weight, exo_tensor *targets,
      bool has_targets, bool keeps)
{
    exo_dtype dtype = exo_compute_dtype(tape);
    size_t counted = 0;
    if (!x || !weight || (has_targets && !targets) || exo_tape_error(tape, NULL) != EXO_OK ||
        !check(tape, op_class->name, x, weight, targets, &counted))
        return NULL;
    x = exo_to_dtype(tape, x, dtype);
    exo_op *op = x ? exo_tape_op(tape, op_class, (exo_tensor *[]){x, weight, targets}, has_targets ? 3 : 2) : NULL;
    if (!op)
        return NULL;
    bool wide = keeps && exo_tape_pass(tape)->grad && weight->numel * sizeof(float) <= KEPT_BYTES;
    const exo_head_shape shape = {.rows = x->dims[0],
                                  .width = x->dims[1],
                                  .vocabulary = weight->dims[0],
                                  .dtype = (size_t)dtype,
                                  .gradients = exo_tape_pass(tape)->grad,
                                  .wide = wide};
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &shape, sizeof shape, sizeof *s, &fresh);
    exo_status st = s && fresh ? exo_head_plan_init(&s->plan, &shape, &err) : EXO_OK;
    if (st != EXO_OK) {
        exo_tape_plan_failed(tape, op, dtype, st, &err);
        return NULL;
    }
    op->saved[LOG_SUMS] = s ? exo_tape_buffer(tape, shape.rows * sizeof(float)) : NULL;
    if (s && dtype != EXO_F32 && wide) {
        op->saved[WEIGHTS] = exo_tape_buffer(tape, weight->numel * exo_dtype_size(dtype));
        if (op->saved[WEIGHTS])
            exo_cast_all(EXO_F32, weight->data, dtype, op->saved[WEIGHTS], weight->numel);
    }
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    s->counted = counted;
    return op;
}

/* Room for the gradients that come with the loss; factors of the rows in the result, which the caller gives back. */
static float *
keep_gradients(exo_tape *tape, exo_op *op, exo_head *h, size_t counted)
{
    const exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT];
    float *factor = exo_tape_buffer(tape, x->dims[0] * sizeof *factor);
    if (x->needs_grad)
        op->saved[X_GRAD] = h->dx = exo_tape_buffer(tape, x->numel * sizeof *h->dx);
    if (weight->needs_grad)
        op->saved[W_GRAD] = h->dweight = exo_tape_buffer(tape, weight->numel * sizeof *h->dweight);
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (h->dx)
        memset(h->dx, 0, x->numel * sizeof *h->dx);
    if (h->dweight)
        memset(h->dweight, 0, weight->numel * sizeof *h->dweight);
    for (size_t r = 0; r < x->dims[0]; r++)
        factor[r] = h->targets[r] >= 0 ? 1.0f / (float)counted : 0.0f;
    op->number = 1;
    return factor;
}

exo_tensor *
exo_linear_cross_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *targets)
{
    exo_op *op = begin(tape, &cross_entropy_class, x, weight, targets, true, true);
    exo_tensor *loss = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    if (!loss)
        return NULL;
    const struct state *s = op->state;
    size_t rows = op->in[INPUT]->dims[0];
    op->factor = 1.0f;
    exo_head h = head_of(op);
    h.log_sum = op->saved[LOG_SUMS];
    float *picked = h.picked = exo_tape_buffer(tape, rows * sizeof *picked), *factor = NULL;
    if (picked && s->plan.shape.wide && s->counted > 0)
        h.factor = factor = keep_gradients(tape, op, &h, s->counted);
    if (exo_tape_error(tape, NULL) != EXO_OK || !exo_head_open(&h, tape))
        return NULL;
    exo_err err = {0};
    exo_status st = exo_head_forward(&h, &err);
    double sum = 0;
    for (size_t r = 0; r < rows; r++)
        sum += h.targets[r] >= 0 ? (double)h.log_sum[r] - (double)picked[r] : 0.0;
    *(float *)loss->data = s->counted > 0 ? (float)(sum / (double)s->counted) : 0.0f;
    exo_head_close(&h);
    exo_tape_buffer_done(tape, picked);
    exo_tape_buffer_done(tape, factor);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "linear_cross_entropy: %s", err.text);
    return exo_tape_finish(tape, op, loss);
}

exo_tensor *
exo_linear_log_probs(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *targets, float temperature)
{
    if (!(temperature >= 0.0f) || isinf(temperature))
        return exo_tape_fail(tape, EXO_INVAL, "linear_log_probs: the temperature %g is not a number from 0",
                             (double)temperature);
    exo_op *op = begin(tape, &log_probs_class, x, weight, targets, true, false);
    size_t rows = op ? op->in[INPUT]->dims[0] : 0;
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, &rows) : NULL;
    if (!y)
        return NULL;
    op->factor = temperature > 0.0f ? 1.0f / temperature : 1.0f;
    exo_head h = head_of(op);
    h.log_sum = op->saved[LOG_SUMS];
    float *out = h.picked = y->data;
    if (!exo_head_open(&h, tape))
        return NULL;
    exo_err err = {0};
    exo_status st = exo_head_forward(&h, &err);
    for (size_t r = 0; r < rows; r++)
        out[r] = h.targets[r] >= 0 ? out[r] - h.log_sum[r] : 0.0f;
    exo_head_close(&h);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "linear_log_probs: %s", err.text);
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_linear_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float scale)
{
    exo_op *op = begin(tape, &entropy_class, x, weight, NULL, false, false);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, op->in[INPUT]->dims) : NULL;
    if (!y)
        return NULL;
    op->factor = scale;
    exo_head h = head_of(op);
    h.log_sum = op->saved[LOG_SUMS];
    h.entropy = y->data;
    if (!exo_head_open(&h, tape))
        return NULL;
    exo_err err = {0};
    exo_status st = exo_head_forward(&h, &err);
    exo_head_close(&h);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "linear_entropy: %s", err.text);
    return exo_tape_finish(tape, op, y);
}
