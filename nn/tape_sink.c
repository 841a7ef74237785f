/* Gradients that are handed to a sink, or announced to a receiver, as soon as they are final.
 *
 * exo_tape_op counts the uses of each parameter. Backward counts them down, and a gradient is final
 * when the count is 0. A table's rows may become final one by one (exo_tape_open_rows).
 * State: the counts in the tape's tensors. Read next: exo_grad_sink and exo_grad_ready in
 * exogym/tensor.h. */
#include "nn/tape_private.h"

#include <string.h>

#include "base/parallel.h"

enum {
    /* Elements. An optimizer's arrays of this length fit into the second-level cache. */
    PIECE = 1 << 15
};

static const float zeros[PIECE];

/* --- Whole parameters ------------------------------------------------------------------------- */

struct give {
    const exo_grad_sink *sink;
    size_t first, count;
    const float *grad; /* (count); NULL: zeros */
};

static void
give_piece(void *context, size_t piece)
{
    const struct give *g = context;
    size_t skip = piece * PIECE, count = g->count - skip < PIECE ? g->count - skip : PIECE;
    g->sink->take(g->sink->context, g->first + skip, count, g->grad ? g->grad + skip : zeros);
}

static void
give(const exo_tape *tape, size_t first, size_t count, const float *grad)
{
    struct give g = {.sink = tape->pass.sink, .first = first, .count = count, .grad = grad};
    exo_parallel_for((count + PIECE - 1) / PIECE, give_piece, &g);
}

/* --- Rows ------------------------------------------------------------------------------------- */

static bool
picks_rows_of(const exo_op *op, const exo_tensor *param)
{
    return op->op_class->picks_rows && op->in[1] == param;
}

/* Whether all operations that backward has not reached yet only pick rows of the parameter; the
 * current one is not counted. */
static bool
only_rows_to_come(const exo_tape *tape, const exo_tensor *param)
{
    size_t picks = 0;
    for (size_t i = 0; i < tape->num_ops; i++)
        picks += picks_rows_of(&tape->ops[i], param);
    return param->uses == picks + 1;
}

static size_t
most_rows(const exo_tape *tape, const exo_tensor *param)
{
    size_t named = 1;
    for (size_t i = 0; i < tape->num_ops; i++)
        if (picks_rows_of(&tape->ops[i], param))
            named += tape->ops[i].in[0]->numel;
    return named < param->dims[0] ? named : param->dims[0];
}

/* Gives a slot to each row that a later operation picks. Returns the number of these rows. */
static size_t
mark_rows(const exo_tape *tape, const exo_tensor *param, int32_t *slot)
{
    int32_t count = 0;
    for (size_t v = 0; v < param->dims[0]; v++)
        slot[v] = -1;
    for (size_t i = 0; i < tape->num_ops; i++) {
        const exo_op *op = &tape->ops[i];
        if (!picks_rows_of(op, param))
            continue;
        const int32_t *row = exo_tensor_host(op->in[0]);
        for (size_t r = 0; r < op->in[0]->numel; r++)
            if (row[r] >= 0 && slot[row[r]] < 0)
                slot[row[r]] = count++;
    }
    return (size_t)count;
}

bool
exo_tape_open_rows(exo_tape *tape, exo_tensor *param)
{
    if (!tape->pass.sink || !param->is_param || !param->needs_grad || param->grad || param->rows ||
        param->num_dims != 2 || param->dims[0] > INT32_MAX || !only_rows_to_come(tape, param))
        return false;
    exo_row_grads *rows = exo_tape_buffer(tape, sizeof *rows);
    int32_t *slot = rows ? exo_tape_buffer(tape, param->dims[0] * sizeof *slot) : NULL;
    if (!slot)
        return false;
    /* Buffers for the most rows that are possible, so that the next pass asks for the same
     * sizes. */
    size_t most = most_rows(tape, param);
    *rows = (exo_row_grads){.slot = slot, .count = mark_rows(tape, param, slot)};
    rows->rows = exo_tape_buffer(tape, most * sizeof *rows->rows);
    rows->values =
        rows->rows ? exo_tape_buffer(tape, most * param->dims[1] * sizeof *rows->values) : NULL;
    if (!rows->values)
        return false;
    for (size_t v = 0; v < param->dims[0]; v++)
        if (slot[v] >= 0)
            rows->rows[slot[v]] = (int32_t)v;
    param->rows = rows;
    return true;
}

