/* The engines by name: those of the library, which builtins/ lists, and those that programs and
 * plugins register. State: the registry. */
#include "comm/engines.h"

exo_registry exo_engine_registry = EXO_REGISTRY("engine");

const exo_engine_class *
exo_engine_at(size_t index)
{
    return exo_registry_at(&exo_engine_registry, index);
}

exo_status
exo_engine_find(const exo_engine_class **out, const char *name, exo_err *err)
{
    *out = exo_registry_find(&exo_engine_registry, name);
    return *out ? EXO_OK : exo_registry_unknown(&exo_engine_registry, name, err);
}

exo_status
exo_engine_register(const exo_engine_class *e, exo_err *err)
{
    if (!e->name || !*e->name)
        return exo_fail(err, EXO_INVAL, "an engine needs a name");
    bool moves = e->advance || (e->begin && e->test && e->wait && e->cancel);
    if (!e->close || !e->fail || !moves)
        return exo_fail(err, EXO_INVAL,
                        "engine %s: a function is missing: only open may be, and for begin, test, "
                        "wait and cancel there may be advance",
                        e->name);
    return exo_registry_add(&exo_engine_registry, e, err);
}

const char *
exo_collective_name(exo_collective operation)
{
    static const char *const names[] = {
        [EXO_ALL_REDUCE] = "all_reduce",
        [EXO_REDUCE_SCATTER] = "reduce_scatter",
        [EXO_ALL_GATHER] = "all_gather",
        [EXO_BROADCAST] = "broadcast",
        [EXO_BARRIER] = "barrier",
        [EXO_ALL_TO_ALL] = "all_to_all",
        [EXO_SWAP] = "swap",
    };
    return names[operation];
}
