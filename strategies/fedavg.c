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
 * Owner of the state: the node's compute lane. Read next: island.c, node.c.
 */
#include "strategies/builtin.h"

#include <exogym/memory.h>

#include "base/config_edit.h"

struct fedavg {
    exo_rounds rounds;
    uint64_t island_size; /* 0: all nodes */
    char *place;          /* place of island_size in the config, for `check`; owned */
    uint32_t *ranks;      /* (num_nodes) memory for the ranks of an island; owned */
    exo_meter *rounds_done;
};

static exo_status
fedavg_init(void *self, exo_config *config, exo_err *err)
{
    struct fedavg *f = self;
    char place[EXO_ERR_TEXT];
    exo_status st = exo_rounds_read(config, 1, &f->rounds, err);
    if (st == EXO_OK)
        st = exo_config_u64(config, "island_size", 0, 2, UINT32_MAX, &f->island_size, err);
    if (st != EXO_OK || f->island_size == 0)
        return st;
    exo_config_where(exo_config_get(config, "island_size"), place, sizeof place);
    f->place = exo_strdup(place);
    return f->place ? EXO_OK : exo_fail(err, EXO_NOMEM, "no memory for the strategy 'fedavg'");
}

static exo_status
fedavg_check(const void *self, uint32_t num_nodes, exo_err *err)
{
    const struct fedavg *f = self;
    if (f->island_size <= num_nodes)
        return EXO_OK;
    return exo_fail(err, EXO_INVAL,
                    "%.300s: island_size must be at most %u, the number of nodes, got %llu; leave "
                    "it out for all of them",
                    f->place, num_nodes, (unsigned long long)f->island_size);
}

static exo_status
fedavg_start(void *self, exo_node *node, exo_err *err)
{
    struct fedavg *f = self;
    exo_status st = exo_rounds_meter(&f->rounds_done, node, err);
    if (st != EXO_OK || f->island_size == 0)
        return st;
    f->ranks = exo_calloc(node->num_nodes, sizeof *f->ranks);
    return f->ranks
               ? EXO_OK
               : exo_fail(err, EXO_NOMEM, "no memory for the islands of %u nodes", node->num_nodes);
}

static exo_status
average_island(const struct fedavg *f, exo_node *node, exo_err *err)
{
    exo_group *island = NULL;
    uint32_t count = exo_island(node->seed, node->step / f->rounds.interval, node->num_nodes,
                                (uint32_t)f->island_size, node->rank, f->ranks);
    exo_status st = exo_group_among(&island, node->group, f->ranks, count, err);
    if (st == EXO_OK)
        st = exo_all_reduce(island, node->params, EXO_MEAN, err);
    exo_group_close(&island);
    return st;
}

static exo_status
fedavg_step(void *self, exo_node *node, exo_err *err)
{
    const struct fedavg *f = self;
    exo_status st = exo_node_inner_step(node, err);
    if (st != EXO_OK || !exo_rounds_due(&f->rounds, node->step))
        return st;
    exo_meter_add(f->rounds_done, 1);
    if (f->island_size > 0)
        return average_island(f, node, err);
    return exo_all_reduce(node->group, node->params, EXO_MEAN, err);
}

static void
fedavg_release(void *self)
{
    struct fedavg *f = self;
    exo_free(f->place);
    exo_free(f->ranks);
}

static size_t
fedavg_edges(const void *self, size_t numel, uint32_t num_nodes,
             exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct fedavg *f = self;
    out[0] =
        (exo_strategy_edge){.carries = "parameters",
                            .route = "all_reduce",
                            .elements = (double)numel,
                            .every = f->rounds.interval,
                            .members = f->island_size < num_nodes ? (uint32_t)f->island_size : 0};
    return 1;
}

const exo_strategy_class exo_fedavg_class = {
    .name = "fedavg",
    .help = "H local steps, then the mean of the parameters, of all nodes or within islands",
    .state_size = sizeof(struct fedavg),
    .init = fedavg_init,
    .start = fedavg_start,
    .step = fedavg_step,
    .steps_alone = exo_always_steps_alone,
    .release = fedavg_release,
    .edges = fedavg_edges,
    .check = fedavg_check,
};
