/* Cross-entropy, log-probabilities and entropies over a large vocabulary, fused with the
 * head, logits = x weight^T. Only a part of the logits is in memory at a time.
 *
 * Cross-entropy computes its gradients in the forward pass if the weights are small (KEPT_BYTES),
 * and saves them for backward. Otherwise, and always for log-probabilities and entropies, backward
 * computes the logits again; cross-entropy saves as many of them as the device asks for. State: the
 * plan, in the operation's cache. Read next: nn/cpu/head.c. */
#include <exogym/sequence.h>

#include <math.h>
#include <string.h>

#include "nn/device/temperature.h"
#include "nn/ops/embedding.h"
#include "nn/ops/targets.h"
#include "nn/ops/vocabulary.h"
#include "nn/tape_run.h"

enum {
    INPUT,
    WEIGHT,
    TARGETS,
    /* of a part of a vocabulary: the targets in the whole; TARGETS are those in the part */
    WHOLE_TARGETS
};

enum {
    LOG_SUMS, /* saved: (rows) */
    X_GRAD,   /* saved: x's gradient (rows, width), if forward computed it */
    W_GRAD,   /* saved: the weights' gradient (vocabulary, width), likewise */
    WEIGHTS,  /* saved: the weights as bf16, under autocast, if wide */
    LOGITS    /* saved: the first of EXO_HEAD_LANES buffers of logits, if forward keeps some */
};

/* Weights up to this size get their gradient in the forward pass. On a GPU, where
 * a second product takes longer than to write and to read a gradient, they are larger. */
enum {
    KEPT_BYTES = 1 << 26,
    KEPT_BYTES_GPU = 1 << 28
};

struct state {
    exo_plan *plan;
    exo_head_shape shape;
    size_t counted; /* targets of this pass that are not negative */
};

static void
release_state(void *state)
{
    exo_plan_free(&((struct state *)state)->plan);
}

/* --- Backward --------------------------------------------------------------------------------- */

/* Gives x the fp32 `gradient`, cast to x's type. factor: one number by which it is multiplied;
 * NULL: none. May overwrite `gradient`. */
static exo_status
give_x_gradient(exo_tape *tape, exo_tensor *x, float *gradient, const float *factor)
{
    bool add = false;
    exo_status st = EXO_OK;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (!dx)
        return st;
    if (factor && x->dtype == EXO_F32)
        return exo_tape_run(tape, scale_by, .count = x->numel, .y = dx, .x = gradient,
                            .factor = factor, .add = add);
    if (factor)
        exo_tape_run(tape, scale_by, .count = x->numel, .y = gradient, .x = gradient,
                     .factor = factor);
    if (x->dtype == EXO_F32 && !add)
        return exo_tape_copy(tape, dx, gradient, x->numel * sizeof *gradient);
    void *own = add && x->dtype != EXO_F32
                    ? exo_tape_buffer(tape, x->numel * exo_dtype_size(x->dtype))
                    : NULL;
    void *target = add ? own : dx;
    if (x->dtype != EXO_F32 && target)
        exo_tape_run(tape, cast, .count = x->numel, .to = x->dtype, .from = EXO_F32, .y = target,
                     .x = gradient);
    if (add && exo_tape_error(tape, NULL) == EXO_OK)
        exo_tape_run(tape, add, .count = x->numel, .dtype = x->dtype, .y = dx, .a = dx,
                     .b = own ? own : gradient);
    exo_tape_buffer_done(tape, own);
    return exo_tape_error(tape, NULL);
}

/* Gives the gradients that forward computed, multiplied by the gradient of the loss. */
static exo_status
give_kept(exo_tape *tape, exo_op *op)
{
    const float *factor = op->out->grad;
    exo_tensor *weight = op->in[WEIGHT];
    bool add = false;
    exo_status st = op->saved[X_GRAD]
                        ? give_x_gradient(tape, op->in[INPUT], op->saved[X_GRAD], factor)
                        : EXO_OK;
    float *dw = st == EXO_OK ? exo_tape_grad(tape, weight, &add, &st) : NULL;
    if (dw && op->saved[W_GRAD])
        st = exo_tape_run(tape, scale_by, .count = weight->numel, .y = dw, .x = op->saved[W_GRAD],
                          .factor = factor, .add = add);
    return st;
}

