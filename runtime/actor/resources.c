/* Resources in configurations: see resources.h. No state. */
#include "actor/resources.h"

#include <string.h>

#include "actor/gpus.h"
#include "base/config_edit.h"

enum {
    MAX_RESOURCES = 16 /* of an actor or host */
};

static exo_status
read_amount(exo_config *resources, const char *name, exo_resource *out, exo_err *err)
{
    uint64_t bytes = 0;
    out->name = name;
    if (!exo_config_is_label(name))
        return exo_config_fail(resources, err, "resources: '%.60s': expected " EXO_LABEL_RULE,
                               name);
    if (strcmp(name, "memory") != 0)
        return exo_config_double(resources, name, 0, 0, 1e12, &out->amount, err);
    exo_status st = exo_config_bytes(resources, name, 0, 0, UINT64_MAX, &bytes, err);
    out->amount = (double)bytes;
    return st;
}

exo_status
exo_resources_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err)
{
    exo_config *resources = NULL;
    const char *name = NULL;
    exo_status st = exo_config_map(map, "resources", &resources, err);
    if (st != EXO_OK || !resources)
        return st;
    size_t length = exo_config_length(resources);
    if (length > MAX_RESOURCES)
        return exo_config_fail(resources, err, "resources: more than %d", MAX_RESOURCES);
    exo_resource *list =
        exo_config_alloc(exo_config_document(resources), (length + 1) * sizeof *list);
    if (!list)
        return exo_fail(err, EXO_NOMEM, "no memory for resources");
    for (size_t i = 0; st == EXO_OK && (name = exo_config_key(resources, i, NULL)); i++)
        st = read_amount(resources, name, &list[i], err);
    *out = list;
    *count = length;
    return st;
}

exo_status
exo_needs_read(exo_config *map, exo_resource **out, size_t *count, exo_err *err)
{
    exo_status st = exo_resources_read(map, out, count, err);
    const exo_config *gpus = exo_config_get(exo_config_get(map, "resources"), "gpus");
    for (size_t i = 0; st == EXO_OK && gpus && i < *count; i++) {
        if (strcmp((*out)[i].name, "gpus") == 0)
            st = exo_gpus_check((*out)[i].amount, err);
        if (st != EXO_OK)
            exo_config_add_place(gpus, err);
    }
    return st;
}
