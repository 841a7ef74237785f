/* Max pooling. */
#include <exogym/tensor.h>

#include "kernels.h"
#include "pieces.h"
#include "tape_impl.h"

struct loop {
    exo_dtype type;
    const char *in;
    char *out;
    uint8_t *winner;
    size_t in_elements, out_elements; /* a sample */
    size_t height, width, channels, size;
    bool add;
};

static struct loop
make_loop(const exo_op *op, const exo_tensor *x, const exo_tensor *y)
{
    return (struct loop){
        .type = x->dtype,
        .winner = op->saved[0],
        .in_elements = x->numel / x->dims[0],
        .out_elements = y->numel / y->dims[0],
        .height = x->dims[2],
        .width = x->dims[3],
        .channels = x->dims[1],
        .size = op->number,
    };
}

static void
forward_piece(void *context, size_t sample)
{
    const struct loop *l = context;
    size_t size = exo_dtype_size(l->type);
    exo_max_pool_forward(l->type, l->in + sample * l->in_elements * size, l->out + sample * l->out_elements * size,
                         l->winner + sample * l->out_elements, l->height, l->width, l->channels, l->size);
}

static void
backward_piece(void *context, size_t sample)
{
    const struct loop *l = context;
    size_t size = exo_dtype_size(l->type);
    exo_max_pool_backward(l->type, l->in + sample * l->out_elements * size, l->winner + sample * l->out_elements,
                          l->out + sample * l->in_elements * size, l->height, l->width, l->channels, l->size, l->add);
}

static exo_status
max_pool2d_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    struct loop l = make_loop(op, x, op->out);
    exo_status st = EXO_OK;
    l.in = op->out->grad;
    l.out = exo_tape_grad(tape, x, &l.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    exo_parallel_for(x->dims[0], backward_piece, &l);
    return EXO_OK;
}

static const exo_op_class max_pool2d_class = {.name = "max_pool2d", .backward = max_pool2d_backward};

exo_tensor *
exo_max_pool2d(exo_tape *tape, exo_tensor *x, size_t size)
{
    char text[96];
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 4 || size < 1 || size > 15 || x->dims[2] < size || x->dims[3] < size || x->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL,
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
    struct loop l = make_loop(op, x, y);
    l.in = x->data;
    l.out = y->data;
    exo_parallel_for(x->dims[0], forward_piece, &l);
    return exo_tape_finish(tape, op, y);
}
