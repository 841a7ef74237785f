/* Structs that are shared by name: see shared.h. */
#include "base/shared.h"

#include <stdbool.h>
#include <string.h>

#include <exogym/memory.h>

static exo_shared *
new_shared(const exo_shared_list *list, const char *name)
{
    exo_shared *s = exo_calloc(1, list->size);
    if (!s)
        return NULL;
    s->name = exo_strdup(name);
    if (!s->name) {
        exo_free(s);
        return NULL;
    }
    pthread_mutex_init(&s->making, NULL);
    return s;
}

exo_shared *
exo_shared_hold(exo_shared_list *list, const char *name)
{
    pthread_mutex_lock(&list->lock);
    exo_shared *s = list->first;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    if (!s && (s = new_shared(list, name))) {
        s->next = list->first;
        list->first = s;
    }
    if (s)
        s->users++;
    pthread_mutex_unlock(&list->lock);
    return s;
}

void
exo_shared_drop(exo_shared_list *list, exo_shared *shared)
{
    pthread_mutex_lock(&list->lock);
    bool last = --shared->users == 0;
    if (last) {
        exo_shared **at = &list->first;
        while (*at != shared)
            at = &(*at)->next;
        *at = shared->next;
    }
    pthread_mutex_unlock(&list->lock);
    if (!last)
        return;
    if (list->release)
        list->release(shared);
    pthread_mutex_destroy(&shared->making);
    exo_free(shared->name);
    exo_free(shared);
}
