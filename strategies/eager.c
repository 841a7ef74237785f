/* A round of EXO_APPLY_EAGER: Eager updates (Kale et al., 2025, arXiv:2502.12996). A node does not
 * wait for the other nodes' changes of this round. It takes its outer step with its own change of
 * this round and theirs of the last one:
 *
 *     delta_i     = theta_outer_i - theta_i
 *     gradient    = delta_i / N + (mean of the last delta - last delta_i / N)
 *     theta_outer = outer optimizer(theta_outer, gradient),  theta = theta_outer
 *
 * The mean of this round's changes passes while the nodes train, and is waited for at the next
 * round. In the first round the others' changes are 0. Each change of each node counts once, with
 * weight 1 / N, on each node.
 *
 * State: the exchange's one slot has the last change, as it was sent. Read next: background.c. */
#include "strategies/exchange.h"

/* Waits for the mean of the last round's changes, and leaves the others' part of it in the
 * buffer. */
static exo_status
end_last(exo_param_exchange *e, const exo_node *node, exo_pending *last, exo_err *err)
{
    exo_status st = EXO_OK;
    if (!last->request) /* the run went on from a checkpoint */
        st = exo_background_begin(e, node, 0, 0, last, e->slots, err);
    if (st == EXO_OK)
        st = exo_request_wait(&last->request, err);
    if (st != EXO_OK)
        return st;
    exo_vec_divide(e->slots, (float)node->num_nodes);
    exo_vec_sub(last->buffer, last->buffer, e->slots);
    return EXO_OK;
}

exo_status
exo_param_exchange_run_eager(exo_param_exchange *e, exo_node *node, exo_err *err)
{
    exo_pending *last = &e->pending[0];
    const uint64_t interval = e->rounds.interval;
    if (!exo_rounds_due(&e->rounds, node->step))
        return EXO_OK;
    bool first = node->step + 1 - e->rounds.offset == interval;
    exo_status st = first ? EXO_OK : end_last(e, node, last, err);
    if (st != EXO_OK)
        return st;
    exo_vec_sub(e->own, e->outer, node->params);
    exo_vec_copy(e->slots, e->own);
    exo_vec_divide(e->own, (float)node->num_nodes);
    if (!first)
        exo_vec_add(e->own, e->own, last->buffer);
    exo_param_exchange_step_outer(e, node, 0, e->outer, e->own);
    exo_vec_copy(node->params, e->outer);
    exo_meter_add(e->rounds_done, 1);
    if (node->max_steps - node->step <= interval) /* nobody would wait for it */
        return EXO_OK;
    return exo_background_begin(e, node, 0, 0, last, e->slots, err);
}