static exo_head_args
head_of(const exo_op *op)
{
    const exo_tensor *weight = op->in[WEIGHT], *targets = op->in[TARGETS];
    return (exo_head_args){.plan = ((struct state *)op->state)->plan,
                           .x = op->in[INPUT]->data,
                           .weight = weight->data,
                           .cast = op->saved[WEIGHTS],
                           .targets = targets ? targets->data : NULL,
                           .scale = op->factor,
                           .logits = op->saved[LOGITS] ? op->saved + LOGITS : NULL,
                           .log_sum = op->saved[LOG_SUMS]};
}

/* Asks for the kernel `head` or `head_backward`. False: it failed, recorded. */
static bool
run_head(exo_tape *tape, const exo_head_args *h, bool backward)
{
    exo_device *device = exo_tape_device(tape);
    const exo_kernels *kernels = device->device_class->kernels;
    exo_err *reason = exo_tape_reason(tape);
    return exo_tape_note(tape, backward ? kernels->head_backward(device, h, reason)
                                        : kernels->head(device, h, reason)) == EXO_OK;
}

struct open_rows {
    exo_tape *tape;
    exo_tensor *weight;
};

static void
take_rows(void *context, size_t first, size_t count, const float *gradient)
{
    const struct open_rows *o = context;
    exo_tape_give_rows(o->tape, o->weight, first, count, gradient);
}

static bool
clear(exo_tape *tape, float *gradient, size_t count)
{
    return exo_tape_run(tape, fill, .count = count, .y = gradient) == EXO_OK;
}

/* Computes the gradients that forward did not. Rows of the weights' gradient go to the pass's sink
 * as soon as they are whole, if the device and the tape allow it; else they are added to the
 * gradient in memory. */
static exo_status
compute_again(exo_tape *tape, exo_op *op, const float *factor, exo_err *err)
{
    exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT];
    const struct state *s = op->state;
    exo_device *device = exo_tape_device(tape);
    exo_head_args h = head_of(op);
    struct open_rows open = {.tape = tape, .weight = weight};
    exo_scratch_use use = EXO_SCRATCH_BACKWARD;
    bool add = false;
    exo_status st = EXO_OK;
    h.factor = factor;
    h.entropy = op->in[TARGETS] ? NULL : op->out->data;
    if (device->device_class->scratch(device, EXO_SHAPE_HEAD, &s->shape, EXO_SCRATCH_ROWS) > 0 &&
        exo_tape_open_rows(tape, weight)) {
        h.take_rows = take_rows;
        h.context = &open;
        use = EXO_SCRATCH_ROWS;
    } else {
        h.dweight = exo_tape_grad(tape, weight, &add, &st);
    }
    if (h.dweight && !add)
        clear(tape, h.dweight, weight->numel);
    if (x->needs_grad)
        h.dx = exo_tape_buffer(tape, x->numel * sizeof *h.dx);
    if (exo_tape_error(tape, NULL) != EXO_OK || (h.dx && !clear(tape, h.dx, x->numel)) ||
        !exo_tape_scratch(tape, EXO_SHAPE_HEAD, &s->shape, use, &h.scratch) ||
        !run_head(tape, &h, true))
        return exo_tape_error(tape, err);
    exo_tape_buffer_done(tape, h.scratch);
    if (h.dx)
        st = give_x_gradient(tape, x, h.dx, NULL);
    exo_tape_buffer_done(tape, h.dx);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

/* As compute_again, with the factor a dy[r stride] / divisor for each row whose target is not
 * negative, and 0 for the others. */
static exo_status
compute_with_factors(exo_tape *tape, exo_op *op, size_t stride, float a, float divisor,
                     exo_err *err)
{
    size_t rows = op->in[INPUT]->dims[0];
    const exo_tensor *targets = op->in[WHOLE_TARGETS] ? op->in[WHOLE_TARGETS] : op->in[TARGETS];
    float *factor = exo_tape_buffer(tape, rows * sizeof *factor);
    if (!factor ||
        exo_tape_run(tape, row_factors, .rows = rows, .stride = stride, .y = factor, .a = a,
                     .divisor = divisor, .dy = op->out->grad, .targets = targets->data) != EXO_OK)
        return exo_tape_error(tape, err);
    exo_status st = compute_again(tape, op, factor, err);
    exo_tape_buffer_done(tape, factor);
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
    return compute_with_factors(tape, op, 0, 1.0f, (float)s->counted, err);
}

/* log p = scale logit[target] - log_sum, the negative of a cross-entropy's term, so the sign
 * changes. */
static exo_status
log_probs_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    return compute_with_factors(tape, op, 1, -op->factor, 1.0f, err);
}

