/* Checkpoints: parts of a pass that backward computes again. State: a struct checkpoint in the
 * pass's buffers. Read next: exo_checkpoint in exogym/sequence.h. */
#include "nn/tape_private.h"

#include <string.h>

#include <exogym/sequence.h>

/* The operations of a body take the places [first, first + count) of the pass.
 *
 * Forward runs the body, frees all that its operations hold, and keeps the body's result. The
 * checkpoint's own operation comes after the body, so backward reaches it first. Its backward
 * function runs the body again, into the same places, and backward then goes on through these. So
 * plans, dropout and the order of operations are those of a pass without the checkpoint. */
struct checkpoint {
    exo_checkpoint_body body;
    void *context;
    size_t first, count;
    uint32_t first_ordinal;
    size_t remembered; /* the place of the operation that RESULT and BESIDE belong to */
};

enum {
    CHECKPOINT, /* saved: a struct checkpoint */
    RESULT,     /* saved: the result of a remembered operation, or NULL */
    BESIDE      /* saved: that operation's saved[0] */
};

/* Moves the result and saved[0] of the body's last `remembered` operation to the checkpoint. */
static void
remember(exo_tape *tape, exo_op *checkpoint, struct checkpoint *c, const exo_tensor *result)
{
    for (size_t i = c->first + c->count; i > c->first; i--) {
        exo_op *op = &tape->ops[i - 1];
        if (!op->op_class->remembered || !op->out || !op->out->owns_data ||
            op->out->data == result->data)
            continue;
        c->remembered = i - 1;
        checkpoint->saved[RESULT] = op->out->data;
        checkpoint->saved[BESIDE] = op->saved[0];
        op->out->owns_data = false;
        op->saved[0] = NULL;
        return;
    }
}

bool
exo_tape_recall(exo_tape *tape, exo_op *op, exo_tensor *out)
{
    exo_op *checkpoint = tape->recalls;
    if (!checkpoint || !checkpoint->saved[RESULT])
        return false;
    const struct checkpoint *c = checkpoint->saved[CHECKPOINT];
    if (&tape->ops[c->remembered] != op)
        return false;
    exo_tape_buffer_done(tape, out->data);
    exo_tape_buffer_done(tape, op->saved[0]);
    out->data = checkpoint->saved[RESULT];
    op->saved[0] = checkpoint->saved[BESIDE];
    checkpoint->saved[RESULT] = checkpoint->saved[BESIDE] = NULL;
    return true;
}

/* Gives back all buffers of the operations, except the data of `kept`. */
static void
forget_ops(exo_tape *tape, size_t first, size_t end, const exo_tensor *kept)
{
    for (size_t i = first; i < end; i++) {
        exo_op *op = &tape->ops[i];
        if (op->out && op->out->owns_data && op->out->data == kept->data)
            op->out->owns_data = false;
        else if (op->out && op->out->owns_data && op->out->numel == 1) /* op_done leaves it */
            exo_tape_buffer_done(tape, op->out->data);
        exo_tape_op_done(tape, op);
        op->out = NULL;
    }
}

static exo_status
checkpoint_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct checkpoint c = *(const struct checkpoint *)op->saved[CHECKPOINT];
    exo_tensor *out = op->out, *x = op->in[0];
    size_t all = tape->num_ops;
    uint32_t ordinals = tape->next_ordinal;
    bool nested = tape->again;
    size_t most = tape->most_ops;
    exo_op *recalls = tape->recalls;
    tape->recalls = op;
    tape->num_ops = c.first;
    tape->next_ordinal = c.first_ordinal;
    tape->again = true;
    tape->most_ops = c.first + c.count;
    exo_tensor *again = c.body(c.context, tape, x);
    bool same = tape->num_ops == c.first + c.count;
    tape->num_ops = all;
    tape->next_ordinal = ordinals;
    tape->again = nested;
    tape->most_ops = most;
    tape->recalls = recalls;
    if (!again)
        return exo_tape_error(tape, err);
    if (!same || again->numel != out->numel || again->dtype != out->dtype)
        return exo_fail(err, EXO_FAILED, "checkpoint: the body did something else the second time");
    bool add = false;
    exo_status st = EXO_OK;
    void *grad = exo_tape_grad(tape, again, &add, &st);
    if (grad)
        st = exo_tape_copy(tape, grad, out->grad, out->numel * exo_dtype_size(out->dtype));
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class checkpoint_class = {.name = "checkpoint",
                                              .backward = checkpoint_backward};

exo_tensor *
exo_checkpoint(exo_tape *tape, exo_tensor *x, exo_checkpoint_body body, void *context)
{
    if (!x || tape->error.code != EXO_OK)
        return NULL;
    struct checkpoint c = {.body = body,
                           .context = context,
                           .first = tape->num_ops,
                           .first_ordinal = tape->next_ordinal};
    exo_tensor *y = body(context, tape, x);
    c.count = tape->num_ops - c.first;
    /* Nothing in the body has a backward function, as in frozen blocks. */
    if (y && !y->is_param && (!tape->pass.grad || !y->needs_grad))
        forget_ops(tape, c.first, tape->num_ops, y);
    if (!y || c.count == 0 || !y->needs_grad || y->is_param)
        return y;
    exo_op *op = exo_tape_op(tape, &checkpoint_class, &x, 1);
    if (!op)
        return NULL;
    tape->next_ordinal--; /* ordinals do not count checkpoints */
    op->saved[CHECKPOINT] = exo_tape_host_buffer(tape, sizeof c);
    exo_tensor *out =
        op->saved[CHECKPOINT] ? exo_tape_view(tape, y, y->layout, y->num_dims, y->dims) : NULL;
    if (!out)
        return NULL;
    out->owns_data = y->data != x->data;
    out->needs_grad = true; /* x may need none: then a parameter of the body does */
    remember(tape, op, &c, out);
    memcpy(op->saved[CHECKPOINT], &c, sizeof c);
    forget_ops(tape, c.first, c.first + c.count, out);
    return exo_tape_finish(tape, op, out);
}
