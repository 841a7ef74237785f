/* Gated activations: activation(gate) * up. No state. Read next: nn/cpu/activations.c. */
#include <exogym/sequence.h>

#include "nn/tape_run.h"

static exo_status
gated_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, gate_backward, .rows = x->dims[0], .width = x->dims[1] / 2,
                          .activation = (exo_activation)op->number, .dtype = x->dtype, .dx = dx,
                          .x = x->data, .dy = op->out->grad, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class gated_class = {.name = "gated", .backward = gated_backward};

exo_tensor *
exo_gated(exo_tape *tape, exo_tensor *x, exo_activation activation)
{
    char text[96];
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || x->dims[1] % 2 != 0 || x->numel == 0 || !exo_is_float(x))
        return exo_tape_fail(tape, EXO_INVAL, "gated: x %s %s: expected (R, 2 I), fp32 or bf16",
                             exo_shape_text(x, text), exo_dtype_name(x->dtype));
    exo_op *op = exo_tape_op(tape, &gated_class, &x, 1);
    exo_tensor *y = op ? exo_tape_tensor(tape, x->dtype, EXO_ROW_MAJOR, 2,
                                         (size_t[]){x->dims[0], x->dims[1] / 2})
                       : NULL;
    if (!y)
        return NULL;
    op->number = (size_t)activation;
    if (exo_tape_run(tape, gate, .rows = x->dims[0], .width = x->dims[1] / 2,
                     .activation = activation, .dtype = x->dtype, .y = y->data,
                     .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