/* H = log_sum - sum p z with z = scale logit, so d H / d z = -p (log p + H). */
static exo_status
entropy_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    size_t rows = op->in[INPUT]->dims[0];
    float *factor = exo_tape_buffer(tape, rows * sizeof *factor);
    if (!factor || exo_tape_run(tape, scale, .count = rows, .y = factor, .a = -op->factor,
                                .x = op->out->grad) != EXO_OK)
        return exo_tape_error(tape, err);
    exo_status st = compute_again(tape, op, factor, err);
    exo_tape_buffer_done(tape, factor);
    return st;
}

/* --- Forward ---------------------------------------------------------------------------------- */

static const exo_op_class cross_entropy_class = {
    .name = "linear_cross_entropy", .backward = cross_entropy_backward, .release = release_state};
static const exo_op_class log_probs_class = {
    .name = "linear_log_probs", .backward = log_probs_backward, .release = release_state};
static const exo_op_class entropy_class = {
    .name = "linear_entropy", .backward = entropy_backward, .release = release_state};

/* Checks shapes, types and targets; targets may be NULL. *counted: the number of targets that are
 * not negative. */
static bool
check(exo_tape *tape, const char *name, const exo_tensor *x, const exo_tensor *weight,
      const exo_tensor *targets, size_t *counted)
{
    char a[96], b[96], c[96];
    *counted = 0;
    if (x->num_dims != 2 || weight->num_dims != 2 || x->dims[1] != weight->dims[1] ||
        x->numel == 0 || weight->numel == 0 || weight->dtype != EXO_F32) {
        exo_tape_fail(tape, EXO_INVAL, "%s: x %s, weight %s: expected (R, W), (V, W) fp32", name,
                      exo_shape_text(x, a), exo_shape_text(weight, b));
        return false;
    }
    if (targets && (targets->dtype != EXO_I32 || targets->numel != x->dims[0])) {
        exo_tape_fail(tape, EXO_INVAL,
                      "%s: x %s, weight %s, targets %s %s: expected (R, W), (V, W) fp32, R int32",
                      name, exo_shape_text(x, a), exo_shape_text(weight, b),
                      exo_shape_text(targets, c), exo_dtype_name(targets->dtype));
        return false;
    }
    return !targets || exo_count_targets(tape, name, targets, weight->dims[0], counted);
}

/* The operation with its plan, and x in the type of products. has_targets: `targets` NULL means an
 * error that was recorded before; else the operation takes no targets. keeps: compute gradients in
 * the forward pass if the weights are small. NULL: recorded in the tape. */
static exo_op *
begin(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_tensor *weight,
      exo_tensor *targets, bool has_targets, bool keeps)
{
    exo_dtype dtype = exo_compute_dtype(tape);
    size_t counted = 0;
    if (!x || !weight || (has_targets && !targets) || exo_tape_error(tape, NULL) != EXO_OK ||
        !check(tape, op_class->name, x, weight, targets, &counted))
        return NULL;
    x = exo_to_dtype(tape, x, dtype);
    exo_op *op =
        x ? exo_tape_op(tape, op_class, (exo_tensor *[]){x, weight, targets}, has_targets ? 3 : 2)
          : NULL;
    if (!op)
        return NULL;
    size_t most = exo_device_is_host(exo_tape_device(tape)) ? KEPT_BYTES : KEPT_BYTES_GPU;
    bool wide = keeps && exo_tape_pass(tape)->grad && weight->numel * sizeof(float) <= most;
    const exo_head_shape shape = {.rows = x->dims[0],
                                  .width = x->dims[1],
                                  .vocabulary = weight->dims[0],
                                  .dtype = (size_t)dtype,
                                  .gradients = exo_tape_pass(tape)->grad,
                                  .wide = wide,
                                  .entropy = !has_targets,
                                  .invariant = op_class == &log_probs_class &&
                                               exo_tape_pass(tape)->invariant};
    exo_err err = {0};
    bool fresh = false;
    struct state *s = exo_tape_state(tape, op, &shape, sizeof shape, sizeof *s, &fresh);
    exo_status st = EXO_OK;
    if (s && fresh)
        st = exo_plan_new(&s->plan, exo_tape_device(tape), EXO_SHAPE_HEAD, &shape, &err);
    if (st != EXO_OK) {
        exo_tape_plan_failed(tape, op, dtype, st, &err);
        return NULL;
    }
    op->saved[LOG_SUMS] = s ? exo_tape_buffer(tape, shape.rows * sizeof(float)) : NULL;
    if (s && dtype != EXO_F32 && wide) {
        op->saved[WEIGHTS] = exo_tape_buffer(tape, weight->numel * exo_dtype_size(dtype));
        if (op->saved[WEIGHTS])
            exo_tape_run(tape, cast, .count = weight->numel, .to = dtype, .from = EXO_F32,
                         .y = op->saved[WEIGHTS], .x = weight->data);
    }
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    s->shape = shape;
    s->counted = counted;
    return op;
}

