/* FedAvg (McMahan et al., 2017, arXiv:1602.05629) with the participation of all nodes: H inner
 * steps on each node alone, then theta = mean over nodes of theta. With `island_size` the mean is
 * over the nodes of an island, as in EXO Gym: each round shuffles the ranks and cuts them into
 * groups of `island_size`. The remainder forms a smaller island; a single node keeps its own
 * parameters.
 *
 * Traffic of a node in a round: 2 Psi (n - 1) / n elements, with n the nodes of its island. Every
 * node computes the islands by itself, without messages. Inner optimizers keep their moments. A
 * last round of fewer than H steps sends nothing.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (a round), island.c.
 */
#include "strategies/exchange.h"

static exo_status
fedavg_init(void *self, exo_config *config, exo_err *err)
{
    exo_param_exchange *mean = exo_composition_add(self, "fedavg", false);
    exo_status st = exo_rounds_read(config, 1, &mean->rounds, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_island(mean, config, "island_size", err);
    return st == EXO_OK ? exo_param_exchange_read_aggregate(mean, config, err) : st;
}

const exo_strategy_class exo_fedavg_class = {
    .name = "fedavg",
    .help = "H local steps, then the mean of the parameters, of all nodes or within islands",
    .init = fedavg_init,
    EXO_COMPOSITION_CLASS,
};
