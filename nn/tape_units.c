/* The units that a pass enters and leaves: see exo_unit_hooks in exogym/tensor.h. State: the tape's
 * list of the units it is in. */
#include "nn/tape_private.h"

static bool
has(const uint32_t *units, size_t count, uint32_t unit)
{
    for (size_t i = 0; i < count; i++)
        if (units[i] == unit)
            return true;
    return false;
}

/* The units of the parameters among the inputs, each once. `passed`: an input that is not read. */
static size_t
units_of(exo_tensor *const *in, size_t num_in, const exo_tensor *passed,
         uint32_t out[EXO_MAX_INPUTS])
{
    size_t count = 0;
    for (size_t i = 0; i < num_in; i++)
        if (in[i] && in[i] != passed && in[i]->unit != EXO_NO_UNIT && !has(out, count, in[i]->unit))
            out[count++] = in[i]->unit;
    return count;
}

/* Leaves the current units that are not among `units`, then enters those of `units` that the pass
 * is not in. An error stops it; the pass is then in the units that it has entered and not left. */
static exo_status
go_to(exo_tape *tape, const uint32_t *units, size_t count, exo_err *err)
{
    const exo_unit_hooks *hooks = tape->pass.units;
    exo_status st = EXO_OK;
    size_t kept = 0;
    for (size_t i = 0; i < tape->num_units; i++) {
        uint32_t unit = tape->units[i];
        if (st != EXO_OK || has(units, count, unit))
            tape->units[kept++] = unit;
        else
            st = hooks->after(hooks->context, unit, err);
    }
    tape->num_units = kept;
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        if (has(tape->units, kept, units[i]))
            continue;
        st = hooks->before(hooks->context, units[i], err);
        if (st == EXO_OK)
            tape->units[tape->num_units++] = units[i];
    }
    return st;
}

bool
exo_tape_use(exo_tape *tape, exo_tensor *const *in, size_t num_in)
{
    uint32_t units[EXO_MAX_INPUTS];
    size_t count = tape->pass.units ? units_of(in, num_in, NULL, units) : 0;
    exo_err reason = {0};
    exo_status st = count > 0 ? go_to(tape, units, count, &reason) : EXO_OK;
    if (st != EXO_OK)
        exo_tape_fail(tape, st, "%s", reason.text);
    return st == EXO_OK;
}

/* The input that backward of the operation does not read. NULL: it may read all of them. */
static const exo_tensor *
passed_by(const exo_op *op)
{
    const exo_op_class *c = op->op_class;
    return c->passes_table ? op->in[1] : c->passes_input ? op->in[0] : NULL;
}

exo_status
exo_tape_use_again(exo_tape *tape, const exo_op *op, exo_err *err)
{
    uint32_t units[EXO_MAX_INPUTS];
    size_t count = tape->pass.units ? units_of(op->in, EXO_MAX_INPUTS, passed_by(op), units) : 0;
    return count > 0 ? go_to(tape, units, count, err) : EXO_OK;
}

exo_status
exo_tape_leave_units(exo_tape *tape, exo_err *err)
{
    return tape->pass.units ? go_to(tape, NULL, 0, err) : EXO_OK;
}
