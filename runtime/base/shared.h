/* Structs that several users of one process share, found by a name. The first user makes the
 * struct, and the last one frees it. A user may also make a struct alone and give it a name
 * later. */
#ifndef EXO_BASE_SHARED_H
#define EXO_BASE_SHARED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* The first member of a shared struct. */
typedef struct exo_shared {
    char *name;     /* NULL: exo_shared_hold does not find it */
    unsigned users; /* guarded by the list's lock, like next */
    struct exo_shared *next;
    /* for the code that makes the contents: the second user waits for the first */
    pthread_mutex_t making;
} exo_shared;

typedef struct exo_shared_list {
    pthread_mutex_t lock;
    exo_shared *first; /* guarded by lock */
    size_t size;       /* size of the whole struct, zeroed at first */
    /* frees the contents, not under the lock; may be NULL */
    void (*release)(exo_shared *shared);
} exo_shared_list;

#define EXO_SHARED_LIST(type, release_function)                                                    \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER, .size = sizeof(type), .release = release_function       \
    }

/* New makes a struct without a name, whose only user is the caller; NULL: no memory. Put gives it a
 * name that no other struct of the list has; false: no memory. */
exo_shared *exo_shared_new(const exo_shared_list *list);
bool exo_shared_put(exo_shared_list *list, exo_shared *shared, const char *name);
/* The struct of that name, which is made if it is missing; NULL: no memory. Any thread. */
exo_shared *exo_shared_hold(exo_shared_list *list, const char *name);
/* Ends a use. Any thread. */
void exo_shared_drop(exo_shared_list *list, exo_shared *shared);

#endif
