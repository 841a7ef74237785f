/* PPO's two losses, estimates of KL, pairwise ranking, and the mean and the sum over rows that a
 * mask includes (exogym/loss.h).
 *
 * Forward computes the slope of each term along with the term, so backward is one product. No state
 * beyond the pass's buffers. Read next: nn/device/loss_terms.c. */
#include <exogym/loss.h>

#include <math.h>

#include "nn/tape_run.h"

enum {
    SLOPE /* index into op->saved: slopes of the terms (rows) */
};

/* Checks that x is fp32 or bf16 with `count` elements. False: x is NULL, or an error was
 * recorded. */
static bool
is_like(exo_tape *tape, const char *name, const char *what, const exo_tensor *x, size_t count)
{
    char shape[96];
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return false;
    if (exo_is_float(x) && x->numel == count)
        return true;
    exo_tape_fail(tape, EXO_INVAL, "%s: %s %s %s: expected %zu numbers", name, what,
                  exo_shape_text(x, shape), exo_dtype_name(x->dtype), count);
    return false;
}

static bool
check_clip(exo_tape *tape, const char *name, float clip)
{
    if (clip >= 0.0f && !isinf(clip))
        return true;
    exo_tape_fail(tape, EXO_INVAL, "%s: the clip is %g; expected a finite number of at least 0",
                  name, (double)clip);
    return false;
}

/* x in fp32 and row-major. NULL if x is NULL or a cast failed. */
static exo_tensor *
plain(exo_tape *tape, exo_tensor *x)
{
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    return x ? exo_to_layout(tape, x, EXO_ROW_MAJOR) : NULL;
}

/* Whether no cast has failed. A mask may be NULL without a failure, so its pointer does not
 * tell. */
static bool
all_there(const exo_tape *tape)
{
    return exo_tape_error(tape, NULL) == EXO_OK;
}

/* --- The masked mean -------------------------------------------------------------------------- */

enum {
    FACTOR /* index into op->saved: 1 / sum(mask) */
};

static exo_status
masked_mean_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, masked_mean_backward, .count = x->numel, .dx = dx,
                          .mask = op->in[1]->data, .factor = op->saved[FACTOR], .dy = op->out->grad,
                          .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class masked_mean_class = {.name = "masked_mean",
                                               .backward = masked_mean_backward};

/* The mean, or the sum, of x by a mask. */
static exo_tensor *
reduce(exo_tape *tape, exo_tensor *x, exo_tensor *mask, bool sum)
{
    if (!x || !mask || !is_like(tape, masked_mean_class.name, "x", x, x->numel) ||
        !is_like(tape, masked_mean_class.name, "the mask", mask, x->numel))
        return NULL;
    x = plain(tape, x);
    mask = plain(tape, mask);
    if (!all_there(tape))
        return NULL;
    exo_op *op = exo_tape_op(tape, &masked_mean_class, (exo_tensor *[]){x, mask}, 2);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 0, NULL) : NULL;
    if (!y || !(op->saved[FACTOR] = exo_tape_buffer(tape, sizeof(float))))
        return NULL;
    if (exo_tape_run(tape, masked_mean, .count = x->numel, .y = y->data,
                     .factor = op->saved[FACTOR], .x = x->data, .mask = mask->data,
                     .sum = sum) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_masked_mean(exo_tape *tape, exo_tensor *x, exo_tensor *mask)
{
    return mask && x ? reduce(tape, x, mask, false) : exo_mean(tape, x);
}

exo_tensor *
exo_masked_sum(exo_tape *tape, exo_tensor *x, exo_tensor *mask)
{
    return reduce(tape, x, mask, true);
}

/* --- PPO -------------------------------------------------------------------------------------- */

static exo_status
terms_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, mul, .count = x->numel, .y = dx, .a = op->out->grad,
                          .b = op->saved[SLOPE], .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class policy_class = {.name = "policy_loss", .backward = terms_backward};
static const exo_op_class kl_class = {.name = "kl_terms", .backward = terms_backward};
static const exo_op_class value_class = {.name = "value_loss", .backward = terms_backward};

/* Begins an operation on x with `count` terms and room for their slopes. NULL: recorded. */
static exo_op *
open_terms(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, size_t count,
           exo_tensor **terms)
{
    exo_op *op = exo_tape_op(tape, op_class, &x, 1);
    *terms = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, &count) : NULL;
    if (!*terms)
        return NULL;
    op->saved[SLOPE] = exo_tape_buffer(tape, count * sizeof(float));
    return op->saved[SLOPE] ? op : NULL;
}

static const float *
numbers(const exo_tensor *x)
{
    return x ? x->data : NULL;
}

/* Both bounds may be infinite, as NaN may not. */
static bool
check_bounds(exo_tape *tape, const char *name, exo_policy_clip clip)
{
    if (clip.low >= 0 && clip.high >= 0 && (clip.dual == 0 || clip.dual > 1))
        return true;
    exo_tape_fail(
        tape, EXO_INVAL,
        "%s: the clip is [1 - %g, 1 + %g] and dual %g; expected numbers of at least 0, and "
        "dual 0 or above 1",
        name, clip.low, clip.high, clip.dual);
    return false;
}

