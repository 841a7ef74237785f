/* The graph class "train_node": a node of a training run as an actor of a graph, which is what `exogym graph expand` makes of a job.
 *
 * Its config is that of a job: model, data, train and strategy. What it sends goes over collectives; which of them its strategy uses, and
 * how much, the strategy declares (exo_strategy_edges). State: none beyond the config.
 */
#include <exogym/graph.h>
#include <exogym/strategy.h>

#include "actors/builtin_classes.h"
#include "base/config_edit.h"

/* "name" or {name: ...}. */
static exo_status
read_named(exo_config *config, const char *key, const char **name, exo_config **map, exo_err *err)
{
    exo_config *node = exo_config_get(config, key);
    *map = NULL;
    if (!node)
        return exo_config_fail(config, err, "the key '%s' is missing", key);
    if (!exo_config_is_map(node))
        return exo_config_string(config, key, NULL, name, err);
    *map = node;
    exo_status st = exo_config_string(node, "name", NULL, name, err);
    if (st == EXO_OK && !*name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    return st;
}

static exo_status
init(void *self, exo_config *config, exo_err *err)
{
    (void)self;
    const char *name = NULL;
    exo_config *map = NULL, *train = NULL;
    exo_strategy *strategy = NULL;
    exo_status st = read_named(config, "model", &name, &map, err);
    if (st == EXO_OK)
        st = read_named(config, "data", &name, &map, err);
    if (st == EXO_OK)
        st = exo_config_map(config, "train", &train, err);
    if (st == EXO_OK)
        st = read_named(config, "strategy", &name, &map, err);
    if (st == EXO_OK) {
        st = exo_strategy_new(&strategy, name, map, err);
        exo_strategy_free(&strategy);
        if (st == EXO_NOT_FOUND && err)
            err->code = EXO_INVAL; /* the name is wrong */
        if (st != EXO_OK && st != EXO_NOMEM)
            st = exo_config_add_place(exo_config_get(config, "strategy"), err);
    }
    return st;
}

static exo_status
run(void *self, exo_graph_actor *actor, exo_err *err)
{
    (void)self;
    (void)actor;
    return exo_fail(err, EXO_UNSUPPORTED, "a train_node runs from its job only: exogym run JOB.yaml");
}

static const exo_graph_port ports[] = {
    {.name = "gradients", .type = "gradients", .direction = EXO_PORT_COLLECTIVE},
    {.name = "parameters", .type = "parameters", .direction = EXO_PORT_COLLECTIVE},
    {.name = "exchange", .type = "what a strategy sends that does not say", .direction = EXO_PORT_COLLECTIVE},
};

static const char *const phases[] = {"step", NULL};

const exo_graph_class exo_train_node_graph_class = {
    .name = "train_node",
    .help = "one of the nodes that train a model under a strategy",
    .ports = ports,
    .num_ports = sizeof ports / sizeof *ports,
    .phases = phases,
    .init = init,
    .run = run,
    .order = "*(reduce gradients; reduce parameters; reduce exchange)",
};
