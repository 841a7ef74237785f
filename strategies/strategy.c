/* The strategy of one node: its class, the options that all strategies share, and its life from the
 * config to checkpoints.
 *
 * Owner: the node's compute lane. Read next: node.c (the inner step), ddp.c, diloco.c, sparta.c.
 */
#include <exogym/strategy.h>

#include <assert.h>
#include <float.h>
#include <string.h>

#include <exogym/codec.h>
#include <exogym/data_parallel.h>
#include <exogym/memory.h>

#include "base/config_edit.h"
#include "strategies/builtin.h"

struct exo_strategy {
    const exo_strategy_class *strategy_class;
    exo_optim_spec inner;
    exo_schedule *schedule;
    float max_norm;
    bool alone_at_start; /* nodes draw their own parameters, and node 0 sends none */
    bool started;
    exo_meter *grad_norm; /* NULL: gradients are not clipped */
    exo_clipping clipping;
    void *self; /* (state_size) the state of the class */
};

static const exo_meter_class grad_norm = {.name = "grad_norm",
                                          .unit = "1",
                                          .help = "norm of the gradient before it was clipped",
                                          .kind = EXO_GAUGE};

static exo_status
read_common(exo_strategy *strategy, exo_config *config, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    const exo_optim_spec fallback = c->optimizer ? c->optimizer() : exo_optim_spec_init(EXO_ADAMW);
    const char *name = NULL;
    bool syncs = true;
    /* the caller has read it: this only marks the key as known */
    exo_status st = exo_config_string(config, "name", NULL, &name, err);
    if (st == EXO_OK)
        st = exo_optim_spec_read_groups(config, "optimizer", &fallback, &strategy->inner, err);
    if (st == EXO_OK)
        st = exo_schedule_read(&strategy->schedule, config, "lr_scheduler", err);
    if (st == EXO_OK)
        st = exo_config_float(config, "max_norm", 0, 0, (double)FLT_MAX, &strategy->max_norm, err);
    /* Read only if it is given, so that it is not among the settings of every checkpoint. */
    if (st == EXO_OK && exo_config_get(config, "sync_module_states"))
        st = exo_config_bool(config, "sync_module_states", true, &syncs, err);
    strategy->alone_at_start = !syncs;
    return st;
}

/* Options of the optimizer. If one of them stands beside `optimizer` and is not an option of the
 * strategy, the error names its place. */
static const char *const optimizer_keys[] = {"lr",
                                             "weight_decay",
                                             "betas",
                                             "eps",
                                             "momentum",
                                             "dampening",
                                             "nesterov",
                                             "alpha",
                                             "centered",
                                             "lr_decay",
                                             "amsgrad",
                                             "groups",
                                             "initial_accumulator_value",
                                             "ns_coefficients",
                                             "ns_steps",
                                             "adjust_lr_fn",
                                             "matrices",
                                             "adamw",
                                             NULL};

exo_status
exo_strategy_new(exo_strategy **out, const char *name, exo_config *config, exo_err *err)
{
    const exo_strategy_class *strategy_class = exo_registry_find(&exo_strategy_registry, name);
    if (!strategy_class)
        return exo_registry_unknown(&exo_strategy_registry, name, err);

    exo_status st = EXO_NOMEM;
    exo_strategy *strategy = exo_calloc(1, sizeof *strategy);
    void *self = exo_calloc(1, strategy_class->state_size);
    if (!strategy || !self) {
        exo_free(self);
        exo_fail(err, st, "no memory for the strategy '%s'", name);
        goto done;
    }
    strategy->strategy_class = strategy_class;
    strategy->self = self;

    st = read_common(strategy, config, err);
    if (st == EXO_OK && strategy_class->init)
        st = strategy_class->init(strategy->self, config, err);
    if (st == EXO_OK)
        st = exo_config_check_misplaced(config, optimizer_keys, "optimizer.", err);
    if (st == EXO_OK)
        st = exo_config_finish(config, err);
    if (st != EXO_OK)
        goto done;

    *out = strategy;
    strategy = NULL; /* moved to the caller */
done:
    exo_strategy_free(&strategy);
    return st;
}

exo_status
exo_strategy_parse(exo_strategy **out, const char *name, const char *options, exo_err *err)
{
    exo_config_doc *doc = NULL;
    exo_status st = exo_config_parse(&doc, name, options, err);
    if (st == EXO_OK)
        st = exo_strategy_new(out, name, exo_config_root(doc), err);
    exo_config_free(&doc);
    return st;
}

