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
 * third of it, and backward proceeds with the number of gradients that it has yielded. */
static double
part_done(const exo_replica *r)
{
    double minibatches = (double)(r->fit->batch_size / r->fit->minibatch_size);
    double backward = (double)r->ready / (double)r->node.numel;
    return (minibatches - 1 + (1 + 2 * backward) / 3) / minibatches;
}

exo_status
exo_replica_gradient_ready(void *context, size_t first, size_t count, exo_err *err)
{
    exo_replica *r = context;
    r->ready += count;
    exo_pace_reach(r->pace, part_done(r));
    return exo_strategy_gradient_ready(r->strategy, &r->node, first, count, err);
}

bool
exo_replica_announces(const exo_replica *r)
{
    return !exo_replica_is_elastic(r) && !r->within && exo_strategy_awaits_gradients(r->strategy);
}