exo_tensor *
exo_policy_terms(exo_tape *tape, exo_tensor *log_probs, exo_tensor *old_log_probs,
                 exo_tensor *advantages, exo_tensor *mask, exo_policy_clip clip)
{
    const char *name = policy_class.name;
    exo_tensor *terms;
    if (!log_probs || !is_like(tape, name, "log_probs", log_probs, log_probs->numel) ||
        !is_like(tape, name, "old_log_probs", old_log_probs, log_probs->numel) ||
        !is_like(tape, name, "advantages", advantages, log_probs->numel) ||
        (mask && !is_like(tape, name, "the mask", mask, log_probs->numel)) ||
        !check_bounds(tape, name, clip))
        return NULL;
    log_probs = plain(tape, log_probs);
    old_log_probs = plain(tape, old_log_probs);
    advantages = plain(tape, advantages);
    mask = plain(tape, mask);
    exo_op *op = all_there(tape)
                     ? open_terms(tape, &policy_class, log_probs, log_probs->numel, &terms)
                     : NULL;
    if (!op)
        return NULL;
    if (exo_tape_run(tape, policy_loss, .count = log_probs->numel, .y = terms->data,
                     .slope = op->saved[SLOPE], .log_probs = log_probs->data,
                     .old = old_log_probs->data, .advantages = advantages->data,
                     .mask = numbers(mask), .clip = clip) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, terms);
}

exo_tensor *
exo_policy_loss(exo_tape *tape, exo_tensor *log_probs, exo_tensor *old_log_probs,
                exo_tensor *advantages, exo_tensor *mask, float clip)
{
    if (!log_probs || !check_clip(tape, policy_class.name, clip))
        return NULL;
    exo_policy_clip bounds = {.low = (double)clip, .high = (double)clip};
    return exo_masked_mean(
        tape, exo_policy_terms(tape, log_probs, old_log_probs, advantages, mask, bounds), mask);
}

exo_tensor *
exo_kl_terms(exo_tape *tape, exo_tensor *log_probs, exo_tensor *ref_log_probs, exo_tensor *mask,
             exo_kl_kind kind)
{
    const char *name = kl_class.name;
    exo_tensor *terms;
    if (!log_probs || !is_like(tape, name, "log_probs", log_probs, log_probs->numel) ||
        !is_like(tape, name, "ref_log_probs", ref_log_probs, log_probs->numel) ||
        (mask && !is_like(tape, name, "the mask", mask, log_probs->numel)))
        return NULL;
    log_probs = plain(tape, log_probs);
    ref_log_probs = plain(tape, ref_log_probs);
    mask = plain(tape, mask);
    exo_op *op =
        all_there(tape) ? open_terms(tape, &kl_class, log_probs, log_probs->numel, &terms) : NULL;
    if (!op)
        return NULL;
    if (exo_tape_run(tape, kl_terms, .count = log_probs->numel, .y = terms->data,
                     .slope = op->saved[SLOPE], .log_probs = log_probs->data,
                     .old = ref_log_probs->data, .mask = numbers(mask), .kind = kind) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, terms);
}

exo_tensor *
exo_value_loss(exo_tape *tape, exo_tensor *values, exo_tensor *old_values, exo_tensor *returns,
               exo_tensor *mask, float clip)
{
    const char *name = value_class.name;
    exo_tensor *terms;
    if (clip == 0.0f && !old_values)
        old_values = values; /* not read without a clip */
    if (values && !old_values)
        return exo_tape_fail(tape, EXO_INVAL, "%s: a clip needs old_values", name);
    if (!values || !is_like(tape, name, "values", values, values->numel) ||
        !is_like(tape, name, "old_values", old_values, values->numel) ||
        !is_like(tape, name, "returns", returns, values->numel) ||
        (mask && !is_like(tape, name, "the mask", mask, values->numel)) ||
        !check_clip(tape, name, clip))
        return NULL;
    values = plain(tape, values);
    old_values = plain(tape, old_values);
    returns = plain(tape, returns);
    mask = plain(tape, mask);
    exo_op *op =
        all_there(tape) ? open_terms(tape, &value_class, values, values->numel, &terms) : NULL;
    if (!op)
        return NULL;
    if (exo_tape_run(tape, value_loss, .count = values->numel, .y = terms->data,
                     .slope = op->saved[SLOPE], .values = values->data, .old = old_values->data,
                     .targets = returns->data, .mask = numbers(mask), .clip = clip) != EXO_OK)
        return NULL;
    return exo_masked_mean(tape, exo_tape_finish(tape, op, terms), mask);
}

/* --- Ranking ---------------------------------------------------------------------------------- */

static exo_status
ranking_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, ranking_loss_backward, .count = x->numel / 2, .dx = dx,
                          .slope = op->saved[SLOPE], .dy = op->out->grad, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class ranking_class = {.name = "ranking_loss", .backward = ranking_backward};

exo_tensor *
exo_smoothed_ranking_loss(exo_tape *tape, exo_tensor *scores, float smoothing)
{
    exo_tensor *terms;
    char shape[96];
    if (!(smoothing >= 0.0f && smoothing <= 0.5f))
        return exo_tape_fail(tape, EXO_INVAL,
                             "ranking_loss: the smoothing is %g; expected a number from 0 to 0.5",
                             (double)smoothing);
    if (!scores || !is_like(tape, ranking_class.name, "scores", scores, scores->numel))
        return NULL;
    if (scores->numel == 0 || scores->numel % 2 != 0)
        return exo_tape_fail(tape, EXO_INVAL, "ranking_loss: scores %s: expected pairs",
                             exo_shape_text(scores, shape));
    scores = plain(tape, scores);
    exo_op *op =
        scores ? open_terms(tape, &ranking_class, scores, scores->numel / 2, &terms) : NULL;
    if (!op)
        return NULL;
    if (exo_tape_run(tape, ranking_loss, .count = scores->numel / 2, .y = terms->data,
                     .slope = op->saved[SLOPE], .x = scores->data,
                     .smoothing = smoothing) != EXO_OK)
        return NULL;
    return exo_mean(tape, exo_tape_finish(tape, op, terms));
}

exo_tensor *
exo_ranking_loss(exo_tape *tape, exo_tensor *scores)
{
    return exo_smoothed_ranking_loss(tape, scores, 0.0f);
}
