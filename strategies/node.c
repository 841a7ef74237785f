/* The inner step: what every strategy does with a node's gradients once they are what it wants them to be. */
#include <exogym/strategy.h>

exo_status
exo_node_inner_step(exo_node *node, exo_err *err)
{
    (void)err; /* arithmetic only: nothing of it can fail today */
    if (node->max_norm > 0)
        node->grad_norm = exo_clip_grad_norm(node->grads, node->numel, node->max_norm);
    node->lr = node->inner.lr * exo_schedule_factor(&node->schedule, node->step, node->max_steps);
    exo_optim_step(node->optim, node->params, node->grads, node->lr);
    return EXO_OK;
}
