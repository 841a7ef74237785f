/* Operations that programs and plugins define, with their own backward: see exo_tape_custom in
 * tensor.h. State: a copy of the arguments of each call, in the operation's cache. Read next:
 * nn/tape.c. */
#include <exogym/tensor.h>

#include <stddef.h>
#include <string.h>

#include "nn/tape_run.h"

/* The cache keeps this from a call to its backward. */
struct state {
    const exo_custom_op *op;
    size_t num_inputs, saved;
    max_align_t args[];
};

struct signature {
    const exo_custom_op *op;
    size_t num_inputs, saved;
};

_Static_assert(EXO_CUSTOM_INPUTS <= (int)EXO_MAX_INPUTS, "an operation holds its inputs");

static exo_array
array_of(exo_tape *tape, void *data, size_t count)
{
    return (exo_array){
        .device = exo_tape_device(tape), .data = data, .count = count, .dtype = EXO_F32};
}

static exo_custom_call
make_call(exo_tape *tape, const exo_op *op, exo_tensor *const *in, exo_tensor *out)
{
    const struct state *s = op->state;
    exo_custom_call call = {.args = s->args, .num_inputs = s->num_inputs};
    for (size_t i = 0; i < s->num_inputs; i++)
        call.inputs[i] = array_of(tape, in[i]->data, in[i]->numel);
    call.output = array_of(tape, out->data, out->numel);
    if (op->saved[0])
        call.saved = array_of(tape, op->saved[0], s->saved);
    return call;
}

static exo_status
custom_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    const struct state *s = op->state;
    exo_custom_call call = make_call(tape, op, op->in, op->out);
    exo_err reason = {0};
    call.output_grad = array_of(tape, op->out->grad, op->out->numel);
    for (size_t i = 0; i < s->num_inputs; i++) {
        exo_status st = EXO_OK;
        bool add = false;
        void *grad = exo_tape_grad(tape, op->in[i], &add, &st);
        if (st != EXO_OK)
            return exo_tape_error(tape, err);
        if (!grad)
            continue;
        call.input_grads[i] = array_of(tape, grad, op->in[i]->numel);
        if (!add)
            exo_vec_fill(call.input_grads[i], 0.0f);
    }
    exo_status st = s->op->backward(&call, &reason);
    return st == EXO_OK ? EXO_OK : exo_fail(err, st, "%s: backward: %s", s->op->name, reason.text);
}

static const exo_op_class custom_class = {.name = "custom", .backward = custom_backward};

/* The inputs in fp32 and row-major. False: recorded. */
static bool
take_inputs(exo_tape *tape, const exo_custom_op *op, exo_tensor *const *inputs, size_t num_inputs,
            exo_tensor **in)
{
    if (!op->forward || !op->name) {
        exo_tape_fail(tape, EXO_INVAL, "%s: a custom operation needs a name and a forward function",
                      op->name ? op->name : "custom");
        return false;
    }
    if (num_inputs > EXO_CUSTOM_INPUTS) {
        exo_tape_fail(tape, EXO_INVAL, "%s: %zu inputs; at most %d", op->name, num_inputs,
                      EXO_CUSTOM_INPUTS);
        return false;
    }
    for (size_t i = 0; i < num_inputs; i++) {
        in[i] = inputs[i] ? exo_to_dtype(tape, inputs[i], EXO_F32) : NULL;
        in[i] = in[i] ? exo_to_layout(tape, in[i], EXO_ROW_MAJOR) : NULL;
        if (!in[i])
            return false;
    }
    return true;
}

/* The operation with its state and its buffer for backward. NULL: recorded. */
static exo_op *
open_op(exo_tape *tape, const exo_custom_op *custom, exo_tensor *const *in, size_t num_inputs,
        size_t saved, const void *args)
{
    struct signature signature = {custom, num_inputs, saved};
    bool fresh;
    if (!exo_tape_use(tape, in, num_inputs))
        return NULL;
    /* Without a backward function the tape sees no inputs, so the result needs no gradient. */
    exo_op *op = exo_tape_op(tape, &custom_class, in, custom->backward ? num_inputs : 0);
    struct state *s = op ? exo_tape_state(tape, op, &signature, sizeof signature,
                                          sizeof *s + custom->args_size, &fresh)
                         : NULL;
    if (!s)
        return NULL;
    s->op = custom;
    s->num_inputs = num_inputs;
    s->saved = saved;
    if (custom->args_size > 0)
        memcpy(s->args, args, custom->args_size);
    if (saved > 0 && !(op->saved[0] = exo_tape_buffer(tape, saved * sizeof(float))))
        return NULL;
    return op;
}

exo_tensor *
exo_tape_custom(exo_tape *tape, const exo_custom_op *custom, exo_tensor *const *inputs,
                size_t num_inputs, size_t num_dims, const size_t *dims, size_t saved,
                const void *args)
{
    exo_tensor *in[EXO_CUSTOM_INPUTS];
    exo_err reason = {0};
    if (exo_tape_error(tape, NULL) != EXO_OK || !take_inputs(tape, custom, inputs, num_inputs, in))
        return NULL;
    if (num_dims > EXO_MAX_DIMS)
        return exo_tape_fail(tape, EXO_INVAL, "%s: an output of %zu dimensions; at most %d",
                             custom->name, num_dims, EXO_MAX_DIMS);
    exo_op *op = open_op(tape, custom, in, num_inputs, saved, args);
    exo_tensor *out = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, num_dims, dims) : NULL;
    if (!out)
        return NULL;
    exo_custom_call call = make_call(tape, op, in, out);
    exo_status st = custom->forward(&call, &reason);
    if (st != EXO_OK)
        return exo_tape_fail(tape, st, "%s: %s", custom->name, reason.text);
    return exo_tape_finish(tape, op, out);
}
