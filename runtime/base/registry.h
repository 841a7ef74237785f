/* Registries: classes by name. Each kind of class has one registry, a variable of the layer that
 * uses the kind.
 *
 * builtins/, which knows all parts of the library, fills the registries, and programs and plugins
 * add to them. Lower layers only look classes up. The first member of a class is its name, a `const
 * char *`; names are unique and sorted. Any thread. */
#ifndef EXO_REGISTRY_H
#define EXO_REGISTRY_H

#include <pthread.h>
#include <stddef.h>

#include <exogym/status.h>

/* The most classes of one kind. */
enum {
    EXO_REGISTRY_MAX = 1024
};

/* A variable of static duration, initialized with EXO_REGISTRY. */
typedef struct exo_registry {
    const char *what;                      /* the kind in messages: "strategy" */
    pthread_mutex_t lock;                  /* a leaf: no other lock is taken under it */
    size_t count;                          /* guarded by lock, like `classes` */
    const void *classes[EXO_REGISTRY_MAX]; /* (count), sorted by name */
} exo_registry;

/* An empty registry. */
#define EXO_REGISTRY(what_)                                                                        \
    {                                                                                              \
        .what = (what_), .lock = PTHREAD_MUTEX_INITIALIZER                                         \
    }

/* The index-th class in the order of names, or NULL after the last. A class that is added meanwhile
 * may move others up by one. */
const void *exo_registry_at(exo_registry *registry, size_t index);
/* The class of that name, or NULL. */
const void *exo_registry_find(exo_registry *registry, const char *name);
/* Adds a class, which must live as long as the process. Errors: EXISTS (the name is taken), INVAL
 * (no name), FULL. */
exo_status exo_registry_add(exo_registry *registry, const void *class_of, exo_err *err);
/* Returns NOT_FOUND with the name that was probably meant, or else with as many known names as
 * fit. */
exo_status exo_registry_unknown(exo_registry *registry, const char *name, exo_err *err);
/* How often exo_registry_unknown was called in this process: after an error a larger number says that a
 * name was not found, which a plugin may have. Any thread. */
size_t exo_registry_num_unknown(void);

#endif