void
exo_strategy_free(exo_strategy **strategy)
{
    if (!strategy || !*strategy)
        return;
    exo_strategy *s = *strategy;
    if (s->self && s->strategy_class->release)
        s->strategy_class->release(s->self);
    exo_optim_spec_release(&s->inner);
    exo_schedule_free(&s->schedule);
    exo_clipping_release(&s->clipping);
    exo_free(s->self);
    exo_free(s);
    *strategy = NULL;
}

const char *
exo_strategy_name(const exo_strategy *strategy)
{
    return strategy->strategy_class->name;
}

bool
exo_strategy_syncs(const exo_strategy *strategy)
{
    return !strategy->alone_at_start;
}

void
exo_strategy_set_optimizer(exo_strategy *strategy, exo_optim_spec *spec)
{
    assert(!strategy->started && "the optimizer is part of what exo_strategy_start makes");
    exo_optim_spec_release(&strategy->inner);
    strategy->inner = *spec;
    spec->groups = NULL;
    spec->num_groups = 0;
}

exo_status
exo_strategy_check(const exo_strategy *strategy, uint32_t num_nodes, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->check ? c->check(strategy->self, num_nodes, err) : EXO_OK;
}

exo_status
exo_strategy_check_model(const exo_strategy *strategy, const exo_model *model, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    exo_status st = exo_optim_groups_check(&strategy->inner, exo_model_infos(model),
                                           exo_model_num_infos(model), err);
    return st == EXO_OK && c->check_model ? c->check_model(strategy->self, model, err) : st;
}

static bool
is_elementwise(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->is_elementwise ? c->is_elementwise(strategy->self) : c->elementwise;
}

bool
exo_strategy_is_by_parts(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return !is_elementwise(strategy) &&
           (c->is_by_parts ? c->is_by_parts(strategy->self) : c->by_parts);
}

exo_status
exo_strategy_check_parts(const exo_strategy *strategy, const char *what, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    if (is_elementwise(strategy) || exo_strategy_is_by_parts(strategy))
        return EXO_OK;
    if (c->is_by_parts)
        return exo_fail(err, EXO_UNSUPPORTED,
                        "%s does not go with the strategy '%s' if its aggregate or outer_optimizer "
                        "needs whole models: use mean, trimmed_mean or median, and no muon",
                        what, c->name);
    if (c->is_elementwise)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "%s does not go with the strategy '%s' if the strategy in its options looks "
            "at more than each element by itself, or takes some at a time: use another one there",
            what, c->name);
    return exo_fail(err, EXO_UNSUPPORTED, "%s does not go with the strategy '%s' yet: use ddp",
                    what, c->name);
}

static exo_status
gather_slices(void *context, exo_array slices, exo_err *err)
{
    return exo_all_gather(context, slices, err);
}

bool
exo_node_slices(const exo_node *node, exo_optim_slices *out)
{
    const exo_node_part *part = node->part;
    if (!part || !part->slices)
        return false;
    *out = (exo_optim_slices){.models = part->models,
                              .count = exo_group_size(part->slices),
                              .rank = exo_group_rank(part->slices),
                              .gather = gather_slices,
                              .context = part->slices};
    return true;
}

/* Makes the inner optimizer. */
static exo_status
make_optimizer(const exo_strategy *strategy, exo_node *node, exo_err *err)
{
    exo_optim_slices slices;
    return exo_node_slices(node, &slices)
               ? exo_optim_new_sliced(&node->optim, &strategy->inner, &slices, node->params.device,
                                      err)
               : exo_optim_new_grouped(&node->optim, &strategy->inner, node->infos, node->num_infos,
                                       node->params.device, 0, node->numel, err);
}

bool
exo_strategy_is_ordered(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->is_ordered && c->is_ordered(strategy->self);
}

/* Lists the state as a checkpoint does. A class that cannot list it fails before the first step, not at
 * the first checkpoint, which may be hours later. */
static exo_status
check_state(exo_strategy *strategy, exo_node *node, exo_err *err)
{
    exo_state *state = NULL;
    exo_err reason = {0};
    exo_status st = exo_state_new(&state, err);
    if (st != EXO_OK)
        return st;
    exo_strategy_state(strategy, node, state);
    st = exo_state_check(state, &reason);
    exo_state_free(&state);
    return st == EXO_OK ? EXO_OK
                        : exo_fail(err, st, "the strategy '%s': %s", strategy->strategy_class->name,
                                   reason.text);
}

