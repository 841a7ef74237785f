/* Wrapped models: see exogym/data_parallel.h. A strategy, its node and a copy of the model in the
 * caller's loop, where a run has actors/replica.c. Owner: the thread of the group. Read next:
 * strategy.c, fsdp.c. */
#include <exogym/data_parallel.h>

#include <stdio.h>

#include <exogym/memory.h>
#include <exogym/tensor.h>

#include "base/config_edit.h"

struct exo_parallel {
    exo_model *model; /* held */
    exo_strategy *strategy;
    exo_params *params;
    exo_tape *tape;
    exo_group *side; /* the group's members once more, for what is no part of a step; NULL: alone */
    exo_node node;   /* node.group is the caller's; NULL: alone */
    uint64_t passes; /* batches of the steps until now: each has dropout masks of its own */
    bool by_units;
};

/* --- Settings --------------------------------------------------------------------------------- */

static const char *const shardings[] = {"hybrid_shard", "full_shard", "shard_grad_op", "no_shard",
                                        "hybrid_shard_zero2"};

exo_parallel_config
exo_parallel_config_init(void)
{
    return (exo_parallel_config){.sharding_strategy = EXO_HYBRID_SHARD, .sync_module_states = true};
}

static exo_status
check_config(const exo_parallel_config *c, exo_err *err)
{
    if ((unsigned)c->sharding_strategy >= sizeof shardings / sizeof *shardings)
        return exo_fail(err, EXO_INVAL, "there is no sharding_strategy %d",
                        (int)c->sharding_strategy);
    if (c->use_fsdp)
        return EXO_OK;
    const char *lone = c->cpu_offload                             ? "cpu_offload"
                       : c->sharding_strategy != EXO_HYBRID_SHARD ? "sharding_strategy"
                       : c->group_size > 0                        ? "group_size"
                                                                  : NULL;
    return lone ? exo_fail(err, EXO_INVAL, "%s is a setting of fsdp: set use_fsdp, or leave it out",
                           lone)
                : EXO_OK;
}

static exo_status
put(exo_config_doc *doc, const char *key, const char *value, exo_err *err)
{
    exo_config *root = exo_config_root(doc);
    if (exo_config_has(root, key))
        return exo_fail(err, EXO_INVAL, "%s is given twice: as a setting, and among the options",
                        key);
    return exo_config_graft_text(root, key, value, err);
}

exo_status
exo_parallel_config_strategy(const exo_parallel_config *config, const char *options,
                             const char **name, exo_config_doc **doc, exo_err *err)
{
    char size[24];
    *doc = NULL;
    exo_status st = check_config(config, err);
    if (st == EXO_OK)
        st = exo_config_parse(doc, "options", options && *options ? options : "{}", err);
    if (st == EXO_OK && !exo_config_is_map(exo_config_root(*doc)))
        st = exo_fail(err, EXO_INVAL, "options: expected a mapping such as {max_norm: 1}");
    *name = config->use_fsdp ? "fsdp" : "ddp";
    snprintf(size, sizeof size, "%u", config->group_size);
    if (st == EXO_OK && !config->sync_module_states)
        st = put(*doc, "sync_module_states", "false", err);
    if (st == EXO_OK && config->use_fsdp)
        st = put(*doc, "sharding_strategy", shardings[config->sharding_strategy], err);
    if (st == EXO_OK && config->group_size > 0)
        st = put(*doc, "group_size", size, err);
    if (st == EXO_OK && config->cpu_offload)
        st = put(*doc, "cpu_offload", "true", err);
    if (st != EXO_OK)
        exo_config_free(doc);
    return st;
}

/* --- Wrapping --------------------------------------------------------------------------------- */

static exo_status
make_strategy(exo_parallel *p, const exo_parallel_config *config, const char *options, exo_err *err)
{
    const char *name;
    exo_config_doc *doc = NULL;
    exo_status st = exo_parallel_config_strategy(config, options, &name, &doc, err);
    if (st == EXO_OK) /* alone, too, so that wrong options are found */
        st = exo_strategy_new(&p->strategy, name, exo_config_root(doc), err);
    if (st == EXO_OK)
        st = exo_strategy_check(p->strategy, p->node.num_nodes, err);
    if (st == EXO_OK && p->node.num_nodes == 1 && config->use_fsdp) {
        exo_config *root = exo_config_root(doc); /* alone, the model stays as it is */
        static const char *const own[] = {"sharding_strategy", "group_size", "cpu_offload",
                                          "prefetch", "across"};
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            exo_config_remove(root, own[i]);
        exo_strategy_free(&p->strategy);
        st = exo_strategy_new(&p->strategy, "ddp", root, err);
    }
    exo_config_free(&doc);
    return st == EXO_OK ? exo_strategy_check_model(p->strategy, p->model, err) : st;
}

