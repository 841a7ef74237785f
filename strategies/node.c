/* The inner step: what every strategy does with a node's gradients once they are what it wants them to be. */
#include "builtin.h"

bool
exo_always_steps_alone(const void *self, uint32_t num_nodes)
{
    (void)self;
    (void)num_nodes;
    return true;
}

static float
scheduled_rate(const exo_node *node)
{
    return node->inner.lr * exo_schedule_factor(&node->schedule, node->step, node->max_steps);
}

exo_grad_sink
exo_node_inner_sink(exo_node *node)
{
    node->lr = scheduled_rate(node);
    node->stepped = true;
    return exo_optim_sink(node->optim, node->params, node->lr);
}

exo_status
exo_node_inner_step(exo_node *node, exo_err *err)
{
    (void)err; /* arithmetic only: nothing of it can fail today */
    if (node->stepped) {
        node->stepped = false;
        return EXO_OK;
    }
    if (node->max_norm > 0)
        node->grad_norm = exo_clip_grad_norm(node->grads, node->numel, node->max_norm);
    node->lr = scheduled_rate(node);
    exo_optim_step(node->optim, node->params, node->grads, node->lr);
    return EXO_OK;
}
