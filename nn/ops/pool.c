/* Max pooling. saved[0]: the place of each maximum in its window. No other state. Read next:
 * nn/tape_run.h. */
#include <exogym/tensor.h>

#include "nn/tape_run.h"

static exo_status
max_pool2d_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    void *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, max_pool_backward, .samples = x->dims[0], .height = x->dims[2],
                          .width = x->dims[3], .channels = x->dims[1], .size = op->number,
                          .dtype = x->dtype, .dx = dx, .winner = op->saved[0], .dy = op->out->grad,
                          .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class max_pool2d_class = {.name = "max_pool2d",
                                              .backward = max_pool2d_backward};

exo_tensor *
exo_max_pool2d(exo_tape *tape, exo_tensor *x, size_t size)
{
    char text[96];
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 4 || size < 1 || size > 15 || x->dims[2] < size || x->dims[3] < size ||
        x->numel == 0)
        return exo_tape_fail(
            tape, EXO_INVAL,
            "max_pool2d: x %s and size %zu: expected (N, C, H, W) of at least the size, 1 to 15",
            exo_shape_text(x, text), size);
    x = exo_to_layout(tape, x, EXO_CHANNELS_LAST);
    exo_op *op = x ? exo_tape_op(tape, &max_pool2d_class, &x, 1) : NULL;
    if (!op)
        return NULL;
    const size_t dims[4] = {x->dims[0], x->dims[1], x->dims[2] / size, x->dims[3] / size};
    exo_tensor *y = exo_tape_tensor(tape, x->dtype, EXO_CHANNELS_LAST, 4, dims);
    op->number = size;
    op->saved[0] = y ? exo_tape_buffer(tape, y->numel) : NULL;
    if (!op->saved[0])
        return NULL;
    if (exo_tape_run(tape, max_pool, .samples = x->dims[0], .height = x->dims[2],
                     .width = x->dims[3], .channels = x->dims[1], .size = size, .dtype = x->dtype,
                     .y = y->data, .winner = op->saved[0], .x = x->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
