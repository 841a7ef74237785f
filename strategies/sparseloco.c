/* SparseLoCo (Sarfi et al., 2025, arXiv:2508.15706): DiLoCo that sends a few of the changes, and the
 * rest of them later:
 *
 *     e           = 0.95 e + (theta_outer - theta)
 *     sent        = the 64 largest of each 4096 values of e, in 2 bits, with 12 bits for the index
 *     e           = e - sent
 *     theta_outer = theta_outer - mean over nodes of sent,  theta = theta_outer
 *
 * What is not sent keeps adding up, which has the effect of an outer momentum. A chunk is 4096
 * consecutive parameters; the paper has chunks of 64 x 64 in matrices.
 *
 * Traffic of a node in a round: S (N - 1) bytes, with S the size of an encoding.
 *
 * Owner of the state: the node's compute lane. Read next: background.c, exchange.c, docs/codecs.md.
 */
#include "strategies/exchange.h"

static exo_status
sparseloco_init(void *self, exo_config *config, exo_err *err)
{
    static const char *const codec =
        "[{name: topk, k: 64, block: 4096, error_feedback: false}, bins]";
    exo_param_exchange *e = exo_composition_add(self, "sparseloco", false);
    exo_optim_spec plain = exo_optim_spec_init(EXO_SGD);
    plain.lr = 1;
    exo_status st = exo_rounds_read(config, 30, &e->rounds, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_codec(e, config, codec, 0.95f, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_outer(e, config, "outer_optimizer", &plain, err);
    return st == EXO_OK ? exo_param_exchange_check_pieces(e, config, err) : st;
}

const exo_strategy_class exo_sparseloco_class = {
    .name = "sparseloco",
    .help = "diloco that sends the largest changes in 2 bits, and adds the rest to the next ones",
    .init = sparseloco_init,
    EXO_COMPOSITION_CLASS,
};
