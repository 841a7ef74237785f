/* Local SGD (Stich, 2018, arXiv:1805.09767): H inner steps on each node alone, then theta = mean
 * over all nodes of theta. It is fedavg without islands, with H 10 if the job does not say it.
 *
 * Traffic of a node in a round: 2 Psi (N - 1) / N elements.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (a round), fedavg.c.
 */
#include "strategies/exchange.h"

static exo_status
local_sgd_init(void *self, exo_config *config, exo_err *err)
{
    exo_param_exchange *mean = exo_composition_add(self, "local_sgd", false);
    exo_status st = exo_rounds_read(config, 10, &mean->rounds, err);
    return st == EXO_OK ? exo_param_exchange_read_aggregate(mean, config, err) : st;
}

const exo_strategy_class exo_local_sgd_class = {
    .name = "local_sgd",
    .help = "H local steps, then the mean of the parameters of all nodes",
    .init = local_sgd_init,
    EXO_COMPOSITION_CLASS,
};
