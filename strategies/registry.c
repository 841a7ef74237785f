/* The registry of strategies: those of the library, which builtins/ adds, and those that programs
 * and plugins register. */
#include "strategies/builtin.h"

exo_registry exo_strategy_registry = EXO_REGISTRY("strategy");

const exo_strategy_class *
exo_strategy_class_at(size_t index)
{
    return exo_registry_at(&exo_strategy_registry, index);
}

exo_status
exo_strategy_register(const exo_strategy_class *strategy_class, exo_err *err)
{
    if (!strategy_class->name || !*strategy_class->name || !strategy_class->step)
        return exo_fail(err, EXO_INVAL, "a strategy class needs a name and a step function");
    return exo_registry_add(&exo_strategy_registry, strategy_class, err);
}
