/* DDP, distributed data parallelism: the mean of all nodes' gradients, then the same step everywhere. Parameters that start
 * equal stay equal to the bit. EXO Gym calls it SimpleReduce.
 *
 * Traffic of a node and step: 2 Psi (N - 1) / N elements.
 */
#include "strategies/builtin.h"

static exo_status
ddp_step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    exo_status st = EXO_OK;
    if (node->num_nodes > 1)
        st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
    return st == EXO_OK ? exo_node_inner_step(node, err) : st;
}

static bool
ddp_steps_alone(const void *self, uint32_t num_nodes)
{
    (void)self;
    return num_nodes == 1;
}

static size_t
ddp_edges(const void *self, size_t numel, uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    (void)self;
    (void)num_nodes;
    out[0] = (exo_strategy_edge){.carries = "gradients", .route = "all_reduce", .elements = (double)numel, .every = 1};
    return 1;
}

const exo_strategy_class exo_ddp_class = {
    .name = "ddp",
    .help = "all-reduce the gradients at every step",
    .step = ddp_step,
    .steps_alone = ddp_steps_alone,
    .edges = ddp_edges,
};
