/* ReLU, tanh, and dropout of elements and of channels. */
#include <exogym/tensor.h>

#include <math.h>

#include "kernels.h"
#include "pieces.h"
#include "tape_impl.h"

struct sweep {
    exo_dtype type;
    const char *x, *dy;
    char *out;
    const uint8_t *keep;
    size_t count;
    float factor;
    bool add;
};

static size_t
sweep_piece(const struct sweep *s, size_t piece, size_t *first)
{
    *first = piece * EXO_PIECE_ELEMENTS;
    return exo_piece_length(s->count, EXO_PIECE_ELEMENTS, piece);
}

static void
run_sweep(struct sweep *s, void (*piece)(void *context, size_t index))
{
    exo_parallel_for(exo_pieces(s->count, EXO_PIECE_ELEMENTS), piece, s);
}

/* The destination of x's gradient, in place of the output's where it can be. NULL with *st set: no memory. */
static void *
grad_target(exo_tape *tape, exo_op *op, exo_tensor *x, bool *add, exo_status *st)
{
    *add = false;
    return exo_tape_steal_grad(op, x) ? x->grad : exo_tape_grad(tape, x, add, st);
}

/* --- ReLU -------------------------------------------------------------------------------------------------------------- */

static void
relu_forward_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first, count = sweep_piece(s, piece, &first), size = exo_dtype_size(s->type);
    exo_relu_forward(s->type, s->x + first * size, s->out + first * size, count);
}

static void
relu_backward_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first, count = sweep_piece(s, piece, &first), size = exo_dtype_size(s->type);
    exo_relu_backward(s->type, s->x + first * size, s->dy + first * size, s->out + first * size, count, s->add);
}

static exo_status
relu_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    struct sweep s = {.type = x->dtype, .x = op->out->data, .dy = op->out->grad, .count = x->numel};
    s.out = grad_target(tape, op, x, &s.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    run_sweep(&s, relu_backward_piece);
    return EXO_OK;
}

static const exo_op_class relu_class = {.name = "relu", .backward = relu_backward};

/* A new operation with an output like its input; false: NULL input or an error, recorded. */
static bool
begin_like(exo_tape *tape, const exo_op_class *op_class, exo_tensor *x, exo_op **op, exo_tensor **y)
{
    if (!x || exo_tape_error(tape, NULL) != EXO_OK)
        return false;
    if (!exo_is_float(x)) {
        exo_tape_fail(tape, EXO_INVAL, "%s: takes fp32 or bf16, not %s", op_class->name, exo_dtype_name(x->dtype));
        return false;
    }
    *op = exo_tape_op(tape, op_class, &x, 1);
    *y = *op ? exo_tape_tensor(tape, x->dtype, x->layout, x->num_dims, x->dims) : NULL;
    return *y != NULL;
}

exo_tensor *
exo_relu(exo_tape *tape, exo_tensor *x)
{
    exo_op *op;
    exo_tensor *y;
    if (!begin_like(tape, &relu_class, x, &op, &y))
        return NULL;
    struct sweep s = {.type = x->dtype, .x = x->data, .out = y->data, .count = x->numel};
    run_sweep(&s, relu_forward_piece);
    return exo_tape_finish(tape, op, y);
}

/* --- tanh --------------------------------------------------------------------------------------------------------------- */

static exo_status
tanh_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    const float *y = op->out->data, *dy = op->out->grad;
    for (size_t i = 0; i < x->numel; i++)
        dx[i] = (add ? dx[i] : 0.0f) + dy[i] * (1.0f - y[i] * y[i]);
    return EXO_OK;
}

static const exo_op_class tanh_class = {.name = "tanh", .backward = tanh_backward};

exo_tensor *
exo_tanh(exo_tape *tape, exo_tensor *x)
{
    exo_op *op;
    exo_tensor *y;
    x = x ? exo_to_dtype(tape, x, EXO_F32) : NULL;
    if (!begin_like(tape, &tanh_class, x, &op, &y))
        return NULL;
    const float *in = x->data;
    float *out = y->data;
    for (size_t i = 0; i < x->numel; i++)
        out[i] = tanhf(in[i]);
    return exo_tape_finish(tape, op, y);
}

/* --- Dropout --------------------------------------------------------------------------------------------------------------- */

/* A layer's part of the pass's numbers: block b of the operation with ordinal k is block k * 2^22 + b of the stream. What does
 * not fit goes into the step's upper bits, 48 and up for b and 40 to 47 for k: layers of 2^24 numbers and more and passes of
 * 2^10 operations and more draw from further streams, and steps may go to 2^40. */
enum {
    BLOCK_BITS = 22,
    ORDINAL_BITS = 32 - BLOCK_BITS,
    BLOCK_SHIFT = 48,
    ORDINAL_SHIFT = 40
};

struct drawing {
    const exo_pass *pass;
    uint32_t ordinal, threshold;
    uint8_t *keep;
    size_t count;
};

static void
draw_piece(void *context, size_t piece)
{
    const struct drawing *d = context;
    const size_t span = (size_t)1 << BLOCK_BITS, first = piece * EXO_PIECE_ELEMENTS;
    size_t end = first + exo_piece_length(d->count, EXO_PIECE_ELEMENTS, piece);
    exo_rng rng;
    for (size_t i = first; i < end; i += 4) {
        size_t block = i / 4;
        if (i == first || block % span == 0)
            exo_rng_init(&rng, d->pass->seed, EXO_RNG_DROPOUT, d->pass->node,
                         d->pass->step ^ (uint64_t)(block >> BLOCK_BITS) << BLOCK_SHIFT ^
                             (uint64_t)(d->ordinal >> ORDINAL_BITS) << ORDINAL_SHIFT);
        uint32_t numbers[4];
        exo_rng_block(&rng, (d->ordinal << BLOCK_BITS) | (uint32_t)(block & (span - 1)), numbers);
        for (size_t k = 0; k < 4 && i + k < end; k++)
            d->keep[i + k] = numbers[k] >= d->threshold;
    }
}

