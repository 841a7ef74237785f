/* Eager DiLoCo (Kale et al., 2025, arXiv:2502.12996): DiLoCo whose nodes do not wait for each other.
 * An outer step takes the node's own change of this round, and the others' of the last one; the
 * messages pass in between. With delay 0 it is diloco.
 *
 * Traffic of a node in a round: 2 Psi (N - 1) / N elements. The messages of the last round are not
 * sent.
 *
 * Owner of the state: the node's compute lane. Read next: eager.c, diloco.c.
 */
#include "strategies/exchange.h"

static exo_status
eager_init(void *self, exo_config *config, exo_err *err)
{
    exo_param_exchange *e = exo_composition_add(self, "eager_diloco", false);
    const exo_optim_spec nesterov = exo_nesterov();
    uint64_t delay = 1;
    exo_status st = exo_rounds_read(config, 100, &e->rounds, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "delay", 1, 0, 1, &delay, err);
    e->apply = delay > 0 ? EXO_APPLY_EAGER : EXO_APPLY_OUTER;
    return st == EXO_OK
               ? exo_param_exchange_read_outer(e, config, "outer_optimizer", &nesterov, err)
               : st;
}

const exo_strategy_class exo_eager_diloco_class = {
    .name = "eager_diloco",
    .help = "diloco whose outer step has the node's own change and the others' of the last round",
    .init = eager_init,
    EXO_COMPOSITION_CLASS,
};
