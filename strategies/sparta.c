/* SPARTA (sparse parameter averaging, OpenReview stFPf3gzq1): after the inner step, a small part of
 * the coordinates is replaced by its mean over the nodes. The choice of coordinates is a function
 * of (seed, round), which every node computes by itself (select.h).
 *
 * With a delay, a round averages the values of `delay` steps ago, so that a real network has this
 * time to carry them. The mean overwrites the changes of a coordinate since then. The values wait
 * in packed form, one slot for each round in flight.
 *
 * Traffic of a node: 2 p Psi (N - 1) / N elements in a round, with a round every `interval` steps.
 * The selector `random` chooses p Psi coordinates on average.
 *
 * Owner of the state: the node's compute lane. Read next: exchange.c (a round).
 */
#include "strategies/exchange.h"

exo_status
exo_param_exchange_read_sparta(exo_param_exchange *out, exo_config *config, const char *interval,
                               bool allow_zero, exo_err *err)
{
    exo_status st = exo_config_u64(config, interval, 1, 1, UINT64_MAX, &out->rounds.interval, err);
    if (st == EXO_OK)
        st = exo_param_exchange_read_delay(out, config, 0, err);
    return st == EXO_OK ? exo_param_exchange_read_selector(out, config, "selector", allow_zero, err)
                        : st;
}

static exo_status
sparta_init(void *self, exo_config *config, exo_err *err)
{
    exo_param_exchange *mean = exo_composition_add(self, "sparta", false);
    return exo_param_exchange_read_sparta(mean, config, "interval", false, err);
}

const exo_strategy_class exo_sparta_class = {
    .name = "sparta",
    .help = "average a small random part of the parameters after every step",
    .init = sparta_init,
    EXO_COMPOSITION_CLASS,
};
