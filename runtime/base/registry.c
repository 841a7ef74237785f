/* Classes by name: see registry.h. */
#include "registry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

struct exo_registry_entry {
    const void *class_of;
    struct exo_registry_entry *_Atomic next;
};

static const char *
name_of(const void *class_of)
{
    return *(const char *const *)class_of;
}

const void *
exo_registry_at(exo_registry *registry, size_t index)
{
    if (index < registry->num_builtin)
        return registry->builtin[index];
    struct exo_registry_entry *entry = atomic_load(&registry->registered);
    for (size_t i = registry->num_builtin; entry && i < index; i++)
        entry = atomic_load(&entry->next);
    return entry ? entry->class_of : NULL;
}

const void *
exo_registry_find(exo_registry *registry, const char *name)
{
    const void *found = NULL;
    for (size_t i = 0; (found = exo_registry_at(registry, i)) != NULL; i++)
        if (strcmp(name_of(found), name) == 0)
            break;
    return found;
}

static exo_status
fail_exists(const exo_registry *registry, const char *name, exo_err *err)
{
    return exo_fail(err, EXO_EXISTS, "there is already a %s '%s'", registry->what, name);
}

exo_status
exo_registry_add(exo_registry *registry, const void *class_of, exo_err *err)
{
    const char *name = name_of(class_of);
    if (!name || !*name)
        return exo_fail(err, EXO_INVAL, "a %s class needs a name", registry->what);
    for (size_t i = 0; i < registry->num_builtin; i++)
        if (strcmp(name_of(registry->builtin[i]), name) == 0)
            return fail_exists(registry, name, err);
    struct exo_registry_entry *entry = exo_calloc(1, sizeof *entry);
    if (!entry)
        return exo_fail(err, EXO_NOMEM, "no memory to register the %s '%s'", registry->what, name);
    entry->class_of = class_of;

    struct exo_registry_entry *_Atomic *link = &registry->registered;
    for (;;) {
        struct exo_registry_entry *next = NULL;
        if (atomic_compare_exchange_strong(link, &next, entry))
            return EXO_OK;
        if (strcmp(name_of(next->class_of), name) == 0) {
            exo_free(entry);
            return fail_exists(registry, name, err);
        }
        link = &next->next;
    }
}

exo_status
exo_registry_unknown(exo_registry *registry, const char *name, exo_err *err)
{
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    const void *c = NULL;
    for (size_t i = 0; (c = exo_registry_at(registry, i)) != NULL && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", name_of(c));
    return exo_fail(err, EXO_NOT_FOUND, "there is no %s '%.60s'; known are: %s", registry->what, name, known);
}