/* The members once more, for what is no part of a step. */
static exo_status
open_side(exo_parallel *p, exo_group *group, exo_err *err)
{
    const uint32_t size = exo_group_size(group);
    uint32_t *ranks = exo_calloc(size, sizeof *ranks);
    if (!ranks)
        return exo_fail(err, EXO_NOMEM, "no memory for a group of %u members", size);
    for (uint32_t i = 0; i < size; i++)
        ranks[i] = i;
    exo_status st = exo_group_among(&p->side, group, ranks, size, err);
    exo_free(ranks);
    return st;
}

static void
show(exo_parallel *p)
{
    exo_params *params = p->params;
    const size_t statistics = exo_params_buffer_numel(params) - exo_params_frozen_numel(params);
    exo_node *n = &p->node;
    n->numel = exo_params_numel(params);
    n->params = exo_params_values_array(params);
    n->grads = exo_params_grads_array(params);
    n->buffers = exo_array_part(exo_params_buffers_array(params), 0, statistics);
    n->buffer_numel = statistics;
    n->model = params;
    n->infos = exo_model_infos(p->model);
    n->num_infos = exo_model_num_infos(p->model);
    n->units = exo_model_units(p->model);
    n->num_units = exo_model_num_units(p->model);
}

/* Gives a unit its first values, those of member 0 or the member's own, and the strategy its part. */
static exo_status
set_unit(exo_parallel *p, size_t unit, exo_err *err)
{
    const bool syncs = p->side && exo_strategy_syncs(p->strategy);
    exo_array values;
    exo_status st = exo_unit_open(p->params, unit, &values, err);
    if (st == EXO_OK && p->by_units && (p->node.rank == 0 || !syncs))
        st = exo_unit_draw(p->model, p->params, unit, p->node.seed, err);
    if (st == EXO_OK && syncs)
        st = exo_broadcast(p->side, values, 0, err);
    if (st == EXO_OK)
        st = exo_strategy_keep(p->strategy, &p->node, unit, err);
    exo_unit_close(p->params, unit);
    return st;
}

static exo_status
set_units(exo_parallel *p, exo_err *err)
{
    exo_status st = EXO_OK;
    for (size_t u = 0; st == EXO_OK && u < p->node.num_units; u++)
        st = set_unit(p, u, err);
    if (st == EXO_OK && p->side && exo_strategy_syncs(p->strategy))
        st = exo_broadcast(p->side, exo_params_buffers_array(p->params), 0, err);
    return st;
}

static exo_status
start(exo_parallel *p, exo_err *err)
{
    exo_status st = exo_tape_new(&p->tape, err);
    p->by_units = exo_strategy_keeps_units(p->strategy);
    if (st == EXO_OK)
        st = p->by_units ? exo_model_by_units(p->model, p->node.seed, &p->params, err)
                         : exo_model_params(p->model, p->node.seed, &p->params, err);
    if (st != EXO_OK)
        return st;
    show(p);
    if (!p->by_units) /* these start with the parameters */
        st = set_units(p, err);
    if (st == EXO_OK)
        st = exo_strategy_start(p->strategy, &p->node, err);
    return st == EXO_OK && p->by_units ? set_units(p, err) : st;
}

exo_status
exo_parallel_wrap(exo_parallel **out, exo_model *model, const exo_parallel_config *config,
                  const char *options, exo_group *group, uint64_t seed, exo_err *err)
{
    const bool alone = !group || exo_group_size(group) == 1;
    exo_parallel *p = NULL;
    *out = NULL;
    if (!exo_model_objective(model))
        return exo_fail(err, EXO_UNSUPPORTED, "the model '%s' has no objective to train it for",
                        exo_model_name(model));
    if (!(p = exo_calloc(1, sizeof *p)))
        return exo_fail(err, EXO_NOMEM, "no memory for a wrapped model");
    p->model = exo_model_hold(model);
    p->node = (exo_node){.rank = alone ? 0 : exo_group_rank(group),
                         .num_nodes = alone ? 1 : exo_group_size(group),
                         .max_steps = UINT64_MAX,
                         .seed = seed,
                         .group = alone ? NULL : group};
    exo_status st = make_strategy(p, config, options, err);
    if (st == EXO_OK && !alone)
        st = open_side(p, group, err);
    if (st == EXO_OK)
        st = start(p, err);
    if (st == EXO_OK)
        *out = p;
    else
        exo_parallel_free(&p);
    return st;
}

void
exo_parallel_free(exo_parallel **parallel)
{
    exo_parallel *p = *parallel;
    *parallel = NULL;
    if (!p)
        return;
    exo_optim_free(&p->node.optim);
    if (p->strategy)
        exo_strategy_leave(p->strategy);
    exo_group_close(&p->side);
    exo_tape_free(&p->tape);
    exo_strategy_free(&p->strategy);
    exo_params_free(&p->params);
    exo_model_drop(&p->model);
    exo_free(p);
}

