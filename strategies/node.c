/* The parts that strategies share: the inner step of a node, and the schedule of rounds. State: the
 * node's own (exo_node), owned by its compute lane. */
#include "strategies/builtin.h"

bool
exo_always_steps_alone(const void *self, uint32_t num_nodes)
{
    (void)self;
    (void)num_nodes;
    return true;
}

exo_status
exo_rounds_read(exo_config *config, uint64_t fallback, exo_rounds *out, exo_err *err)
{
    exo_status st = exo_config_u64(config, "H", fallback, 1, UINT64_MAX, &out->interval, err);
    return st == EXO_OK ? exo_config_u64(config, "offset", 0, 0, UINT64_MAX, &out->offset, err)
                        : st;
}

exo_status
exo_rounds_meter(exo_meter **out, exo_meters *scope, exo_err *err)
{
    static const exo_meter_class rounds = {
        .name = "rounds",
        .unit = "rounds",
        .help = "rounds in which the node's parameters met those of others"};
    return exo_meter_declare(out, scope, &rounds, err);
}

bool
exo_rounds_due(const exo_rounds *rounds, uint64_t step)
{
    uint64_t done = step + 1;
    return done > rounds->offset && (done - rounds->offset) % rounds->interval == 0;
}

float
exo_node_rate(exo_node *node)
{
    node->lr = node->inner.lr * exo_schedule_factor(node->schedule, node->step, node->max_steps);
    return node->lr;
}

exo_grad_sink
exo_node_inner_sink(exo_node *node)
{
    node->stepped = true;
    return exo_optim_sink(node->optim, node->params, exo_node_rate(node));
}

exo_status
exo_node_inner_step(exo_node *node, exo_err *err)
{
    exo_status st = EXO_OK;
    if (node->stepped) {
        node->stepped = false;
        return EXO_OK;
    }
    if (node->max_norm > 0)
        st = exo_clip_grad_norm(node->grads, node->max_norm, &node->grad_norm, err);
    if (st != EXO_OK)
        return st;
    exo_optim_step(node->optim, node->params, node->grads, exo_node_rate(node));
    return exo_optim_result(node->optim, err);
}
