/* FedAvg (McMahan et al., 2017, arXiv:1602.05629) among nodes that all take part: H inner steps apart, then theta = mean over nodes of theta.
 *
 * Traffic of a node and round: 2 Psi (N - 1) / N elements. Inner optimizers keep their moments. A last round of fewer than H steps sends
 * nothing.
 */
#include "builtin.h"

struct fedavg {
    uint64_t interval; /* H */
};

static exo_status
fedavg_init(void *self, exo_config *config, exo_err *err)
{
    struct fedavg *f = self;
    return exo_config_u64(config, "H", 1, 1, UINT64_MAX, &f->interval, err);
}

static exo_status
fedavg_step(void *self, exo_node *node, exo_err *err)
{
    const struct fedavg *f = self;
    exo_status st = exo_node_inner_step(node, err);
    if (st != EXO_OK || (node->step + 1) % f->interval != 0)
        return st;
    return exo_all_reduce(node->group, node->params, node->numel, EXO_F32, EXO_MEAN, err);
}

static size_t
fedavg_edges(const void *self, size_t numel, uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct fedavg *f = self;
    (void)num_nodes;
    out[0] = (exo_strategy_edge){
        .carries = "parameters", .route = "all_reduce", .elements = (double)numel, .every = f->interval};
    return 1;
}

const exo_strategy_class exo_fedavg_class = {
    .name = "fedavg",
    .help = "H local steps, then the mean of the parameters",
    .state_size = sizeof(struct fedavg),
    .init = fedavg_init,
    .step = fedavg_step,
    .steps_alone = exo_always_steps_alone,
    .edges = fedavg_edges,
};
