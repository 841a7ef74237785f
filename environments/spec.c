/* Environments with their options, from a config. No state. Read next: vector.c. */
#include "environments/spec.h"

#include <string.h>

#include <exogym/memory.h>

#include "base/config_edit.h"
#include "environments/builtin.h"
#include "environments/optional.h"

static exo_status
read_options(exo_environment_spec *spec, exo_config *options, exo_err *err)
{
    const exo_environment_class *c = spec->environment_class;
    exo_status st = c->init ? c->init(spec->self, &spec->shape, options, err) : EXO_OK;
    if (st == EXO_OK)
        st = exo_config_u64(options, "max_steps", spec->shape.max_steps, 0, UINT32_MAX,
                            &spec->shape.max_steps, err);
    if (st == EXO_OK)
        st = exo_environment_check_shape(c, &spec->shape, err);
    if (spec->shape.players < 1)
        spec->shape.players = 1;
    return st == EXO_OK ? exo_config_finish(options, err) : st;
}

/* Finds a class by its name; loads an optional one first. */
static exo_status
find_class(const exo_environment_class **out, const char *name, exo_err *err)
{
    *out = exo_registry_find(&exo_environment_registry, name);
    if (*out)
        return EXO_OK;
    exo_status st = exo_environment_optional_load(name, err);
    if (st == EXO_OK)
        *out = exo_registry_find(&exo_environment_registry, name);
    if (st != EXO_OK && st != EXO_NOT_FOUND)
        return st;
    return *out ? EXO_OK : exo_registry_unknown(&exo_environment_registry, name, err);
}

exo_status
exo_environment_spec_read(exo_environment_spec **out, exo_config *map, const char *key,
                          const char *fallback, exo_err *err)
{
    exo_config *node = exo_config_get(map, key);
    exo_config *options = exo_config_is_map(node) ? node : NULL;
    const char *name = NULL;
    exo_status st = options ? exo_config_string(options, "name", fallback, &name, err)
                            : exo_config_string(map, key, fallback, &name, err);
    if (st == EXO_OK && !name)
        st = exo_config_fail(map, err, "%s: the name of an environment is missing", key);
    if (st != EXO_OK)
        return st;
    const exo_environment_class *c = NULL;
    st = find_class(&c, name, err);
    if (st != EXO_OK)
        return st;

    exo_environment_spec *spec = exo_calloc(1, sizeof *spec);
    void *self = exo_calloc(1, c->self_size ? c->self_size : 1);
    if (!spec || !self) {
        exo_free(self);
        exo_free(spec);
        return exo_fail(err, EXO_NOMEM, "no memory for the environment '%s'", name);
    }
    *spec = (exo_environment_spec){.environment_class = c, .shape = c->shape, .self = self};
    st = read_options(spec, options, err);
    if (st != EXO_OK)
        exo_environment_spec_free(&spec);
    *out = spec;
    return st;
}

void
exo_environment_spec_free(exo_environment_spec **spec)
{
    if (!*spec)
        return;
    if ((*spec)->environment_class->release)
        (*spec)->environment_class->release((*spec)->self);
    exo_free((*spec)->self);
    exo_free(*spec);
    *spec = NULL;
}

bool
exo_environment_spec_same(const exo_environment_spec *spec, const exo_environment_spec *other)
{
    const exo_environment_class *c = spec->environment_class;
    return c == other->environment_class &&
           memcmp(&spec->shape, &other->shape, sizeof spec->shape) == 0 &&
           (c->self_size == 0 || memcmp(spec->self, other->self, c->self_size) == 0);
}

const char *
exo_environment_spec_name(const exo_environment_spec *spec)
{
    return spec->environment_class->name;
}

const exo_environment_shape *
exo_environment_spec_shape(const exo_environment_spec *spec)
{
    return &spec->shape;
}

bool
exo_environment_spec_evaluate_game(const exo_environment_spec *spec,
                                   const exo_environment_policy *policy, exo_game_value *out)
{
    const exo_environment_class *c = spec->environment_class;
    if (!c->evaluate_game || spec->shape.max_steps > 0)
        return false;
    if (policy)
        c->evaluate_game(spec->self, policy, out);
    return true;
}
