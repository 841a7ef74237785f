/* Embeddings: rows of a table by token, and by position. The gradient of a table is summed in the
 * order of the rows. No state. Read next: nn/tape_sink.c, which opens a table row by row. */
#include "nn/ops/embedding.h"

#include "nn/tape_run.h"

/* --- By token --------------------------------------------------------------------------------- */

/* The gradient of a table, zeroed if it is new; kernels add to it. NULL with *st OK: none is
 * needed. */
static float *
table_gradient(exo_tape *tape, exo_tensor *table, exo_status *st)
{
    bool add = false;
    float *gradient = exo_tape_grad(tape, table, &add, st);
    if (gradient && !add)
        *st = exo_tape_run(tape, fill, .count = table->numel, .y = gradient);
    return *st == EXO_OK ? gradient : NULL;
}

static exo_status
embedding_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *table = op->in[1];
    const exo_row_grads *open = table->rows;
    exo_status st = EXO_OK;
    float *gradient = open ? open->values : table_gradient(tape, table, &st);
    if (gradient)
        st = exo_tape_run(tape, embedding_backward, .rows = op->out->dims[0],
                          .width = op->out->dims[1], .gradient = gradient, .dy = op->out->grad,
                          .tokens = op->in[0]->data, .slot = open ? open->slot : NULL);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class embedding_class = {
    .name = "embedding", .backward = embedding_backward, .picks_rows = true, .passes_table = true};

/* Checks shapes and types, and that each token is in [0, vocabulary). False: recorded. */
static bool
check(exo_tape *tape, const exo_tensor *tokens, const exo_tensor *weight, size_t vocabulary)
{
    char a[96], b[96];
    if (tokens->dtype != EXO_I32 || tokens->numel == 0 || weight->dtype != EXO_F32 ||
        weight->num_dims != 2 || weight->numel == 0) {
        exo_tape_fail(tape, EXO_INVAL,
                      "embedding: tokens %s %s and weight %s: expected int32 and (V, W) fp32",
                      exo_shape_text(tokens, a), exo_dtype_name(tokens->dtype),
                      exo_shape_text(weight, b));
        return false;
    }
    const int32_t *token = exo_tensor_host(tokens);
    if (!token) {
        exo_tape_fail(tape, EXO_INVAL, "embedding: the tokens are not an input of the pass");
        return false;
    }
    for (size_t r = 0; r < tokens->numel; r++)
        if (token[r] < 0 || (size_t)token[r] >= vocabulary) {
            exo_tape_fail(tape, EXO_INVAL, "embedding: token %d at %zu is not in [0, %zu)",
                          token[r], r, vocabulary);
            return false;
        }
    return true;
}

