/* Presets: named assignments in a job or graph. No state. */
#include "base/config_edit.h"

#include <exogym/memory.h>

exo_status
exo_config_apply_preset(exo_config *root, const char *name, const char *what, exo_err *err)
{
    exo_config *presets = NULL, *preset = NULL, *value = NULL;
    const char *key = NULL;
    exo_status st = exo_config_map(root, "presets", &presets, err);
    if (st != EXO_OK || !name)
        return st;
    st = exo_config_has(presets, name) ? exo_config_map(presets, name, &preset, err) : EXO_OK;
    if (st != EXO_OK)
        return st;
    if (!preset) {
        exo_text names = {0};
        for (size_t i = 0; (key = exo_config_key(presets, i, NULL)); i++)
            exo_text_add(&names, "%s%s", i ? ", " : "", key);
        st = exo_fail(err, EXO_INVAL, "--preset %s: the %s has no such preset; it has: %s", name,
                      what, names.data ? names.data : "none");
        exo_free(names.data);
        return st;
    }
    for (size_t i = 0; st == EXO_OK && (key = exo_config_key(preset, i, &value)); i++)
        st = exo_config_put(value, key, err);
    return st;
}

exo_status
exo_config_check_presets(exo_config *root, exo_err *err)
{
    exo_config *presets = NULL, *preset = NULL;
    const char *name = NULL;
    exo_status st = exo_config_map(root, "presets", &presets, err);
    for (size_t i = 0; st == EXO_OK && (name = exo_config_key(presets, i, NULL)); i++)
        st = exo_config_map(presets, name, &preset, err);
    return st;
}
