/* The folder of plugins: see plugin_dir.h. */
#include "base/plugin_dir.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *dir; /* written before there are other threads */
static _Thread_local bool is_restricted;

void
exo_plugin_set_dir(const char *folder)
{
    dir = folder;
}

void
exo_plugin_restrict(bool restricted)
{
    is_restricted = restricted;
}

exo_status
exo_plugin_check_dir(const char *path, exo_err *err)
{
    char wanted[PATH_MAX], allowed[PATH_MAX];
    if (!is_restricted)
        return EXO_OK;
    if (!dir)
        return exo_fail(
            err, EXO_DENIED,
            "plugin '%s': drivers may load none here: the worker was started without --plugin-dir",
            path);
    size_t length = realpath(dir, allowed) ? strlen(allowed) : 0;
    if (length > 0 && realpath(path, wanted) && strncmp(wanted, allowed, length) == 0 &&
        wanted[length] == '/')
        return EXO_OK;
    return exo_fail(err, EXO_DENIED,
                    "plugin '%s': is not in the folder of plugins that drivers may load, '%s'",
                    path, dir);
}