/* Makes room for the gradients that forward computes. Returns the factors of the rows, whose buffer
 * the caller gives back. NULL: recorded. */
static float *
keep_gradients(exo_tape *tape, exo_op *op, exo_head_args *h, size_t counted)
{
    const exo_tensor *x = op->in[INPUT], *weight = op->in[WEIGHT];
    float *factor = exo_tape_buffer(tape, x->dims[0] * sizeof *factor);
    if (x->needs_grad)
        op->saved[X_GRAD] = h->dx = exo_tape_buffer(tape, x->numel * sizeof *h->dx);
    if (weight->needs_grad)
        op->saved[W_GRAD] = h->dweight = exo_tape_buffer(tape, weight->numel * sizeof *h->dweight);
    op->number = 1;
    if (exo_tape_error(tape, NULL) != EXO_OK || (h->dx && !clear(tape, h->dx, x->numel)) ||
        (h->dweight && !clear(tape, h->dweight, weight->numel)) ||
        exo_tape_run(tape, row_factors, .rows = x->dims[0], .y = factor, .a = 1.0f,
                     .divisor = (float)counted, .targets = h->targets) != EXO_OK)
        return NULL;
    return factor;
}

/* Makes room for the logits that forward leaves to backward. False: recorded. */
static bool
keep_logits(exo_tape *tape, exo_op *op)
{
    const struct state *s = op->state;
    const exo_device *device = exo_tape_device(tape);
    const size_t bytes =
        device->device_class->scratch(device, EXO_SHAPE_HEAD, &s->shape, EXO_SCRATCH_LOGITS);
    for (size_t i = 0; bytes > 0 && i < EXO_HEAD_LANES; i++)
        op->saved[LOGITS + i] = exo_tape_buffer(tape, bytes);
    return exo_tape_error(tape, NULL) == EXO_OK;
}

/* Runs the forward kernel, with scratch for it. False: recorded. */
static bool
forward(exo_tape *tape, const exo_op *op, exo_head_args *h)
{
    const struct state *s = op->state;
    if (!exo_tape_scratch(tape, EXO_SHAPE_HEAD, &s->shape, EXO_SCRATCH_FORWARD, &h->scratch) ||
        !run_head(tape, h, false))
        return false;
    exo_tape_buffer_done(tape, h->scratch);
    return true;
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
    const bool learns = op->in[INPUT]->needs_grad || op->in[WEIGHT]->needs_grad;
    if (!s->shape.wide && s->counted > 0 && learns && !keep_logits(tape, op))
        return NULL;
    exo_head_args h = head_of(op);
    float *picked = h.picked = exo_tape_buffer(tape, rows * sizeof *picked), *factor = NULL;
    if (picked && s->shape.wide && s->counted > 0)
        h.factor = factor = keep_gradients(tape, op, &h, s->counted);
    if (exo_tape_error(tape, NULL) != EXO_OK || !forward(tape, op, &h) ||
        exo_tape_run(tape, picked_loss, .rows = rows, .counted = s->counted, .y = loss->data,
                     .log_sum = h.log_sum, .picked = picked, .targets = h.targets) != EXO_OK)
        return NULL;
    exo_tape_buffer_done(tape, picked);
    exo_tape_buffer_done(tape, factor);
    return exo_tape_finish(tape, op, loss);
}

exo_tensor *
exo_linear_log_probs(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *targets,
                     float temperature)
{
    float scale;
    if (!exo_temperature_scale(temperature, &scale))
        return exo_tape_fail(
            tape, EXO_INVAL,
            "linear_log_probs: the temperature is %g; expected " EXO_TEMPERATURE_EXPECTED,
            (double)temperature);
    exo_op *op = begin(tape, &log_probs_class, x, weight, targets, true, false);
    size_t rows = op ? op->in[INPUT]->dims[0] : 0;
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, &rows) : NULL;
    if (!y)
        return NULL;
    op->factor = scale;
    exo_head_args h = head_of(op);
    h.picked = y->data;
    bool done = forward(tape, op, &h);
    if (done && !((struct state *)op->state)->shape.invariant)
        done = exo_tape_run(tape, picked_log_probs, .rows = rows, .y = y->data,
                            .log_sum = h.log_sum, .targets = h.targets) == EXO_OK;
    return done ? exo_tape_finish(tape, op, y) : NULL;
}