/* keep[i] = whether a uniform number is at least p. */
static void
draw_mask(const exo_tape *tape, const exo_op *op, float p, uint8_t *keep, size_t count)
{
    _Static_assert(EXO_PIECE_ELEMENTS % 4 == 0, "a piece is whole blocks of four numbers");
    struct drawing d = {.pass = exo_tape_pass(tape),
                        .ordinal = op->ordinal,
                        .threshold = (uint32_t)((double)p * 4294967296.0),
                        .keep = keep,
                        .count = count};
    exo_parallel_for(exo_pieces(count, EXO_PIECE_ELEMENTS), draw_piece, &d);
}

static void
mask_piece(void *context, size_t piece)
{
    const struct sweep *s = context;
    size_t first, count = sweep_piece(s, piece, &first), size = exo_dtype_size(s->type);
    exo_mask_scale(s->type, s->x + first * size, s->out + first * size, s->keep + first, count, s->factor, s->add);
}

static exo_status
dropout_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    struct sweep s = {
        .type = x->dtype, .x = op->out->grad, .keep = op->saved[0], .count = x->numel, .factor = op->factor};
    s.out = grad_target(tape, op, x, &s.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    run_sweep(&s, mask_piece);
    return EXO_OK;
}

static const exo_op_class dropout_class = {.name = "dropout", .backward = dropout_backward};

static bool
check_probability(exo_tape *tape, const char *name, float p)
{
    if (p >= 0.0f && p < 1.0f)
        return true;
    exo_tape_fail(tape, EXO_INVAL, "%s: the probability %g is not in [0, 1)", name, (double)p);
    return false;
}

exo_tensor *
exo_dropout(exo_tape *tape, exo_tensor *x, float p)
{
    if (!x || !check_probability(tape, "dropout", p))
        return NULL;
    if (!exo_tape_pass(tape)->train || p == 0.0f)
        return x;
    exo_op *op;
    exo_tensor *y;
    if (!begin_like(tape, &dropout_class, x, &op, &y))
        return NULL;
    uint8_t *keep = exo_tape_buffer(tape, x->numel);
    if (!keep)
        return NULL;
    op->saved[0] = keep;
    op->factor = 1.0f / (1.0f - p);
    draw_mask(tape, op, p, keep, x->numel);
    struct sweep s = {
        .type = x->dtype, .x = x->data, .out = y->data, .keep = keep, .count = x->numel, .factor = op->factor};
    run_sweep(&s, mask_piece);
    return exo_tape_finish(tape, op, y);
}

/* --- Dropout of channels ------------------------------------------------------------------------------------------------ */

struct channel_loop {
    exo_dtype type;
    const char *x;
    char *out;
    const float *factor; /* (N, C) */
    size_t rows, channels;
    bool add;
};

static void
channel_piece(void *context, size_t sample)
{
    const struct channel_loop *l = context;
    size_t skip = sample * l->rows * l->channels * exo_dtype_size(l->type);
    exo_channel_scale(l->type, l->x + skip, l->out + skip, l->factor + sample * l->channels, l->rows, l->channels,
                      l->add);
}

static struct channel_loop
channel_loop(const exo_op *op, const exo_tensor *x)
{
    return (struct channel_loop){
        .type = x->dtype, .factor = op->saved[0], .rows = x->dims[2] * x->dims[3], .channels = x->dims[1]};
}

static exo_status
dropout2d_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0];
    exo_status st = EXO_OK;
    struct channel_loop l = channel_loop(op, x);
    l.x = op->out->grad;
    l.out = grad_target(tape, op, x, &l.add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    exo_parallel_for(x->dims[0], channel_piece, &l);
    return EXO_OK;
}

static const exo_op_class dropout2d_class = {.name = "dropout2d", .backward = dropout2d_backward};

exo_tensor *
exo_dropout2d(exo_tape *tape, exo_tensor *x, float p)
{
    char text[96];
    if (!x || !check_probability(tape, "dropout2d", p))
        return NULL;
    if (x->num_dims != 4)
        return exo_tape_fail(tape, EXO_INVAL, "dropout2d: x %s: expected (N, C, H, W)", exo_shape_text(x, text));
    if (!exo_tape_pass(tape)->train || p == 0.0f)
        return x;
    exo_op *op;
    exo_tensor *y;
    x = exo_to_layout(tape, x, EXO_CHANNELS_LAST);
    if (!begin_like(tape, &dropout2d_class, x, &op, &y))
        return NULL;
    size_t masks = x->dims[0] * x->dims[1];
    float *factor = exo_tape_buffer(tape, masks * sizeof *factor);
    uint8_t *keep = factor ? exo_tape_buffer(tape, masks) : NULL;
    if (!keep)
        return NULL;
    op->saved[0] = factor;
    draw_mask(tape, op, p, keep, masks);
    for (size_t i = 0; i < masks; i++)
        factor[i] = keep[i] ? 1.0f / (1.0f - p) : 0.0f;
    exo_tape_buffer_done(tape, keep);
    struct channel_loop l = channel_loop(op, x);
    l.x = x->data;
    l.out = y->data;
    exo_parallel_for(x->dims[0], channel_piece, &l);
    return exo_tape_finish(tape, op, y);
}
