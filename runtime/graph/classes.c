/* The graph classes by name: those of the library, which builtins/ lists, and those that programs
 * and plugins register. State: the registry, with a lock of its own. */
#include "graph/builtin.h"

#include <string.h>

exo_registry exo_graph_class_registry = EXO_REGISTRY("graph class");
exo_registry exo_graph_rule_registry = EXO_REGISTRY("graph rule");

const exo_graph_class *
exo_graph_class_at(size_t index)
{
    return exo_registry_at(&exo_graph_class_registry, index);
}

const exo_graph_class *
exo_graph_class_find(const char *name)
{
    return exo_registry_find(&exo_graph_class_registry, name);
}

exo_status
exo_graph_class_get(const exo_graph_class **out, const char *name, exo_err *err)
{
    *out = exo_graph_class_find(name);
    return *out ? EXO_OK : exo_registry_unknown(&exo_graph_class_registry, name, err);
}

/* Refuses ports without a name or type, and two ports of the same name and direction. */
static exo_status
check_ports(const exo_graph_class *c, exo_err *err)
{
    for (size_t i = 0; i < c->num_ports; i++) {
        if (!c->ports[i].name || !*c->ports[i].name || !c->ports[i].type)
            return exo_fail(err, EXO_INVAL, "graph class '%s': a port needs a name and a type",
                            c->name);
        for (size_t k = 0; k < i; k++)
            if (c->ports[i].direction == c->ports[k].direction &&
                strcmp(c->ports[i].name, c->ports[k].name) == 0)
                return exo_fail(err, EXO_INVAL, "graph class '%s': two ports '%s' of one direction",
                                c->name, c->ports[i].name);
    }
    return EXO_OK;
}

exo_status
exo_graph_class_register(const exo_graph_class *graph_class, exo_err *err)
{
    const char *name = graph_class->name;
    if (!name || !*name || !graph_class->run)
        return exo_fail(err, EXO_INVAL, "a graph class needs a name and a run function");
    exo_status st = check_ports(graph_class, err);
    return st == EXO_OK ? exo_registry_add(&exo_graph_class_registry, graph_class, err) : st;
}
