/* DiLoCo (Douillard et al., 2023, arXiv:2311.08105): H inner steps on each node alone, then one
 * outer step for all nodes. MuLoCo (Therien et al., 2025, arXiv:2505.23725) is DiLoCo with other
 * defaults: Muon takes the inner steps, and H is 30.
 *
 *     delta       = theta_outer - mean over nodes of theta       the pseudo-gradient
 *     theta_outer = outer optimizer(theta_outer, delta)
 *     theta       = theta_outer
 *
 * Each node keeps theta_outer and the outer optimizer's state for its own shard only. A
 * reduce-scatter gives each node the mean of its shard, and an all-gather distributes the new
 * shards. After a round the parameters of all nodes are equal to the bit.
 *
 * Traffic of a node in a round: 2 Psi (N - 1) / N elements. A last round of fewer than H steps
 * sends nothing.
 *
 * Owner of the state: the node's compute lane. Read next: node.c (the inner step, the rounds).
 */
#include "strategies/builtin.h"

struct diloco {
    exo_rounds rounds;
    exo_optim_spec outer_spec;
    size_t first, length; /* this node's shard of the parameters */
    exo_array outer;      /* (length) theta_outer: a copy, never the model's memory */
    exo_optim *outer_optim;
    exo_meter *rounds_done;
};

static exo_status
init(struct diloco *d, uint64_t interval, exo_config *config, exo_err *err)
{
    exo_optim_spec nesterov = exo_optim_spec_init(EXO_SGD);
    nesterov.lr = 0.7f;
    nesterov.momentum = 0.9;
    nesterov.nesterov = true;
    exo_status st = exo_rounds_read(config, interval, &d->rounds, err);
    return st == EXO_OK
               ? exo_optim_spec_read(config, "outer_optimizer", &nesterov, &d->outer_spec, err)
               : st;
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

static exo_status
diloco_start(void *self, exo_node *node, exo_err *err)
{
    struct diloco *d = self;
    exo_status st = exo_rounds_meter(&d->rounds_done, node, err);
    if (st != EXO_OK)
        return st;
    exo_shard(node->numel, node->num_nodes, node->rank, &d->first, &d->length);
    st = exo_array_init(&d->outer, node->params.device, EXO_F32, d->length, err);
    if (st != EXO_OK)
        return exo_fail_in(err, st, "diloco: the outer parameters");
    exo_vec_copy(d->outer, exo_array_part(node->params, d->first, d->length));
    return exo_optim_new(&d->outer_optim, &d->outer_spec, d->outer.device, d->length, err);
}

static exo_status
outer_step(struct diloco *d, exo_node *node, exo_err *err)
{
    exo_status st = exo_reduce_scatter(node->group, node->params, EXO_MEAN, err);
    if (st != EXO_OK)
        return st;
    /* the shard holds the mean, and then the pseudo-gradient */
    const exo_array shard = exo_array_part(node->params, d->first, d->length);
    exo_vec_sub(shard, d->outer, shard);
    exo_optim_step(d->outer_optim, d->outer, shard, d->outer_spec.lr);
    exo_vec_copy(shard, d->outer);
    return exo_all_gather(node->group, node->params, err);
}

static exo_status
diloco_step(void *self, exo_node *node, exo_err *err)
{
    struct diloco *d = self;
    exo_status st = exo_node_inner_step(node, err);
    if (st != EXO_OK || !exo_rounds_due(&d->rounds, node->step))
        return st;
    exo_meter_add(d->rounds_done, 1);
    return outer_step(d, node, err);
}

static void
diloco_state(void *self, exo_state *state)
{
    struct diloco *d = self;
    exo_state_add_array(state, "diloco.outer", d->outer);
    exo_optim_state(d->outer_optim, "diloco.optim", state);
}

static void
diloco_release(void *self)
{
    struct diloco *d = self;
    exo_array_release(&d->outer);
    exo_optim_free(&d->outer_optim);
}

/* The reduce-scatter and the all-gather together are an all-reduce. */
static size_t
diloco_edges(const void *self, size_t numel, uint32_t num_nodes,
             exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const struct diloco *d = self;
    (void)num_nodes;
    out[0] = (exo_strategy_edge){.carries = "parameters",
                                 .route = "all_reduce",
                                 .elements = (double)numel,
                                 .every = d->rounds.interval};
    return 1;
}

const exo_strategy_class exo_diloco_class = {
    .name = "diloco",
    .help = "H local steps, then an outer step on the mean change of the parameters",
    .state_size = sizeof(struct diloco),
    .init = diloco_init,
    .start = diloco_start,
    .step = diloco_step,
    .steps_alone = exo_always_steps_alone,
    .state = diloco_state,
    .release = diloco_release,
    .edges = diloco_edges,
};

const exo_strategy_class exo_muloco_class = {
    .name = "muloco",
    .help = "diloco whose inner optimizer is muon",
    .state_size = sizeof(struct diloco),
    .init = muloco_init,
    .start = diloco_start,
    .step = diloco_step,
    .steps_alone = exo_always_steps_alone,
    .state = diloco_state,
    .release = diloco_release,
    .edges = diloco_edges,
    .optimizer = muloco_optimizer,
};
