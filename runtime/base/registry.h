/* Classes by name: those of the library, then those that programs and plugins register.
 *
 * What is registered is an append-only list. A link is set once, from NULL, by compare-and-swap after every name before it has been
 * compared: names are unique without a lock, and readers need none either. A registry is a static object; any thread may use it.
 */
#ifndef EXO_REGISTRY_H
#define EXO_REGISTRY_H

#include <stddef.h>

#include <exogym/status.h>

struct exo_registry_entry;

typedef struct exo_registry {
    const char *what;           /* one of them, for messages: "strategy"         */
    const void *const *builtin; /* (num_builtin) classes, each beginning with its name: const char * */
    size_t num_builtin;
    struct exo_registry_entry *_Atomic registered; /* live as long as the process */
} exo_registry;

/* The i-th class, built-in ones first, or NULL after the last. */
const void *exo_registry_at(exo_registry *registry, size_t index);
/* The class of that name, or NULL. */
const void *exo_registry_find(exo_registry *registry, const char *name);
/* Adds a class, which must live as long as the process. Errors: EXISTS, INVAL (no name), NOMEM. */
exo_status exo_registry_add(exo_registry *registry, const void *class_of, exo_err *err);
/* NOT_FOUND with the names that there are. */
exo_status exo_registry_unknown(exo_registry *registry, const char *name, exo_err *err);

#endif
