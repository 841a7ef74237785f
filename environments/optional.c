/* Environments in plugins of the library's own: see optional.h. No state. */
#include "environments/optional.h"

#include <string.h>

#include "base/own_plugin.h"

static const struct {
    const char *name, *plugin, *needs, *package;
} optional[] = {
    {"lunar_lander", "exogym-box2d.so", "Box2D", "libbox2d-dev"},
};

const char *
exo_environment_optional_at(size_t index)
{
    return index < sizeof optional / sizeof *optional ? optional[index].name : NULL;
}

exo_status
exo_environment_optional_load(const char *name, exo_err *err)
{
    size_t i = 0;
    while (exo_environment_optional_at(i) && strcmp(optional[i].name, name) != 0)
        i++;
    if (!exo_environment_optional_at(i))
        return EXO_NOT_FOUND;
    exo_status st = exo_own_plugin_load(optional[i].plugin, NULL, NULL, err);
    return st == EXO_NOT_FOUND
               ? exo_fail(err, EXO_UNSUPPORTED,
                          "environment '%s' needs %s: there is no %s; install %s and build exogym "
                          "again, or install its package",
                          name, optional[i].needs, optional[i].plugin, optional[i].package)
               : st;
}
