/* Classes that a config names: see named_class.h. */
#include "experience/named_class.h"

exo_status
exo_named_class_find(const void **out, exo_registry *registry, exo_config *node, const char *key,
                     exo_config **map, exo_err *err)
{
    const char *name = NULL;
    exo_err reason = {0};
    exo_status st = EXO_OK;
    *map = exo_config_is_map(node) ? node : NULL;
    if (*map)
        st = exo_config_string(*map, "name", NULL, &name, err);
    else
        name = exo_config_scalar(node);
    if (st == EXO_OK && !name)
        st = exo_config_fail(node, err, "%s: the key 'name' is missing", key);
    if (st != EXO_OK)
        return st;
    *out = exo_registry_find(registry, name);
    if (*out)
        return EXO_OK;
    exo_registry_unknown(registry, name, &reason);
    return exo_config_fail(node, err, "%s: %s", key, reason.text);
}
