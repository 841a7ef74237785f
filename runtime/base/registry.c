/* Classes by name: see registry.h. */
#include "base/registry.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

static _Atomic size_t num_unknown;

static const char *
name_of(const void *class_of)
{
    return *(const char *const *)class_of;
}

/* Called under the lock. Whether the class exists; *at is its position, or the one where it
 * belongs. */
static bool
locate(const exo_registry *registry, const char *name, size_t *at)
{
    size_t low = 0, high = registry->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name_of(registry->classes[middle]), name);
        if (order == 0) {
            *at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *at = low;
    return false;
}

const void *
exo_registry_at(exo_registry *registry, size_t index)
{
    pthread_mutex_lock(&registry->lock);
    const void *found = index < registry->count ? registry->classes[index] : NULL;
    pthread_mutex_unlock(&registry->lock);
    return found;
}

const void *
exo_registry_find(exo_registry *registry, const char *name)
{
    size_t at = 0;
    pthread_mutex_lock(&registry->lock);
    const void *found = locate(registry, name, &at) ? registry->classes[at] : NULL;
    pthread_mutex_unlock(&registry->lock);
    return found;
}

exo_status
exo_registry_add(exo_registry *registry, const void *class_of, exo_err *err)
{
    const char *name = name_of(class_of);
    if (!name || !*name)
        return exo_fail(err, EXO_INVAL, "a %s needs a name", registry->what);
    exo_status st = EXO_OK;
    size_t at = 0;
    pthread_mutex_lock(&registry->lock);
    if (locate(registry, name, &at)) {
        st = EXO_EXISTS;
    } else if (registry->count == EXO_REGISTRY_MAX) {
        st = EXO_FULL;
    } else {
        memmove(&registry->classes[at + 1], &registry->classes[at],
                (registry->count - at) * sizeof *registry->classes);
        registry->classes[at] = class_of;
        registry->count++;
    }
    pthread_mutex_unlock(&registry->lock);
    if (st == EXO_EXISTS)
        return exo_fail(err, st, "there is already a %s '%.60s'", registry->what, name);
    return st == EXO_OK ? st
                        : exo_fail(err, st, "the %s '%.60s' is one too many: there are %d",
                                   registry->what, name, EXO_REGISTRY_MAX);
}

size_t
exo_registry_num_unknown(void)
{
    return num_unknown;
}

exo_status
exo_registry_unknown(exo_registry *registry, const char *name, exo_err *err)
{
    num_unknown++;
    exo_nearest nearest = {.word = name};
    char known[EXO_ERR_TEXT / 2] = "none";
    size_t used = 0;
    pthread_mutex_lock(&registry->lock);
    for (size_t i = 0; i < registry->count; i++) {
        const char *there = name_of(registry->classes[i]);
        exo_nearest_try(&nearest, there);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                                     there);
    }
    pthread_mutex_unlock(&registry->lock);
    if (exo_nearest_name(&nearest))
        return exo_fail(err, EXO_NOT_FOUND, "there is no %s '%.60s'; did you mean '%s'?",
                        registry->what, name, nearest.name);
    return exo_fail(err, EXO_NOT_FOUND, "there is no %s '%.60s'; known are: %s", registry->what,
                    name, known);
}
