/* Streaming DiLoCo (Douillard et al., 2025, arXiv:2501.18512): DiLoCo whose messages are small, far
 * apart, and on their way while the nodes compute.
 *
 *     fragments   the model's units are dealt out to P fragments, each of which has a round every H
 *                 steps, at its own offset
 *     delay       a round that begins after step t ends after step t + tau
 *     codec       nodes send pseudo-gradients in 4 bits, which are added up in fp32
 *     alpha       theta = alpha theta + (1 - alpha) theta_outer, so that a part of the changes of
 *                 the tau steps stays
 *
 * With one fragment, no delay, alpha 0 and codec raw it is diloco, to the bit.
 *
 * Traffic of a node in H steps: S (N - 1) bytes, with S the sum of its fragments' encodings; raw: 2
 * Psi (N - 1) / N elements.
 *
 * Owner of the state: the node's compute lane. Read next: fragments.c, background.c, exchange.c.
 */
#include "strategies/exchange.h"

static exo_status
streaming_init(void *self, exo_config *config, exo_err *err)
{
    exo_param_exchange *e = exo_composition_add(self, "streaming_diloco", false);
    exo_optim_spec nesterov = exo_nesterov();
    nesterov.lr = 0.4f;
    exo_status st = exo_rounds_read(config, 100, &e->rounds, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_fragments(e, config, "fragments", err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_delay(e, config, 1, err);
    if (st == EXO_OK)
        st = exo_config_float(config, "alpha", e->delay > 0 ? 0.5f : 0, 0, 1, &e->alpha, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_codec(e, config, "e3m0", 0, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_outer(e, config, "outer_optimizer", &nesterov, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_momentum(e, config, "outer_momentum", err);
    return st == EXO_OK ? exo_param_exchange_check_pieces(e, config, err) : st;
}

const exo_strategy_class exo_streaming_diloco_class = {
    .name = "streaming_diloco",
    .help = "diloco in fragments of the model, in 4 bits, while the nodes compute",
    .init = streaming_init,
    EXO_COMPOSITION_CLASS,
};
