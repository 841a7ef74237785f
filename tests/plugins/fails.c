/* A plugin whose function registers a strategy and then fails. The second call succeeds. */
#include <exogym/plugin.h>
#include <exogym/strategy.h>

static exo_status
step(void *self, exo_node *node, exo_err *err)
{
    (void)self;
    return exo_node_inner_step(node, err);
}

static const exo_strategy_class half_done = {
    .name = "half_done", .help = "registered before the failure", .step = step};

EXO_PLUGIN
{
    static int calls;
    if (calls++ > 0)
        return EXO_OK;
    exo_status st = exo_strategy_register(&half_done, err);
    return st == EXO_OK ? exo_fail(err, EXO_UNSUPPORTED, "there is no such device") : st;
}
