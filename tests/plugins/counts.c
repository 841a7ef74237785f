/* A plugin that adds the strategy "counted", and counts how often its function ran in its help. */
#include <exogym/plugin.h>
#include <exogym/strategy.h>

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    exo_status st = exo_all_reduce(node->group, node->grads, EXO_MEAN, err);
    return st == EXO_OK ? exo_node_inner_step(node, err) : st;
}

static char help[] = "0";
static const exo_strategy_class counted = {.name = "counted", .help = help, .step = step};

EXO_PLUGIN
{
    help[0]++;
    return exo_strategy_register(&counted, err);
}
