/* Embeddings: rows of a table by token, and by position. Gradients of a table are summed in the order of the rows. */
#include <exogym/sequence.h>

#include <string.h>

#include "nn/ops/pieces.h"
#include "nn/tape_impl.h"

enum {
    ROWS = 64,    /* a piece of forward                               */
    COLUMNS = 64, /* a piece of backward: of all rows, so many columns */
    POSITIONS = 16
};

struct loop {
    const int32_t *tokens;
    const float *table, *x, *dy;
    float *y, *gradient;
    const int32_t *slot; /* of a row of the table in `gradient`; NULL: the row itself */
    size_t rows, width, sequence, first;
};

/* --- By token ----------------------------------------------------------------------------------------------------------------------- */

static void
gather_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * ROWS, count = exo_piece_length(l->rows, ROWS, piece);
    for (size_t r = first; r < first + count; r++)
        memcpy(l->y + r * l->width, l->table + (size_t)l->tokens[r] * l->width, l->width * sizeof *l->y);
}

static void
scatter_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * COLUMNS, count = exo_piece_length(l->width, COLUMNS, piece);
    for (size_t r = 0; r < l->rows; r++) {
        const float *restrict dy = l->dy + r * l->width + first;
        size_t token = (size_t)l->tokens[r], at = l->slot ? (size_t)l->slot[token] : token;
        float *restrict row = l->gradient + at * l->width + first;
        for (size_t i = 0; i < count; i++)
            row[i] += dy[i];
    }
}

/* The gradient of a table, which pieces add to. NULL with *st OK: none is needed. */
static float *
table_gradient(exo_tape *tape, exo_tensor *table, exo_status *st)
{
    bool add = false;
    float *gradient = exo_tape_grad(tape, table, &add, st);
    if (gradient && !add)
        memset(gradient, 0, table->numel * sizeof *gradient);
    return gradient;
}

static exo_status
embedding_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *table = op->in[1];
    exo_status st = EXO_OK;
    struct loop l = {
        .tokens = op->in[0]->data, .dy = op->out->grad, .rows = op->out->dims[0], .width = op->out->dims[1]};
    if (table->rows) {
        l.slot = table->rows->slot;
        l.gradient = table->rows->values;
    } else {
        l.gradient = table_gradient(tape, table, &st);
    }
    if (l.gradient)
        exo_parallel_for(exo_pieces(l.width, COLUMNS), scatter_piece, &l);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class embedding_class = {
    .name = "embedding", .backward = embedding_backward, .picks_rows = true, .passes_table = true};

exo_tensor *
exo_embedding(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight)
{
    char a[96], b[96];
    if (!tokens || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (tokens->dtype != EXO_I32 || tokens->numel == 0 || weight->dtype != EXO_F32 || weight->num_dims != 2 ||
        weight->numel == 0)
        return exo_tape_fail(tape, EXO_INVAL, "embedding: tokens %s %s and weight %s: expected int32 and (V, W) fp32",
                             exo_shape_text(tokens, a), exo_dtype_name(tokens->dtype), exo_shape_text(weight, b));
    const int32_t *token = tokens->data;
    for (size_t r = 0; r < tokens->numel; r++)
        if (token[r] < 0 || (size_t)token[r] >= weight->dims[0])
            return exo_tape_fail(tape, EXO_INVAL, "embedding: token %d at %zu is not in [0, %zu)", token[r], r,
                                 weight->dims[0]);
    const size_t dims[2] = {tokens->numel, weight->dims[1]};
    exo_op *op = exo_tape_op(tape, &embedding_class, (exo_tensor *[]){tokens, weight}, 2);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2, dims) : NULL;
    if (!y)
        return NULL;
    struct loop l = {.tokens = token, .table = weight->data, .y = y->data, .rows = dims[0], .width = dims[1]};
    exo_parallel_for(exo_pieces(l.rows, ROWS), gather_piece, &l);
    return exo_tape_finish(tape, op, y);
}

/* --- By position -------------------------------------------------------------------------------------------------------------------- */

static void
add_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * ROWS, count = exo_piece_length(l->rows, ROWS, piece);
    for (size_t r = first; r < first + count; r++) {
        const float *restrict x = l->x + r * l->width;
        const float *restrict row = l->table + (l->first + r % l->sequence) * l->width;
        float *restrict y = l->y + r * l->width;
        for (size_t i = 0; i < l->width; i++)
            y[i] = x[i] + row[i];
    }
}

static void
positions_piece(void *context, size_t piece)
{
    const struct loop *l = context;
    size_t first = piece * POSITIONS, count = exo_piece_length(l->sequence, POSITIONS, piece);
    for (size_t r = 0; r < l->rows; r += l->sequence)
        for (size_t t = first; t < first + count; t++) {
            const float *restrict dy = l->dy + (r + t) * l->width;
            float *restrict row = l->gradient + (l->first + t) * l->width;
            for (size_t i = 0; i < l->width; i++)
                row[i] += dy[i];
        }
}

/* op->number: T; op->state: the first row. */
static exo_status
positions_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0], *table = op->in[1];
    const size_t *first = op->state;
    exo_status st = EXO_OK;
    bool add = false;
    struct loop l = {.dy = op->out->grad,
                     .rows = x->dims[0],
                     .width = x->dims[1],
                     .sequence = op->number,
                     .first = *first,
                     .gradient = table_gradient(tape, table, &st)};
    if (l.gradient)
        exo_parallel_for(exo_pieces(l.sequence, POSITIONS), positions_piece, &l);
    if (st != EXO_OK || exo_tape_steal_grad(op, x))
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (st != EXO_OK)
        return exo_tape_error(tape, err);
    if (dx && add)
        exo_accumulate_all(EXO_F32, l.dy, dx, x->numel);
    else if (dx)
        exo_cast_all(EXO_F32, l.dy, EXO_F32, dx, x->numel);
    return EXO_OK;
}

static const exo_op_class positions_class = {
    .name = "add_positions", .backward = positions_backward, .passes_table = true};

exo_tensor *
exo_add_positions(exo_tape *tape, exo_tensor *x, exo_tensor *weight, size_t sequence, size_t first)
{
    char a[96], b[96];
    if (!x || !weight || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || x->numel == 0 || weight->dtype != EXO_F32 || weight->num_dims != 2 ||
        weight->dims[1] != x->dims[1] || sequence == 0 || x->dims[0] % sequence != 0 || first > weight->dims[0] ||
        sequence > weight->dims[0] - first)
        return exo_tape_fail(tape, EXO_INVAL,
                             "add_positions: x %s, weight %s, %zu positions from %zu on: expected (N T, W) and (P, W)",
                             exo_shape_text(x, a), exo_shape_text(weight, b), sequence, first);
    x = exo_to_dtype(tape, x, EXO_F32);
    exo_op *op = x ? exo_tape_op(tape, &positions_class, (exo_tensor *[]){x, weight}, 2) : NULL;
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2, x->dims) : NULL;
    bool fresh = false;
    size_t *kept = y ? exo_tape_state(tape, op, &first, sizeof first, sizeof first, &fresh) : NULL;
    if (!kept)
        return NULL;
    *kept = first;
    op->number = sequence;
    struct loop l = {.x = x->data,
                     .table = weight->data,
                     .y = y->data,
                     .rows = x->dims[0],
                     .width = x->dims[1],
                     .sequence = sequence,
                     .first = first};
    exo_parallel_for(exo_pieces(l.rows, ROWS), add_piece, &l);
    return exo_tape_finish(tape, op, y);
}
