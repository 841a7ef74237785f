/* The strategies by name: those of the library, then those that programs and plugins register.
 *
 * Registered classes are an append-only list. A link is set once, from NULL, by compare-and-swap after every name before it
 * has been compared; so names are unique without a lock, and readers need none either.
 */
#include "builtin.h"

#include <stdatomic.h>
#include <string.h>

#include <exogym/memory.h>

static const exo_strategy_class *const builtin[] = {
    &exo_ddp_class,
    &exo_diloco_class,
    &exo_sparta_class,
    &exo_fedavg_class,
};

enum {
    NUM_BUILTIN = sizeof builtin / sizeof *builtin
};

struct entry {
    const exo_strategy_class *strategy_class;
    struct entry *_Atomic next;
};

static struct entry *_Atomic registered; /* entries live as long as the process */

const exo_strategy_class *
exo_strategy_class_at(size_t index)
{
    if (index < NUM_BUILTIN)
        return builtin[index];
    struct entry *entry = atomic_load(&registered);
    for (size_t i = NUM_BUILTIN; entry && i < index; i++)
        entry = atomic_load(&entry->next);
    return entry ? entry->strategy_class : NULL;
}

const exo_strategy_class *
exo_strategy_class_find(const char *name)
{
    const exo_strategy_class *found = NULL;
    for (size_t i = 0; (found = exo_strategy_class_at(i)) != NULL; i++)
        if (strcmp(found->name, name) == 0)
            return found;
    return NULL;
}

static exo_status
fail_exists(const char *name, exo_err *err)
{
    return exo_fail(err, EXO_EXISTS, "there is already a strategy '%s'", name);
}

exo_status
exo_strategy_register(const exo_strategy_class *strategy_class, exo_err *err)
{
    const char *name = strategy_class->name;
    if (!name || !*name || !strategy_class->step)
        return exo_fail(err, EXO_INVAL, "a strategy class needs a name and a step function");
    for (size_t i = 0; i < NUM_BUILTIN; i++)
        if (strcmp(builtin[i]->name, name) == 0)
            return fail_exists(name, err);
    struct entry *entry = exo_calloc(1, sizeof *entry);
    if (!entry)
        return exo_fail(err, EXO_NOMEM, "no memory to register the strategy '%s'", name);
    entry->strategy_class = strategy_class;

    struct entry *_Atomic *link = &registered;
    for (;;) {
        struct entry *next = NULL;
        if (atomic_compare_exchange_strong(link, &next, entry))
            return EXO_OK;
        if (strcmp(next->strategy_class->name, name) == 0) {
            exo_free(entry);
            return fail_exists(name, err);
        }
        link = &next->next;
    }
}
