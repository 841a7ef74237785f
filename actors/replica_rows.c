/* What the passes of a whole model and of a stage share: the rows of a minibatch, and the gradients
 * that are complete. See replica.h. */
#include "actors/replica.h"

exo_batch
exo_replica_rows(const exo_batch *batch, size_t first, size_t size)
{
    exo_batch rows = *batch;
    rows.size = size;
    for (size_t i = 0; i < batch->num_fields; i++) {
        size_t bytes = exo_dtype_size(batch->fields[i].dtype);
        for (size_t d = 0; d < batch->fields[i].num_dims; d++)
            bytes *= batch->fields[i].dims[d];
        rows.data[i] = (char *)batch->data[i] + first * bytes;
    }
    return rows;
}

/* The part of a step's declared cost that has passed. Each minibatch costs the same. Forward is a
 * third of it. A pass proceeds with the elements of the units that it has left, and backward also with
 * the gradients that it has yielded, whichever are more. */
static double
part_done(const exo_replica *r)
{
    const exo_replica_progress *p = &r->progress;
    double minibatches = (double)(r->fit->batch_size / r->fit->minibatch_size);
    size_t most = p->backward && p->ready > p->left ? p->ready : p->left;
    double pass = most < r->node.numel ? (double)most / (double)r->node.numel : 1;
    return ((double)p->minibatch + (p->backward ? 1 + 2 * pass : pass) / 3) / minibatches;
}

void
exo_replica_leave_unit(exo_replica *r, size_t unit)
{
    r->progress.left += r->node.units[unit].count;
    exo_pace_reach(r->pace, part_done(r));
}

exo_status
exo_replica_gradient_ready(void *context, size_t first, size_t count, exo_err *err)
{
    exo_replica *r = context;
    r->progress.ready += count;
    exo_pace_reach(r->pace, part_done(r));
    return exo_strategy_gradient_ready(r->strategy, &r->node, first, count, err);
}

bool
exo_replica_announces(const exo_replica *r)
{
    return !exo_replica_is_elastic(r) && !r->within && exo_strategy_awaits_gradients(r->strategy);
}