exo_status
exo_strategy_start(exo_strategy *strategy, exo_node *node, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    assert(!strategy->started && "a strategy serves one node, once");
    strategy->started = true;
    node->inner = strategy->inner;
    node->schedule = strategy->schedule;
    node->max_norm = strategy->max_norm;
    node->lr = 0;
    node->grad_norm = 0;
    node->clipping = &strategy->clipping;
    node->optim = NULL;
    exo_status st = exo_strategy_check(strategy, node->num_nodes, err);
    if (st == EXO_OK && strategy->max_norm > 0)
        st = exo_meter_declare(&strategy->grad_norm, node->meters, &grad_norm, err);
    if (st == EXO_OK && !c->keep)
        st = make_optimizer(strategy, node, err);
    if (st == EXO_OK && c->start)
        st = c->start(strategy->self, node, err);
    if (st == EXO_OK && c->state && !c->keep) /* keep allocates what state lists */
        st = check_state(strategy, node, err);
    if (st != EXO_OK)
        exo_optim_free(&node->optim);
    return st;
}

bool
exo_strategy_awaits_gradients(const exo_strategy *strategy)
{
    return strategy->strategy_class->gradient_ready != NULL;
}

exo_status
exo_strategy_gradient_ready(exo_strategy *strategy, exo_node *node, size_t first, size_t count,
                            exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    assert(strategy->started && "exo_strategy_start comes first");
    return c->gradient_ready ? c->gradient_ready(strategy->self, node, first, count, err) : EXO_OK;
}

bool
exo_strategy_keeps_units(const exo_strategy *strategy)
{
    return strategy->strategy_class->keep != NULL;
}

uint64_t
exo_strategy_step_bytes(const exo_strategy *strategy, const exo_model *model)
{
    return strategy->strategy_class->keep ? exo_optim_unit_bytes(&strategy->inner, model) : 0;
}

uint32_t
exo_strategy_open_units(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->open_units ? c->open_units(strategy->self) : 1;
}

bool
exo_strategy_awaits_units(const exo_strategy *strategy)
{
    return strategy->strategy_class->before_use || strategy->strategy_class->after_use;
}

bool
exo_strategy_is_elastic(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->elastic && (!c->apart || c->regroup) && c->elastic(strategy->self);
}

bool
exo_strategy_meets(const exo_strategy *strategy, uint64_t step)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return !c->meets || c->meets(strategy->self, step);
}

exo_status
exo_strategy_keep(exo_strategy *strategy, exo_node *node, size_t unit, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    assert((!c->keep || strategy->started) && "exo_strategy_start comes first");
    return c->keep ? c->keep(strategy->self, node, unit, err) : EXO_OK;
}

exo_status
exo_strategy_before_use(exo_strategy *strategy, exo_node *node, size_t unit, exo_group *group,
                        exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->before_use ? c->before_use(strategy->self, node, unit, group, err) : EXO_OK;
}

exo_status
exo_strategy_after_use(exo_strategy *strategy, exo_node *node, size_t unit, exo_group *group,
                       exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->after_use ? c->after_use(strategy->self, node, unit, group, err) : EXO_OK;
}

exo_status
exo_strategy_step(exo_strategy *strategy, exo_node *node, exo_err *err)
{
    assert(strategy->started && "exo_strategy_start comes first");
    exo_status st = strategy->strategy_class->step(strategy->self, node, err);
    if (!strategy->clipping.unread)
        exo_meter_set(strategy->grad_norm, (double)node->grad_norm);
    return st;
}

exo_status
exo_strategy_read_norm(exo_strategy *strategy, exo_node *node, exo_err *err)
{
    exo_clipping *c = &strategy->clipping;
    if (!c->unread)
        return EXO_OK;
    exo_status st = exo_array_read(c->norm, &node->grad_norm, err);
    if (st == EXO_OK) {
        c->unread = false;
        exo_meter_set(strategy->grad_norm, (double)node->grad_norm);
    }
    return st;
}

bool
exo_strategy_steps_alone(const exo_strategy *strategy, uint32_t num_nodes)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->steps_alone && !c->keep && strategy->max_norm == 0.0f &&
           strategy->inner.kind != EXO_MUON && /* steps whole matrices */
           c->steps_alone(strategy->self, num_nodes);
}

bool
exo_strategy_is_apart(const exo_strategy *strategy)
{
    return strategy->strategy_class->apart;
}

exo_status
exo_strategy_regroup(exo_strategy *strategy, exo_node *node, const uint32_t *ranks, bool joined,
                     exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->regroup ? c->regroup(strategy->self, node, ranks, joined, err) : EXO_OK;
}

uint64_t
exo_strategy_version(const exo_strategy *strategy)
{
    const exo_strategy_class *c = strategy->strategy_class;
    return c->version ? c->version(strategy->self) : 0;
}

