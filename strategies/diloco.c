/* DiLoCo (Douillard et al., 2023, arXiv:2311.08105): H inner steps on each node alone, then one
 * outer step for all nodes. MuLoCo (Therien et al., 2025, arXiv:2505.23725) is DiLoCo with other
 * defaults: Muon takes the inner steps, and H is 30.
 *
 *     delta       = theta_outer - mean over nodes of theta       the pseudo-gradient
 *     theta_outer = outer optimizer(theta_outer, delta)
 *     theta       = theta_outer
 *
 * Pier (Fan and Zhang, 2025, arXiv:2511.17849) warms the momentum of the outer optimizer up and
 * decays it: `outer_momentum` is a schedule of it.
 *
 * Each node keeps theta_outer and the outer optimizer's state for its own shard only. A
 * reduce-scatter gives each node the mean of its shard, and an all-gather distributes the new
 * shards. After a round the parameters of all nodes are equal to the bit.
 *
 * Traffic of a node in a round: 2 Psi (N - 1) / N elements. A last round of fewer than H steps
 * sends nothing.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (apply_outer), noloco.c.
 */
#include "strategies/exchange.h"

static exo_status
init(void *self, uint64_t interval, exo_config *config, exo_err *err)
{
    const exo_optim_spec nesterov = exo_nesterov();
    exo_param_exchange *outer = exo_composition_add(self, "diloco", false);
    exo_status st = exo_rounds_read(config, interval, &outer->rounds, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_outer(outer, config, "outer_optimizer", &nesterov, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_momentum(outer, config, "outer_momentum", err);
    return st == EXO_OK ? exo_param_exchange_read_aggregate(outer, config, err) : st;
}

static exo_status
diloco_init(void *self, exo_config *config, exo_err *err)
{
    return init(self, 100, config, err);
}

static exo_status
muloco_init(void *self, exo_config *config, exo_err *err)
{
    return init(self, 30, config, err);
}

static exo_optim_spec
muloco_optimizer(void)
{
    return exo_optim_spec_init(EXO_MUON);
}

const exo_strategy_class exo_diloco_class = {
    .name = "diloco",
    .help = "H local steps, then an outer step on the mean change of the parameters",
    .init = diloco_init,
    EXO_COMPOSITION_CLASS,
};

const exo_strategy_class exo_muloco_class = {
    .name = "muloco",
    .help = "diloco whose inner optimizer is muon",
    .init = muloco_init,
    .optimizer = muloco_optimizer,
    EXO_COMPOSITION_CLASS,
};
