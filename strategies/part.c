/* Parts: see part.h. No state. */
#include "strategies/part.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "strategies/builtin.h"

exo_status
exo_part_read(exo_strategy_part *part, exo_config *config, const char *key, const char *fallback,
              exo_err *err)
{
    const char *name = NULL;
    exo_config *node = exo_config_get(config, key),
               *options = exo_config_is_map(node) ? node : NULL;
    if (!node && !fallback)
        return EXO_OK;
    exo_status st = options ? exo_config_string(options, "name", NULL, &name, err)
                            : exo_config_string(config, key, fallback, &name, err);
    if (st == EXO_OK && !name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    if (st != EXO_OK)
        return st;
    part->strategy = exo_registry_find(&exo_strategy_registry, name);
    if (!part->strategy) {
        exo_registry_unknown(&exo_strategy_registry, name, err);
        if (err)
            err->code = EXO_INVAL; /* a wrong option, like any other */
        return exo_config_add_place(node, err);
    }
    if (part->strategy->keep)
        return exo_config_fail(
            node, err,
            "%s: '%s' keeps shards and cannot be a part of another strategy; "
            "give fsdp a strategy across its groups: {name: fsdp, group_size: 2, "
            "across: diloco}",
            key, name);
    part->self = exo_calloc(1, part->strategy->state_size + 1);
    if (!part->self)
        return exo_fail(err, EXO_NOMEM, "no memory for the strategy '%s'", name);
    st = part->strategy->init ? part->strategy->init(part->self, options, err) : EXO_OK;
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

exo_status
exo_part_check_alone(const exo_strategy_part *part, exo_config *config, const char *key,
                     exo_err *err)
{
    const exo_strategy_class *c = part->strategy;
    if (c->apart)
        return exo_config_fail(exo_config_get(config, key), err,
                               "%s: the nodes of '%s' do not meet, so they cannot act as one node",
                               key, c->name);
    if (c->steps_alone && c->steps_alone(part->self, 2))
        return EXO_OK;
    return exo_config_fail(exo_config_get(config, key), err,
                           "%s: '%s' does not begin with a step of the node's own, as diloco does",
                           key, c->name);
}

size_t
exo_part_edges(const exo_strategy_part *part, const exo_param_info *infos, size_t num_infos,
               size_t numel, uint32_t num_nodes, exo_strategy_edge out[EXO_STRATEGY_MAX_EDGES])
{
    const exo_strategy_class *c = part->strategy;
    memset(out, 0, EXO_STRATEGY_MAX_EDGES * sizeof *out);
    if (c->model_edges)
        return c->model_edges(part->self, infos, num_infos, numel, num_nodes, out);
    return c->edges ? c->edges(part->self, numel, num_nodes, out) : 0;
}

exo_status
exo_part_check(const exo_strategy_part *part, uint32_t num_nodes, exo_err *err)
{
    return part->strategy->check ? part->strategy->check(part->self, num_nodes, err) : EXO_OK;
}

exo_status
exo_part_check_model(const exo_strategy_part *part, const exo_model *model, exo_err *err)
{
    const exo_strategy_class *c = part->strategy;
    return c->check_model ? c->check_model(part->self, model, err) : EXO_OK;
}

exo_status
exo_part_start(const exo_strategy_part *part, exo_node *node, exo_err *err)
{
    return part->strategy->start ? part->strategy->start(part->self, node, err) : EXO_OK;
}

void
exo_part_state(const exo_strategy_part *part, exo_state *state)
{
    if (part->strategy->state)
        part->strategy->state(part->self, state);
}

void
exo_part_leave(const exo_strategy_part *part)
{
    if (part->self && part->strategy->leave)
        part->strategy->leave(part->self);
}

void
exo_part_release(exo_strategy_part *part)
{
    if (part->self && part->strategy->release)
        part->strategy->release(part->self);
    exo_free(part->self);
    *part = (exo_strategy_part){0};
}
