/* The list `plugins` of a job or graph. No state but that of plugin.c. */
#include "base/config_edit.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <exogym/memory.h>
#include <exogym/plugin.h>

#include "base/config_tree.h"
#include "base/plugin_dir.h"

void
exo_config_keep_plugins_out(exo_config_doc *doc)
{
    doc->without_plugins = true;
}

void
exo_config_keep_out_as(exo_config_doc *doc, const exo_config_doc *other)
{
    doc->without_plugins = other->without_plugins;
}

static exo_status
load(exo_config *item, const char **absolute, exo_err *err)
{
    char real[PATH_MAX];
    const char *file = exo_config_scalar(item);
    if (!file || !*file)
        return exo_config_fail(item, err, "plugins: expected the path of a shared object");
    char *full = exo_config_relative(item, file);
    exo_status st = !full ? exo_fail(err, EXO_NOMEM, "out of memory")
                    : exo_config_document(item)->without_plugins ? exo_plugin_check_file(full, err)
                                                                 : exo_plugin_load(full, err);
    if (st != EXO_OK) {
        st = exo_config_add_place(item, err);
    } else {
        const char *found = realpath(full, real) ? real : full;
        *absolute = exo_config_copy_text(exo_config_document(item), found, strlen(found));
        if (!*absolute)
            st = exo_fail(err, EXO_NOMEM, "out of memory");
    }
    exo_free(full);
    return st;
}

exo_status
exo_config_plugins(exo_config *root, const char *const **out, size_t *count, exo_err *err)
{
    exo_config *list = NULL;
    exo_status st = exo_config_list(root, "plugins", &list, err);
    if (st != EXO_OK)
        return st;
    size_t length = exo_config_length(list);
    const char **paths = exo_config_alloc(exo_config_document(root), (length + 1) * sizeof *paths);
    if (!paths)
        return exo_fail(err, EXO_NOMEM, "out of memory");
    for (size_t i = 0; st == EXO_OK && i < length; i++)
        st = load(exo_config_item(list, i), &paths[i], err);
    if (st == EXO_OK) {
        *out = paths;
        *count = length;
    }
    return st;
}