void
exo_tape_give_rows(exo_tape *tape, exo_tensor *param, size_t first, size_t count, const float *grad)
{
    const exo_grad_sink *sink = tape->pass.sink;
    const exo_row_grads *rows = param->rows;
    size_t width = param->dims[1];
    for (size_t v = 0; v < count;) {
        int32_t slot = rows->slot[first + v];
        if (slot >= 0) {
            memcpy(rows->values + (size_t)slot * width, grad + v * width, width * sizeof *grad);
            v++;
            continue;
        }
        size_t begin = v;
        while (v < count && rows->slot[first + v] < 0)
            v++;
        sink->take(sink->context, param->offset + (first + begin) * width, (v - begin) * width,
                   grad + begin * width);
    }
}

struct give_rows {
    const exo_grad_sink *sink;
    const exo_tensor *param;
};

static void
give_row(void *context, size_t slot)
{
    const struct give_rows *g = context;
    const exo_row_grads *rows = g->param->rows;
    size_t width = g->param->dims[1];
    g->sink->take(g->sink->context, g->param->offset + (size_t)rows->rows[slot] * width, width,
                  rows->values + slot * width);
}

static void
close_rows(exo_tape *tape, exo_tensor *param)
{
    struct give_rows g = {.sink = tape->pass.sink, .param = param};
    exo_row_grads *rows = param->rows;
    exo_parallel_for(rows->count, give_row, &g);
    exo_tape_buffer_done(tape, rows->values);
    exo_tape_buffer_done(tape, rows->rows);
    exo_tape_buffer_done(tape, rows->slot);
    exo_tape_buffer_done(tape, rows);
    param->rows = NULL;
}

/* --- Backward --------------------------------------------------------------------------------- */

/* Whether gradients go to a sink or are announced. */
static bool
is_awaited(const exo_tape *tape)
{
    return tape->pass.sink || tape->pass.ready;
}

static exo_status
tell(const exo_tape *tape, size_t first, size_t count, exo_err *err)
{
    return tape->pass.ready->tell(tape->pass.ready->context, first, count, err);
}

static exo_status
hand_on(exo_tape *tape, exo_tensor *param, exo_err *err)
{
    param->handed_on = true;
    if (!tape->pass.sink)
        return tell(tape, param->offset, param->numel, err);
    if (param->rows) {
        close_rows(tape, param);
        return EXO_OK;
    }
    give(tape, param->offset, param->numel, param->grad);
    exo_tape_buffer_done(tape, param->grad);
    param->grad = NULL;
    return EXO_OK;
}

exo_status
exo_tape_sink_inputs(exo_tape *tape, const exo_op *op, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < EXO_MAX_INPUTS && is_awaited(tape); i++) {
        exo_tensor *in = op->in[i];
        if (in && in->is_param && in->needs_grad && --in->uses == 0)
            st = hand_on(tape, in, err);
    }
    return st;
}

exo_status
exo_tape_sink_rest(exo_tape *tape, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!is_awaited(tape) || !tape->pass.grad || !tape->params)
        return EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < exo_params_count(tape->params); i++) {
        const exo_param_info *info = exo_params_info(tape->params, i);
        const exo_tensor *t = i < tape->num_param_tensors ? tape->param_tensors[i] : NULL;
        if (info->is_buffer || (t && t->handed_on))
            continue;
        if (tape->pass.sink)
            give(tape, info->offset, info->numel, NULL);
        else
            st = tell(tape, info->offset, info->numel, err);
    }
    return st;
}
