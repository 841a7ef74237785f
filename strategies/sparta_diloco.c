/* SPARTA and DiLoCo together: a small part of the parameters is averaged every `sparta_interval`
 * steps, which keeps the nodes close, and DiLoCo's outer step follows every H steps. After a step
 * with both, SPARTA comes first. With p 0 this is diloco.
 *
 * Traffic of a node: that of sparta, plus that of diloco.
 *
 * Owner of the state: the node's compute lane. Read next: sparta.c, diloco.c.
 */
#include "strategies/exchange.h"

static exo_status
sparta_diloco_init(void *self, exo_config *config, exo_err *err)
{
    exo_composition *c = self;
    const exo_optim_spec nesterov = exo_nesterov();
    exo_param_exchange *mean = exo_composition_add(c, "sparta", true);
    exo_status st = exo_param_exchange_read_sparta(mean, config, "sparta_interval", true, err);
    if (st == EXO_OK && mean->p == 0.0)
        *c = (exo_composition){0};
    exo_param_exchange *outer = exo_composition_add(c, "diloco", true);
    if (st == EXO_OK)
        st = exo_rounds_read(config, 100, &outer->rounds, err);
    return st == EXO_OK
               ? exo_param_exchange_read_outer(outer, config, "outer_optimizer", &nesterov, err)
               : st;
}

const exo_strategy_class exo_sparta_diloco_class = {
    .name = "sparta_diloco",
    .help = "SPARTA's mean of a small part of the parameters often, and DiLoCo's outer step",
    .init = sparta_diloco_init,
    EXO_COMPOSITION_CLASS,
};
