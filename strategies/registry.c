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
    if (strategy_class->keep && (!strategy_class->before_use || !strategy_class->after_use ||
                                 !strategy_class->gradient_ready))
        return exo_fail(
            err, EXO_INVAL,
            "the strategy class '%s' has keep, but lacks before_use, after_use or gradient_ready",
            strategy_class->name);
    return exo_registry_add(&exo_strategy_registry, strategy_class, err);
}