/* The rows that the tokens name; zero for a negative one. */
static exo_tensor *
pick_rows(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight)
{
    const size_t dims[2] = {tokens->numel, weight->dims[1]};
    exo_op *op = exo_tape_op(tape, &embedding_class, (exo_tensor *[]){tokens, weight}, 2);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2, dims) : NULL;
    if (!y)
        return NULL;
    if (exo_tape_run(tape, embedding, .rows = dims[0], .width = dims[1], .y = y->data,
                     .table = weight->data, .tokens = tokens->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

exo_tensor *
exo_embedding(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight)
{
    bool fine = tokens && weight && exo_tape_error(tape, NULL) == EXO_OK &&
                check(tape, tokens, weight, weight->num_dims == 2 ? weight->dims[0] : 0);
    return fine ? pick_rows(tape, tokens, weight) : NULL;
}

exo_tensor *
exo_local_tokens(exo_tape *tape, const exo_tensor *tokens, size_t first, size_t count)
{
    const int32_t *token = exo_tensor_host(tokens);
    int32_t *local = exo_tape_host_buffer(tape, tokens->numel * sizeof *local);
    if (!local)
        return NULL;
    for (size_t r = 0; r < tokens->numel; r++) {
        bool here = token[r] >= 0 && (size_t)token[r] >= first && (size_t)token[r] - first < count;
        local[r] = here ? (int32_t)((size_t)token[r] - first) : -1;
    }
    return exo_tape_input(tape, EXO_I32, tokens->num_dims, tokens->dims, local);
}

exo_tensor *
exo_embedding_part(exo_tape *tape, exo_tensor *tokens, exo_tensor *weight, size_t first,
                   size_t vocabulary)
{
    if (!tokens || !weight || exo_tape_error(tape, NULL) != EXO_OK ||
        !check(tape, tokens, weight, vocabulary))
        return NULL;
    exo_tensor *local = exo_local_tokens(tape, tokens, first, weight->dims[0]);
    return local ? pick_rows(tape, local, weight) : NULL;
}

/* --- By position ------------------------------------------------------------------------------ */

/* op->number: T, the positions of a sequence. op->state: the table's row of the first position. */
static exo_status
positions_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0], *table = op->in[1];
    const size_t *first = op->state;
    exo_status st = EXO_OK;
    bool add = false;
    float *gradient = table_gradient(tape, table, &st);
    if (gradient)
        st = exo_tape_run(tape, positions_backward, .rows = x->dims[0], .width = x->dims[1],
                          .sequence = op->number, .first = *first, .gradient = gradient,
                          .dy = op->out->grad);
    if (st != EXO_OK || exo_tape_steal_grad(op, x))
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx && add)
        st = exo_tape_run(tape, add, .count = x->numel, .dtype = EXO_F32, .y = dx, .a = dx,
                          .b = op->out->grad);
    else if (dx)
        st = exo_tape_copy(tape, dx, op->out->grad, x->numel * sizeof *dx);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
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
        weight->dims[1] != x->dims[1] || sequence == 0 || x->dims[0] % sequence != 0 ||
        first > weight->dims[0] || sequence > weight->dims[0] - first)
        return exo_tape_fail(tape, EXO_INVAL,
                             "add_positions: x %s, weight %s, %zu positions from %zu on: expected "
                             "(N T, W) and (P, W)",
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
    if (exo_tape_run(tape, positions, .rows = x->dims[0], .width = x->dims[1], .sequence = sequence,
                     .first = first, .y = y->data, .x = x->data, .table = weight->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}

/* --- A bias, which is the same for every position --------------------------------------------- */

static exo_status
bias_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[0], *bias = op->in[1];
    const float *dy = op->out->grad;
    exo_status st = EXO_OK;
    bool add = false;
    float *db = exo_tape_grad(tape, bias, &add, &st);
    if (db)
        st = exo_tape_run(tape, column_sums, .rows = x->dims[0], .columns = bias->numel,
                          .dtype = EXO_F32, .y = db, .x = dy, .add = add);
    if (st != EXO_OK || exo_tape_steal_grad(op, x))
        return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx && add)
        st = exo_tape_run(tape, axpy, .count = x->numel, .y = dx, .a = 1.0f, .x = dy);
    else if (dx)
        st = exo_tape_copy(tape, dx, dy, x->numel * sizeof *dx);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class bias_class = {
    .name = "add_bias", .backward = bias_backward, .passes_table = true};

exo_tensor *
exo_add_bias(exo_tape *tape, exo_tensor *x, exo_tensor *bias)
{
    char a[96], b[96];
    if (!x || !bias || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (x->num_dims != 2 || x->numel == 0 || bias->dtype != EXO_F32 || bias->numel != x->dims[1])
        return exo_tape_fail(tape, EXO_INVAL,
                             "add_bias: x %s, bias %s: expected (R, W) and (W) fp32",
                             exo_shape_text(x, a), exo_shape_text(bias, b));
    x = exo_to_dtype(tape, x, EXO_F32);
    exo_op *op = x ? exo_tape_op(tape, &bias_class, (exo_tensor *[]){x, bias}, 2) : NULL;
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 2, x->dims) : NULL;
    if (!y || exo_tape_run(tape, positions, .rows = x->dims[0], .width = x->dims[1], .sequence = 1,
                           .y = y->data, .x = x->data, .table = bias->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
