/* What several users of one process share, found by a name: its first user makes it, its last one
 * frees it. Or somebody makes it alone, and puts it under the name under which the others find
 * it. */
#ifndef EXO_BASE_SHARED_H
#define EXO_BASE_SHARED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* The beginning of a struct that is shared. */
typedef struct exo_shared {
    char *name;     /* NULL: nobody finds it */
    unsigned users; /* guarded by the list's lock, as next                          */
    struct exo_shared *next;
    /* for whoever makes what is behind it: the second waits for the first */
    pthread_mutex_t making;
} exo_shared;

typedef struct exo_shared_list {
    pthread_mutex_t lock;
    exo_shared *first; /* guarded by lock */
    size_t size;       /* bytes of the whole struct, zeroed at first */
    /* frees what is behind it; may be NULL. Not under the lock */
    void (*release)(exo_shared *shared);
} exo_shared_list;

#define EXO_SHARED_LIST(type, release_function)                                                    \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .size = sizeof(type), .release = release_function       \
    }

/* One of its own, whose user is the caller, and which nobody finds until it is put under a name
 * that has none yet; false: no memory. */
exo_shared *exo_shared_new(const exo_shared_list *list);
bool exo_shared_put(exo_shared_list *list, exo_shared *shared, const char *name);
/* That of the name, new if there is none; NULL: no memory. Any thread. */
exo_shared *exo_shared_hold(exo_shared_list *list, const char *name);
/* Gives it back. Any thread. */
void exo_shared_drop(exo_shared_list *list, exo_shared *shared);

#endif