bool
exo_strategy_edges(const exo_strategy *strategy, const exo_param_info *infos, size_t num_infos,
                   size_t numel, uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES],
                   size_t *count)
{
    const exo_strategy_class *c = strategy->strategy_class;
    if (!c->edges && !c->model_edges)
        return false;
    memset(out, 0, EXO_STRATEGY_MAX_EDGES * sizeof *out);
    *count = c->model_edges
                 ? c->model_edges(strategy->self, infos, num_infos, numel, num_nodes, out)
                 : c->edges(strategy->self, numel, num_nodes, out);
    if (*count > EXO_STRATEGY_MAX_EDGES) /* exo_strategy_check_edges refuses it */
        *count = EXO_STRATEGY_MAX_EDGES;
    return true;
}

/* What is wrong with a declared exchange; NULL: nothing. */
static const char *
edge_fault(const exo_strategy_edge *edge)
{
    if (!edge->carries)
        return "no `carries`: \"gradients\" or \"parameters\"";
    if (strcmp(edge->carries, "gradients") != 0 && strcmp(edge->carries, "parameters") != 0)
        return "another `carries` than \"gradients\" and \"parameters\"";
    if (!edge->route)
        return "no `route`, such as \"all_reduce\"";
    if (!(edge->elements >= 0 && edge->elements <= DBL_MAX))
        return "`elements` that are no number from 0 on";
    return edge->every == 0 ? "`every` 0: the steps from one round to the next" : NULL;
}

/* Checks an exchange that `function` of the class has declared. */
static exo_status
check_edge(const exo_strategy_class *c, const char *function, const exo_strategy_edge *edge,
           exo_err *err)
{
    exo_codec *codec = NULL;
    if (edge_fault(edge))
        return exo_fail(err, EXO_INVAL, "the strategy '%s': %s declares an exchange with %s",
                        c->name, function, edge_fault(edge));
    exo_status st = exo_codec_parse(&codec, edge->codec, err);
    exo_codec_free(&codec);
    return st == EXO_OK ? EXO_OK
                        : exo_fail_in(err, st,
                                      "the strategy '%s': %s declares an exchange of %s with "
                                      "a wrong codec",
                                      c->name, function, edge->carries);
}

exo_status
exo_strategy_check_edges(const exo_strategy *strategy, const exo_param_info *infos,
                         size_t num_infos, size_t numel, uint32_t num_nodes, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    const char *function = c->model_edges ? "model_edges" : "edges";
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES] = {{0}};
    size_t count = c->model_edges
                       ? c->model_edges(strategy->self, infos, num_infos, numel, num_nodes, edges)
                   : c->edges ? c->edges(strategy->self, numel, num_nodes, edges)
                              : 0;
    if (count > EXO_STRATEGY_MAX_EDGES)
        return exo_fail(err, EXO_INVAL,
                        "the strategy '%s': %s declares %zu exchanges of at most %d", c->name,
                        function, count, EXO_STRATEGY_MAX_EDGES);
    exo_status st = EXO_OK;
    for (size_t i = 0; st == EXO_OK && i < count; i++)
        st = check_edge(c, function, &edges[i], err);
    return st;
}

void
exo_strategy_leave(exo_strategy *strategy)
{
    if (strategy->strategy_class->leave)
        strategy->strategy_class->leave(strategy->self);
}

void
exo_strategy_state(exo_strategy *strategy, exo_node *node, exo_state *state)
{
    if (node->optim)
        exo_optim_state(node->optim, "optim", state);
    if (strategy->strategy_class->state)
        strategy->strategy_class->state(strategy->self, state);
}

exo_status
exo_strategy_check_whole(const exo_strategy *strategy, exo_err *err)
{
    const exo_strategy_class *c = strategy->strategy_class;
    if (!c->to_whole || !c->from_whole)
        return exo_fail(
            err, EXO_UNSUPPORTED,
            "the nodes of the strategy '%s' have states of their own, which another number of "
            "nodes cannot continue; checkpoints of ddp and fsdp can be converted",
            c->name);
    return c->check_whole ? c->check_whole(strategy->self, err) : EXO_OK;
}

exo_status
exo_strategy_to_whole(exo_strategy *strategy, exo_node *node, exo_whole *whole, exo_err *err)
{
    exo_status st = exo_strategy_check_whole(strategy, err);
    assert(strategy->started && "exo_strategy_start comes first");
    return st == EXO_OK ? strategy->strategy_class->to_whole(strategy->self, node, whole, err) : st;
}

exo_status
exo_strategy_from_whole(exo_strategy *strategy, exo_node *node, const exo_whole *whole,
                        exo_err *err)
{
    exo_status st = exo_strategy_check_whole(strategy, err);
    assert(strategy->started && "exo_strategy_start comes first");
    return st == EXO_OK ? strategy->strategy_class->from_whole(strategy->self, node, whole, err)
                        : st;
}
