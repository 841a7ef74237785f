/* A plugin that adds the strategy "counted". Its help text counts the calls of the plugin's
 * function. */
#include <exogym/memory.h>
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
    void *room = exo_calloc(1, 1); /* this allocation may fail: then the function is called again */
    exo_status st =
        room ? exo_strategy_register(&counted, err) : exo_fail(err, EXO_NOMEM, "no memory");
    exo_free(room);
    return st;
}
