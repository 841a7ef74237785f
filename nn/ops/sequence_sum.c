/* Sums over sequences of rows (exogym/loss.h). No state beyond the pass's buffers. Read next:
 * row_losses.c. */
#include <exogym/loss.h>

#include "nn/tape_run.h"

enum {
    VALUES, /* indices into op->in */
    OFFSETS,
    MASK /* only if there is a mask */
};

static exo_status
sequence_sum_backward(exo_tape *tape, exo_op *op, exo_err *err)
{
    exo_tensor *x = op->in[VALUES];
    exo_status st = EXO_OK;
    bool add = false;
    float *dx = exo_tape_grad(tape, x, &add, &st);
    if (dx)
        st = exo_tape_run(tape, sequence_sum_backward, .count = op->out->numel, .rows = x->numel,
                          .dx = dx, .mask = op->number ? op->in[MASK]->data : NULL,
                          .dy = op->out->grad, .offsets = op->in[OFFSETS]->data, .add = add);
    return st == EXO_OK ? EXO_OK : exo_tape_error(tape, err);
}

static const exo_op_class sequence_sum_class = {.name = "sequence_sum",
                                                .backward = sequence_sum_backward};

/* Checks that the offsets do not decrease and lie in [0, rows]. False: recorded. */
static bool
check_offsets(exo_tape *tape, const exo_tensor *offsets, size_t rows)
{
    const int32_t *offset = exo_tensor_host(offsets);
    if (offsets->dtype != EXO_I32 || offsets->numel < 2 || !offset) {
        exo_tape_fail(tape, EXO_INVAL,
                      "sequence_sum: the offsets are %zu numbers of type %s: expected an input of "
                      "the pass, int32, of 2 or more",
                      offsets->numel, exo_dtype_name(offsets->dtype));
        return false;
    }
    for (size_t n = 0; n < offsets->numel; n++)
        if (offset[n] < (n > 0 ? offset[n - 1] : 0) || (size_t)offset[n] > rows) {
            exo_tape_fail(tape, EXO_INVAL,
                          "sequence_sum: offset %d at %zu: offsets must not decrease, and lie in "
                          "[0, %zu]",
                          offset[n], n, rows);
            return false;
        }
    return true;
}

exo_tensor *
exo_sequence_sum(exo_tape *tape, exo_tensor *x, exo_tensor *mask, exo_tensor *offsets)
{
    char a[96], b[96];
    if (!x || !offsets || exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    if (!exo_is_float(x) || (mask && (!exo_is_float(mask) || mask->numel != x->numel)))
        return exo_tape_fail(tape, EXO_INVAL,
                             "sequence_sum: x %s and mask %s: expected numbers of "
                             "equal count",
                             exo_shape_text(x, a), mask ? exo_shape_text(mask, b) : "NULL");
    if (!check_offsets(tape, offsets, x->numel))
        return NULL;
    x = exo_to_layout(tape, exo_to_dtype(tape, x, EXO_F32), EXO_ROW_MAJOR);
    mask = mask ? exo_to_layout(tape, exo_to_dtype(tape, mask, EXO_F32), EXO_ROW_MAJOR) : NULL;
    if (exo_tape_error(tape, NULL) != EXO_OK)
        return NULL;
    const size_t sequences = offsets->numel - 1;
    exo_op *op =
        exo_tape_op(tape, &sequence_sum_class, (exo_tensor *[]){x, offsets, mask}, mask ? 3 : 2);
    exo_tensor *y = op ? exo_tape_tensor(tape, EXO_F32, EXO_ROW_MAJOR, 1, &sequences) : NULL;
    if (!y)
        return NULL;
    op->number = mask != NULL;
    if (exo_tape_run(tape, sequence_sum, .count = sequences, .y = y->data, .x = x->data,
                     .mask = mask ? mask->data : NULL, .offsets = offsets->data) != EXO_OK)
        return NULL;
    return exo_tape_finish(tape, op, y);
}
