/* The rule of train nodes, which the check of a graph that will run applies: their options, model, data,
 * strategy and edges fit each other. Nodes find the same when they begin, without a place in the file.
 * Data that is not on this machine may be on that of the nodes, so its absence is theirs to report.
 * No state. Read next: graph_train_node.c. */
#include <string.h>

#include <exogym/data.h>
#include <exogym/model.h>

#include "actors/builtin_classes.h"
#include "actors/fit.h"
#include "actors/graph_train_node.h"
#include "base/config_edit.h"
#include "graph/spec.h"

/* The nodes of a name, and what their config says. */
struct nodes {
    const exo_graph_spec *spec;
    const exo_actor_spec *actor;
    exo_model *model;
    exo_dataset *train, *val; /* NULL: not on this machine */
    exo_strategy *strategy;
};

/* The value of a key, or the mapping without it: the place of an error. */
static exo_config *
place_of(exo_config *map, const char *key)
{
    exo_config *node = exo_config_get(map, key);
    return node ? node : map;
}

static exo_status
open_model(struct nodes *n, exo_err *err)
{
    exo_config *config = n->actor->config, *options = NULL;
    const char *name = NULL;
    exo_status st = exo_fit_read_named(config, "model", "a model", &name, &options, err);
    if (st == EXO_OK)
        st = exo_model_new_named(&n->model, name, options, err);
    if (st == EXO_NOT_FOUND && !exo_config_has(options, "path") && err)
        err->code = EXO_INVAL; /* the name is wrong */
    if (st != EXO_OK)
        return exo_config_add_place(place_of(config, "model"), err);
    if (!exo_model_objective(n->model))
        return exo_config_fail(place_of(config, "model"), err,
                               "the model '%s' has no objective: programs train it, and nodes "
                               "cannot",
                               name);
    return options ? exo_config_finish(options, err) : EXO_OK;
}

static exo_status
open_data(struct nodes *n, bool validates, exo_err *err)
{
    exo_config *config = n->actor->config, *options = NULL;
    exo_err reason = {0};
    bool split = false;
    const char *name = NULL;
    exo_status st = exo_fit_read_named(config, "data", "data", &name, &options, err);
    if (st == EXO_OK && options)
        st = exo_config_bool(options, "split_by_node", false, &split, err);
    if (st != EXO_OK)
        return st;
    st = exo_dataset_named(name, options, &n->train, validates ? &n->val : NULL, &reason);
    if (st != EXO_INVAL && st != EXO_NOMEM)
        return EXO_OK;
    exo_fail(err, st, "%s", reason.text);
    return exo_config_add_place(place_of(config, "data"), err);
}

/* Rehearses a pass of one sample, as for a job. Memory is another matter. */
static exo_status
check_pass(const struct nodes *n, exo_err *err)
{
    const exo_pass pass = {.train = true};
    exo_pass_memory memory;
    exo_err reason = {0};
    exo_status st = exo_model_pass_memory(n->model, &pass, n->train, 1, &memory, &reason);
    if (st == EXO_OK || st == EXO_NOMEM)
        return EXO_OK;
    return exo_config_fail(place_of(n->actor->config, "model"), err,
                           "the model does not fit the samples of the data: %s", reason.text);
}

static exo_status
check_sizes(const struct nodes *n, const exo_fit_opts *train, exo_err *err)
{
    exo_config *map = place_of(n->actor->config, "train");
    size_t share = n->train ? exo_dataset_length(n->train) / n->actor->count : SIZE_MAX;
    if (train->minibatch_size > 0 && train->batch_size % train->minibatch_size != 0)
        return exo_config_fail(place_of(map, "minibatch_size"), err,
                               "minibatch_size %zu does not divide batch_size %zu",
                               train->minibatch_size, train->batch_size);
    if (train->batch_size > share)
        return exo_config_fail(place_of(map, "batch_size"), err,
                               "batch_size %zu is more than a node's share of the data: %zu "
                               "samples on %u nodes are %zu each",
                               train->batch_size, exo_dataset_length(n->train), n->actor->count,
                               share);
    return n->train ? check_pass(n, err) : EXO_OK;
}

/* The edge of a collective among the nodes. */
static bool
has_edge(const struct nodes *n, const char *carries)
{
    const exo_edge_spec *end = n->spec->edges + n->spec->num_edges;
    for (const exo_edge_spec *e = n->spec->edges; e < end; e++)
        if (&n->spec->actors[e->from] == n->actor && strcmp(e->carries, carries) == 0)
            return true;
    return false;
}

/* As many edges as a node has, each with what the strategy sends. */
static exo_status
check_edges(const struct nodes *n, exo_err *err)
{
    exo_strategy_edge edges[EXO_STRATEGY_MAX_EDGES] = {{.carries = "exchange"}};
    size_t count = 1;
    exo_config *place = place_of(n->actor->config, "strategy");
    exo_status st = exo_strategy_check_edges(n->strategy, exo_model_infos(n->model),
                                             exo_model_num_infos(n->model),
                                             exo_model_numel(n->model), n->actor->count, err);
    if (st != EXO_OK)
        return st;
    exo_strategy_edges(n->strategy, exo_model_infos(n->model), exo_model_num_infos(n->model),
                       exo_model_numel(n->model), n->actor->count, edges, &count);
    for (size_t i = 0; i < count; i++)
        if (!has_edge(n, edges[i].carries))
            return exo_config_fail(place, err,
                                   "the strategy sends %s, which no edge of these nodes carries: "
                                   "add {from: %s, to: %s, carries: %s}",
                                   edges[i].carries, n->actor->name, n->actor->name,
                                   edges[i].carries);
    return EXO_OK;
}

static exo_status
check_strategy(struct nodes *n, exo_err *err)
{
    exo_config *config = n->actor->config, *options = NULL;
    const char *name = NULL;
    exo_status st = exo_fit_read_named(config, "strategy", "a strategy", &name, &options, err);
    if (st == EXO_OK)
        st = exo_strategy_new(&n->strategy, name, options, err);
    if (st == EXO_OK)
        st = exo_strategy_check(n->strategy, n->actor->count, err);
    if (st == EXO_OK)
        st = exo_strategy_check_model(n->strategy, n->model, err);
    return st == EXO_OK || st == EXO_NOMEM
               ? st
               : exo_config_add_place(place_of(config, "strategy"), err);
}

static exo_status
check_nodes(struct nodes *n, exo_err *err)
{
    exo_fit_opts train;
    exo_status st = exo_train_node_check(&train, n->actor->config, err);
    if (st == EXO_OK)
        st = open_model(n, err);
    if (st == EXO_OK)
        st = open_data(n, train.val_size != EXO_VAL_NONE, err);
    if (st == EXO_OK)
        st = check_sizes(n, &train, err);
    if (st == EXO_OK)
        st = check_strategy(n, err);
    return st == EXO_OK ? check_edges(n, err) : st;
}

static exo_status
check(const exo_graph_spec *spec, exo_err *err)
{
    exo_status st = EXO_OK;
    for (uint32_t i = 0; st == EXO_OK && spec->runs && i < spec->num_actors; i++) {
        struct nodes n = {.spec = spec, .actor = &spec->actors[i]};
        if (n.actor->class != &exo_train_node_graph_class)
            continue;
        st = check_nodes(&n, err);
        exo_strategy_free(&n.strategy);
        exo_dataset_drop(&n.train);
        exo_dataset_drop(&n.val);
        exo_model_drop(&n.model);
    }
    return st;
}

const exo_graph_rule exo_train_node_rule = {.name = "train nodes", .check = check};
