/* Gated activations: activation(gate) * up. */
#include <exogym/sequence.h>

#include "activations.h"
#include "pieces.h"
#include "tape_impl.h"

struct loop {
    exo_activation activation;
    exo_dtype type;
    const char *x, *dy;
    char *out;
    size_t rows, width, per_piece;
    bool add;
};

static struct loop
loop_of(const exo_op *op)
{
    const exo_tensor *x = op->in[0];
    size_t width = x->dims[1] / 2, per_piece = EXO_PIECE_ELEMENTS / x->dims[1];
    return (struct loop){.activation = (exo_activation)op->number,
                         .type = x->dtype,
                         .x = x->data,
                         .rows = x->dims[0],
                         .width = width,
                         .per_piece = per_piece ? per_piece : 1};
}

static void
forward_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * l->per_piece, count = exo_piece_length(l->rows, l->per_piece, piece);
    size_t skip = first * l->width * exo_dtype_size(l->type);
    exo_gate(l->activation, l->type, l->x + 2 * skip, l->out + skip, count, l->width);
}

static void
backward_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * l->per_piece, count = exo_piece_length(l->rows, l->per_piece, piece);
    size_t skip = first * l->width * exo_dtype_size(l->type);
    exo_gate_backward(l->activation, l->type, l->x + 2 * skip, l->dy + skip, l->out + 2 * skip, count, l->width,
                      l->add);
}

static exo_status
gated_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_status st = EXO_OK;
    struct loop l = loop_of(op);
    l.dy = op->out->grad;
    l.out = exo_tape_grad(tape, op->in[0], &l.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    exo_parallel_for(exo_pieces(l.rows, l.per_piece), backward_piece, &l);
    return EXO_OK;
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
    exo_tensor *y =
        op ? exo_tape_tensor(tape, x->dtype, EXO_ROW_MAJOR, 2, (size_t[]){x->dims[0], x->dims[1] / 2}) : NULL;
    if (!y)
        return NULL;
    op->number = (size_t)activation;
    struct loop l = loop_of(op);
    l.out = y->data;
    exo_parallel_for(exo_pieces(l.rows, l.per_piece), forward_piece, &l);
    return exo_tape_finish(tape, op, y);
}
