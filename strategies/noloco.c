/* NoLoCo (Kolehmainen et al., 2025, arXiv:2506.10911): DiLoCo without a meeting of all nodes. H
 * inner steps on each node alone, then each node i takes an outer step with one other node, which
 * is drawn anew in each round:
 *
 *     m_i     = mu m_i + eta mean of (theta - phi) + eta (mean of phi - phi_i)
 *     phi_i   = phi_i + m_i
 *     theta_i = phi_i
 *
 * phi are the outer parameters, and the means are over the pair. The two terms with eta add up to
 * eta (mean of theta - phi_i), so a pair sends theta only. With m = -eta b this is a step of SGD
 * with lr eta and momentum mu (buffer b) on the pseudo-gradient phi_i - mean of theta, and
 * `outer_optimizer` may be another one. Nodes differ after a round; the second term draws them
 * together.
 *
 * If the number of nodes is odd, one node, which is drawn too, has no partner in a round. It sends
 * nothing, and keeps phi, m and theta; the next round has its changes of both.
 *
 * Traffic of a node in a round with a partner: Psi elements.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (meet, apply_outer), island.c.
 */
#include "strategies/exchange.h"

static exo_status
noloco_init(void *self, exo_config *config, exo_err *err)
{
    exo_optim_spec outer = exo_optim_spec_init(EXO_SGD);
    outer.lr = 0.7f;
    outer.momentum = 0.5;
    exo_param_exchange *pair = exo_composition_add(self, "noloco", false);
    pair->island_size = 2;
    exo_status st = exo_rounds_read(config, 50, &pair->rounds, err);
    return st == EXO_OK
               ? exo_param_exchange_read_outer(pair, config, "outer_optimizer", &outer, err)
               : st;
}

const exo_strategy_class exo_noloco_class = {
    .name = "noloco",
    .help = "H local steps, then an outer step with one other node, drawn in each round",
    .init = noloco_init,
    EXO_COMPOSITION_CLASS,
};
