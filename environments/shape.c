/* The check of an environment's shape. No state. */
#include "environments/spec.h"

exo_status
exo_environment_check_shape(const exo_environment_class *environment_class,
                            const exo_environment_shape *s, exo_err *err)
{
    const char *name = environment_class->name;
    const struct {
        const char *what;
        size_t value, min, max;
    } sizes[] = {
        {"observation", s->observation, 1, EXO_ENVIRONMENT_MAX_OBSERVATION},
        {"state", s->state, 1, EXO_ENVIRONMENT_MAX_STATE},
        {"actions", s->actions, s->box ? 0 : 1, s->box ? 0 : EXO_ENVIRONMENT_MAX_ACTIONS},
        {"box", s->box, 0, EXO_ENVIRONMENT_MAX_ACTIONS},
        {"players", s->players, 0, EXO_ENVIRONMENT_MAX_PLAYERS},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < sizes[i].min || sizes[i].value > sizes[i].max)
            return exo_fail(err, EXO_INVAL, "environment '%s': %s is %zu, not %zu to %zu", name,
                            sizes[i].what, sizes[i].value, sizes[i].min, sizes[i].max);
    for (size_t i = 0; i < s->box; i++)
        if (!(s->low[i] < s->high[i]))
            return exo_fail(err, EXO_INVAL, "environment '%s': low[%zu] is not below high[%zu]",
                            name, i, i);
    if (s->players > 1 && !environment_class->player)
        return exo_fail(err, EXO_INVAL,
                        "environment '%s' has several players, but no function player", name);
    if (s->box > 0 && environment_class->step_many)
        return exo_fail(err, EXO_INVAL,
                        "environment '%s' has continuous actions, but step_many takes choices",
                        name);
    return EXO_OK;
}
