/* A plugin with the strategy `sharded`, for tests of units: fully sharded data parallelism without
 * any overlap. Between steps a node keeps its shard of each unit's parameters, gradients and
 * optimizer state, and nothing else; the strategy fails if it finds more. Its numbers are those of
 * ddp, to the bit.
 *
 * Traffic of a node and step: (N - 1) / N elements of each unit for each pass that uses the unit,
 * and again for its gradients.
 *
 * A node's thread owns its state. Read next: include/exogym/shards.h; docs/strategies.md. */
#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>
#include <exogym/strategy.h>

struct sharded {
    exo_shards params, grads;
    exo_optim **optims; /* (num_units) for this node's shard of each unit */
    /* (num_units) elements whose gradients this step's backward has not yet given */
    size_t *left;
    size_t num_units;
    exo_meter *gathered;
};

static const exo_meter_class gathered = {
    .name = "gathered", .unit = "units", .help = "units gathered within steps"};

static exo_status
start(void *self, exo_node *node, exo_err *err)
{
    struct sharded *s = self;
    exo_device *device = node->params.device;
    if (node->max_norm > 0)
        return exo_fail(err, EXO_INVAL,
                        "sharded: max_norm: the norm of shards is not that of all gradients");
    exo_status st = exo_shards_init(&s->params, node->units, node->num_units, node->num_nodes,
                                    node->rank, device, err);
    if (st == EXO_OK)
        st = exo_shards_init(&s->grads, node->units, node->num_units, node->num_nodes, node->rank,
                             device, err);
    if (st != EXO_OK)
        return st;
    s->num_units = node->num_units;
    s->optims = exo_calloc(s->num_units, sizeof(exo_optim *));
    s->left = exo_calloc(s->num_units, sizeof *s->left);
    if (!s->optims || !s->left)
        return exo_fail(err, EXO_NOMEM, "sharded: no memory for %zu units", s->num_units);
    for (size_t u = 0; st == EXO_OK && u < s->num_units; u++) {
        s->left[u] = node->units[u].count;
        st = exo_optim_new_grouped(&s->optims[u], &node->inner, node->infos, node->num_infos,
                                   device, exo_shards_first(&s->params, u),
                                   exo_shards_of(&s->params, u).count, err);
    }
    return st == EXO_OK ? exo_meter_declare(&s->gathered, node->meters, &gathered, err) : st;
}

static exo_status
keep(void *self, exo_node *node, size_t unit, exo_err *err)
{
    struct sharded *s = self;
    (void)err;
    exo_shards_keep(&s->params, unit, exo_unit_values(node->model, unit));
    return EXO_OK;
}

static exo_status
before_use(void *self, exo_node *node, size_t unit, exo_group *group, exo_err *err)
{
    struct sharded *s = self;
    exo_array whole;
    if (exo_unit_values(node->model, unit).data)
        return exo_fail(err, EXO_FAILED, "sharded: the unit '%s' is there before it is used",
                        node->units[unit].name);
    exo_status st = exo_unit_open(node->model, unit, &whole, err);
    if (group == node->group)
        exo_meter_add(s->gathered, 1);
    return st == EXO_OK ? exo_shards_gather(&s->params, unit, whole, group, err) : st;
}

static exo_status
after_use(void *self, exo_node *node, size_t unit, exo_group *group, exo_err *err)
{
    (void)self;
    (void)group;
    (void)err;
    exo_unit_close(node->model, unit);
    return EXO_OK;
}

static size_t
unit_of(const exo_node *node, size_t element)
{
    size_t unit = 0;
    while (element - node->units[unit].first >= node->units[unit].count)
        unit++;
    return unit;
}

static exo_status
gradient_ready(void *self, exo_node *node, size_t first, size_t count, exo_err *err)
{
    struct sharded *s = self;
    size_t unit = unit_of(node, first);
    exo_array grads;
    s->left[unit] -= count;
    if (s->left[unit] > 0)
        return EXO_OK;
    s->left[unit] = node->units[unit].count;
    exo_status st = exo_unit_open_grads(node->model, unit, &grads, err);
    if (st == EXO_OK)
        st = exo_reduce_scatter(node->group, grads, EXO_MEAN, err);
    if (st == EXO_OK)
        exo_shards_keep(&s->grads, unit, grads);
    exo_unit_close_grads(node->model, unit);
    return st;
}

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    struct sharded *s = self;
    float rate = exo_node_rate(node);
    if (exo_params_open_bytes(node->model) > 0)
        return exo_fail(err, EXO_FAILED, "sharded: %zu bytes of units are there after backward",
                        exo_params_open_bytes(node->model));
    for (size_t u = 0; u < s->num_units; u++)
        exo_optim_step(s->optims[u], exo_shards_of(&s->params, u), exo_shards_of(&s->grads, u),
                       rate);
    return EXO_OK;
}

static void
state(void *self, exo_state *state)
{
    struct sharded *s = self;
    exo_state_add_array(state, "sharded.params", s->params.all);
    for (size_t u = 0; u < s->num_units; u++) {
        char name[64];
        snprintf(name, sizeof name, "sharded.optim.%zu", u);
        exo_optim_state(s->optims[u], name, state);
    }
}

static void
release(void *self)
{
    struct sharded *s = self;
    for (size_t u = 0; s->optims && u < s->num_units; u++)
        exo_optim_free(&s->optims[u]);
    exo_free(s->optims);
    exo_free(s->left);
    exo_shards_release(&s->params);
    exo_shards_release(&s->grads);
}

static const exo_strategy_class sharded = {.name = "sharded",
                                           .help =
                                               "every node keeps its shard of each unit, for tests",
                                           .state_size = sizeof(struct sharded),
                                           .start = start,
                                           .step = step,
                                           .gradient_ready = gradient_ready,
                                           .keep = keep,
                                           .before_use = before_use,
                                           .after_use = after_use,
                                           .state = state,
                                           .release = release};

EXO_PLUGIN
{
    return exo_strategy_register(&sharded, err);
}
