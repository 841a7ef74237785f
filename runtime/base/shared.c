/* Structs that are shared by name: see shared.h. */
#include "base/shared.h"

#include <string.h>

#include <exogym/memory.h>

exo_shared *
exo_shared_new(const exo_shared_list *list)
{
    exo_shared *s = exo_calloc(1, list->size);
    if (!s)
        return NULL;
    s->users = 1;
    pthread_mutex_init(&s->making, NULL);
    return s;
}

static void
free_shared(exo_shared *s)
{
    pthread_mutex_destroy(&s->making);
    exo_free(s->name);
    exo_free(s);
}

static bool
put_locked(exo_shared_list *list, exo_shared *s, const char *name)
{
    s->name = exo_strdup(name);
    if (!s->name)
        return false;
    s->next = list->first;
    list->first = s;
    return true;
}

bool
exo_shared_put(exo_shared_list *list, exo_shared *shared, const char *name)
{
    pthread_mutex_lock(&list->lock);
    bool put = put_locked(list, shared, name);
    pthread_mutex_unlock(&list->lock);
    return put;
}

exo_shared *
exo_shared_hold(exo_shared_list *list, const char *name)
{
    pthread_mutex_lock(&list->lock);
    exo_shared *s = list->first;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    if (s) {
        s->users++;
    } else if ((s = exo_shared_new(list)) && !put_locked(list, s, name)) {
        free_shared(s);
        s = NULL;
    }
    pthread_mutex_unlock(&list->lock);
    return s;
}

void
exo_shared_drop(exo_shared_list *list, exo_shared *shared)
{
    pthread_mutex_lock(&list->lock);
    bool last = --shared->users == 0;
    if (last && shared->name) {
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
    free_shared(shared);
}