exo_tensor *
exo_linear_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, float scale)
{
    exo_op *op = begin(tape, &entropy_class, x, weight, NULL, false, false);
    exo_tensor *y =
        op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, op->in[INPUT]->dims) : NULL;
    if (!y)
        return NULL;
    op->factor = scale;
    exo_head_args h = head_of(op);
    h.entropy = y->data;
    return forward(tape, op, &h) ? exo_tape_finish(tape, op, y) : NULL;
}

/* --- A part of the vocabulary ----------------------------------------------------------------- */

static const exo_op_class part_class = {
    .name = "part_cross_entropy", .backward = cross_entropy_backward, .release = release_state};

/* Combines what the members found. all (members, 2, rows): for each member its log_sum, and the
 * logits of the targets, zero where a target is not there. Sums them in rank order into log_sum and
 * picked (rows). False: recorded. */
static bool
combine(exo_tape *tape, const exo_vocabulary_part *part, size_t rows, const float *all,
        float *log_sum, float *picked)
{
    float *columns = exo_tape_buffer(tape, 2 * rows * part->members * sizeof *columns);
    float *unused = exo_tape_buffer(tape, rows * sizeof *unused);
    /* The log_sum of a row over the members is that of a row of logits. */
    if (!columns || !unused ||
        exo_tape_run(tape, transpose, .samples = 1, .rows = part->members, .columns = 2 * rows,
                     .dtype = EXO_F32, .y = columns, .x = all) != EXO_OK ||
        exo_tape_run(tape, entropy, .rows = rows, .columns = part->members, .y = unused,
                     .log_sum = log_sum, .x = columns, .scale = 1.0f) != EXO_OK ||
        exo_tape_run(tape, fill, .count = rows, .y = picked) != EXO_OK)
        return false;
    for (uint32_t m = 0; m < part->members; m++)
        if (exo_tape_run(tape, axpy, .count = rows, .y = picked, .a = 1.0f,
                         .x = all + (2 * m + 1) * rows) != EXO_OK)
            return false;
    exo_tape_buffer_done(tape, unused);
    exo_tape_buffer_done(tape, columns);
    return true;
}

/* Computes log_sum and the picked logits of the whole vocabulary. False: recorded. */
static bool
gather_sums(exo_tape *tape, exo_op *op, const exo_vocabulary_part *part, float *picked)
{
    size_t rows = op->in[INPUT]->dims[0], count = 2 * rows * part->members;
    float *all = exo_tape_buffer(tape, count * sizeof *all);
    exo_err err = {0};
    exo_head_args h = head_of(op);
    if (!all)
        return false;
    h.log_sum = all + 2 * rows * part->rank;
    h.picked = h.log_sum + rows;
    if (!clear(tape, h.picked, rows) || !forward(tape, op, &h))
        return false;
    exo_status st = part->gather(part->context, tape, all, count, &err);
    if (st != EXO_OK) {
        exo_tape_fail(tape, st, "%s: %s", part_class.name, err.text);
        return false;
    }
    bool done = combine(tape, part, rows, all, op->saved[LOG_SUMS], picked);
    exo_tape_buffer_done(tape, all);
    return done;
}

exo_tensor *
exo_part_cross_entropy(exo_tape *tape, exo_tensor *x, exo_tensor *weight, exo_tensor *targets,
                       const exo_vocabulary_part *part)
{
    size_t counted = 0;
    if (!x || !weight || !targets || exo_tape_error(tape, NULL) != EXO_OK ||
        !exo_count_targets(tape, part_class.name, targets, part->vocabulary, &counted))
        return NULL;
    exo_tensor *local = exo_local_tokens(tape, targets, part->first, weight->dims[0]);
    exo_op *op = local ? begin(tape, &part_class, x, weight, local, true, false) : NULL;
    exo_tensor *loss = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    float *picked = loss ? exo_tape_buffer(tape, targets->numel * sizeof *picked) : NULL;
    if (!picked)
        return NULL;
    ((struct state *)op->state)->counted = counted;
    op->factor = 1.0f;
    op->in[WHOLE_TARGETS] = targets;
    if (!gather_sums(tape, op, part, picked) ||
        exo_tape_run(tape, picked_loss, .rows = targets->numel, .counted = counted, .y = loss->data,
                     .log_sum = op->saved[LOG_SUMS], .picked = picked,
                     .targets = targets->data) != EXO_OK)
        return NULL;
    exo_tape_buffer_done(tape, picked);
    return exo_tape_finish(tape, op, loss);
}