const char *
exo_parallel_strategy(const exo_parallel *parallel)
{
    return parallel->side ? exo_strategy_name(parallel->strategy) : NULL;
}

exo_params *
exo_parallel_params(exo_parallel *parallel)
{
    return parallel->params;
}

/* --- Passes ----------------------------------------------------------------------------------- */

static exo_status
before_use(void *context, size_t unit, exo_err *err)
{
    exo_parallel *p = context;
    return exo_strategy_before_use(p->strategy, &p->node, unit, p->node.group, err);
}

static exo_status
after_use(void *context, size_t unit, exo_err *err)
{
    exo_parallel *p = context;
    return exo_strategy_after_use(p->strategy, &p->node, unit, p->node.group, err);
}

static exo_status
before_look(void *context, size_t unit, exo_err *err)
{
    exo_parallel *p = context;
    return exo_strategy_before_use(p->strategy, &p->node, unit, p->side, err);
}

static exo_status
after_look(void *context, size_t unit, exo_err *err)
{
    exo_parallel *p = context;
    return exo_strategy_after_use(p->strategy, &p->node, unit, p->side, err);
}

static exo_status
gradient_ready(void *context, size_t first, size_t count, exo_err *err)
{
    exo_parallel *p = context;
    return exo_strategy_gradient_ready(p->strategy, &p->node, first, count, err);
}

static exo_status
loss_of(exo_parallel *p, const exo_batch *batch, const exo_pass *pass, exo_tensor **out,
        exo_err *err)
{
    exo_tape_begin(p->tape, p->params, pass);
    *out = exo_model_loss(p->model, p->tape, batch);
    if (*out)
        return EXO_OK;
    exo_status st = exo_tape_error(p->tape, err);
    return st != EXO_OK ? st : exo_fail(err, EXO_FAILED, "the model gave no loss and no reason");
}

exo_status
exo_parallel_step(exo_parallel *parallel, const exo_batch *batches, size_t count, float *loss,
                  exo_err *err)
{
    exo_parallel *p = parallel;
    const exo_grad_ready ready = {.tell = gradient_ready, .context = p};
    const exo_unit_hooks units = {.before = before_use, .after = after_use, .context = p};
    double sum = 0;
    exo_status st =
        count > 0 ? EXO_OK : exo_fail(err, EXO_INVAL, "a step needs at least one batch");
    exo_params_zero_grads(p->params);
    for (size_t i = 0; st == EXO_OK && i < count; i++) {
        exo_tensor *out = NULL;
        const bool tells = i + 1 == count && exo_strategy_awaits_gradients(p->strategy);
        const exo_pass pass = {.train = true,
                               .grad = true,
                               .seed = p->node.seed,
                               .node = p->node.rank,
                               .step = p->passes + i,
                               .ready = tells ? &ready : NULL,
                               .units = p->by_units ? &units : NULL};
        st = loss_of(p, &batches[i], &pass, &out, err);
        if (st == EXO_OK) {
            sum += (double)exo_tensor_item(out);
            st = exo_tape_backward(p->tape, out, 1.0f / (float)count, err);
        }
    }
    if (st == EXO_OK)
        st = exo_strategy_step(p->strategy, &p->node, err);
    if (st == EXO_OK) {
        p->node.step++;
        p->passes += count;
        *loss = (float)(sum / (double)count);
    }
    return st;
}

exo_status
exo_parallel_evaluate(exo_parallel *parallel, const exo_batch *batch, float *loss, exo_err *err)
{
    exo_parallel *p = parallel;
    const exo_unit_hooks units = {.before = before_look, .after = after_look, .context = p};
    const exo_pass pass = {
        .seed = p->node.seed, .node = p->node.rank, .units = p->by_units ? &units : NULL};
    exo_tensor *out = NULL;
    exo_status st = loss_of(p, batch, &pass, &out, err);
    if (st == EXO_OK)
        *loss = exo_tensor_item(out);
    return st == EXO_OK ? exo_tape_leave_units(p->tape, err) : st;
}

exo_status
exo_parallel_gather(exo_parallel *parallel, exo_params **whole, exo_err *err)
{
    exo_parallel *p = parallel;
    exo_params *copy = NULL;
    exo_status st = exo_model_copy(p->model, &copy, err);
    for (size_t u = 0; st == EXO_OK && u < p->node.num_units; u++) {
        if (p->by_units)
            st = before_look(p, u, err);
        if (st == EXO_OK)
            exo_vec_copy(exo_unit_values(copy, u), exo_unit_values(p->params, u));
        if (st == EXO_OK && p->by_units)
            st = after_look(p, u, err);
    }
    if (st == EXO_OK) {
        exo_vec_copy(exo_params_buffers_array(copy), exo_params_buffers_array(p->params));
        *whole = copy;
        copy = NULL; /* moved to the caller */
    }
    exo_params_free(&copy);
    return st;
}
