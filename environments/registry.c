/* The registry of environments: those of the library, which builtins/ adds, and those that programs
 * and plugins register. */
#include "environments/builtin.h"
#include "environments/spec.h"

exo_registry exo_environment_registry = EXO_REGISTRY("environment");

const exo_environment_class *
exo_environment_class_at(size_t index)
{
    return exo_registry_at(&exo_environment_registry, index);
}

exo_status
exo_environment_register(const exo_environment_class *environment_class, exo_err *err)
{
    const exo_environment_class *c = environment_class;
    if (!c->name || !*c->name || !c->begin || !c->step || !c->observe)
        return exo_fail(err, EXO_INVAL,
                        "an environment class needs a name and the functions begin, step and "
                        "observe");
    /* A class whose init writes its shape is checked after init. */
    exo_status st = c->init ? EXO_OK : exo_environment_check_shape(c, &c->shape, err);
    return st == EXO_OK ? exo_registry_add(&exo_environment_registry, c, err) : st;
}
