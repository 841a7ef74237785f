/* The strategies by name: those of the library, then those that programs and plugins register. */
#include "builtin.h"

#include "registry.h"

static const void *const builtin[] = {
    &exo_ddp_class,
    &exo_diloco_class,
    &exo_sparta_class,
    &exo_fedavg_class,
};

static exo_registry registry = {
    .what = "strategy", .builtin = builtin, .num_builtin = sizeof builtin / sizeof *builtin};

const exo_strategy_class *
exo_strategy_class_at(size_t index)
{
    return exo_registry_at(&registry, index);
}

const exo_strategy_class *
exo_strategy_class_find(const char *name)
{
    return exo_registry_find(&registry, name);
}

exo_status
exo_strategy_class_unknown(const char *name, exo_err *err)
{
    return exo_registry_unknown(&registry, name, err);
}

exo_status
exo_strategy_register(const exo_strategy_class *strategy_class, exo_err *err)
{
    if (!strategy_class->name || !*strategy_class->name || !strategy_class->step)
        return exo_fail(err, EXO_INVAL, "a strategy class needs a name and a step function");
    return exo_registry_add(&registry, strategy_class, err);
}
