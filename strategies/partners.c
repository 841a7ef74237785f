/* Who takes part in a round of an exchange, and how they share its work. No state. Read next:
 * exchange.c. */
#include "strategies/exchange.h"

bool
exo_param_exchange_flies(const exo_param_exchange *e)
{
    return e->codec || e->apply == EXO_APPLY_EAGER ||
           (e->delay > 0 && e->aggregation.rule == EXO_AGGREGATE_MEAN);
}

void
exo_param_exchange_step_outer(const exo_param_exchange *e, const exo_node *node, size_t part,
                              exo_array outer, exo_array gradient)
{
    exo_optim *optim = e->parts[part].optim;
    if (e->momentum)
        exo_optim_set_momentum_factor(
            optim, (double)exo_schedule_factor(e->momentum, node->step, node->max_steps));
    exo_optim_step(optim, outer, gradient, e->outer_spec.lr);
}

/* Those of an island cannot: they have come from different outer parameters. A round in the
 * background has one collective, so each node gets all of the mean. */
bool
exo_param_exchange_shares(const exo_param_exchange *e)
{
    return !e->whole && e->island_size == 0 && !exo_param_exchange_flies(e);
}

/* The members of the node's island, in e->ranks. */
static uint32_t
find_island(const exo_param_exchange *e, const exo_node *node, uint64_t round)
{
    return exo_island(e->seed, round, node->num_nodes, (uint32_t)e->island_size, node->rank,
                      e->ranks);
}

bool
exo_param_exchange_alone(const exo_param_exchange *e, const exo_node *node, uint64_t round)
{
    return e->island_size > 0 && find_island(e, node, round) == 1;
}

exo_status
exo_param_exchange_meet(const exo_param_exchange *e, const exo_node *node, uint64_t round,
                        exo_group **out, exo_err *err)
{
    *out = node->group;
    if (e->island_size == 0)
        return EXO_OK;
    *out = NULL;
    uint32_t count = find_island(e, node, round);
    /* a mean in place over one node changes nothing; it is a call like any other in the ledger */
    bool idle = e->apply == EXO_APPLY_OUTER || e->num_slots > 0;
    return count == 1 && idle ? EXO_OK : exo_group_among(out, node->group, e->ranks, count, err);
}
