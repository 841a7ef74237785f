/* Classes by name: one registry for each kind of class, which the layer that uses the kind owns as
 * a variable.
 *
 * It is filled by builtins/, which knows all that the library brings, and by programs and plugins.
 * Lower layers only look into it. A class begins with its name, `const char *`; names are unique
 * and sorted. Any thread. */
#ifndef EXO_REGISTRY_H
#define EXO_REGISTRY_H

#include <pthread.h>
#include <stddef.h>

#include <exogym/status.h>

/* The most classes of one kind. */
enum {
    EXO_REGISTRY_MAX = 1024
};

/* A variable of static duration: EXO_REGISTRY. */
typedef struct exo_registry {
    const char *what;                      /* one of them, for messages: "strategy" */
    pthread_mutex_t lock;                  /* a leaf: nothing else is taken under it */
    size_t count;                          /* guarded by lock, as is `classes`       */
    const void *classes[EXO_REGISTRY_MAX]; /* (count), sorted by name */
} exo_registry;

/* An empty registry. */
#define EXO_REGISTRY(what_)                                                                        \
    {                                                                                              \
        .what = (what_), .lock = PTHREAD_MUTEX_INITIALIZER                                         \
    }

/* The index-th class in the order of names, or NULL after the last. One that is added meanwhile may
 * move others up by one. */
const void *exo_registry_at(exo_registry *registry, size_t index);
/* The class of that name, or NULL. */
const void *exo_registry_find(exo_registry *registry, const char *name);
/* Adds a class, which must live as long as the process. Errors: EXISTS (the name is taken), INVAL
 * (no name), FULL. */
exo_status exo_registry_add(exo_registry *registry, const void *class_of, exo_err *err);
/* NOT_FOUND with the name that was probably meant, else with all that there are, as far as they
 * fit. */
exo_status exo_registry_unknown(exo_registry *registry, const char *name, exo_err *err);

#endif
