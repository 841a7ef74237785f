/* The graph classes by name: those of the library, then those that programs and plugins register.
 *
 * Registered classes are an append-only list. A link is set once, from NULL, by compare-and-swap after every name before it has been
 * compared; so names are unique without a lock, and readers need none either.
 */
#include "builtin.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

#include "nearest.h"

static const exo_graph_class *const builtin[] = {
    &exo_train_node_graph_class,
    &exo_stand_in_class,
    &exo_cartpole_maker_class,
    &exo_cartpole_trainer_class,
};

enum {
    NUM_BUILTIN = sizeof builtin / sizeof *builtin
};

struct entry {
    const exo_graph_class *graph_class;
    struct entry *_Atomic next;
};

static struct entry *_Atomic registered; /* entries live as long as the process */

const exo_graph_class *
exo_graph_class_at(size_t index)
{
    if (index < NUM_BUILTIN)
        return builtin[index];
    struct entry *entry = atomic_load(&registered);
    for (size_t i = NUM_BUILTIN; entry && i < index; i++)
        entry = atomic_load(&entry->next);
    return entry ? entry->graph_class : NULL;
}

const exo_graph_class *
exo_graph_class_find(const char *name)
{
    const exo_graph_class *found = NULL;
    for (size_t i = 0; (found = exo_graph_class_at(i)) != NULL; i++)
        if (strcmp(found->name, name) == 0)
            return found;
    return NULL;
}

exo_status
exo_graph_class_get(const exo_graph_class **out, const char *name, exo_err *err)
{
    exo_nearest nearest = {.word = name};
    char known[EXO_ERR_TEXT / 2] = "";
    size_t used = 0;
    const exo_graph_class *c = NULL;
    *out = exo_graph_class_find(name);
    if (*out)
        return EXO_OK;
    for (size_t i = 0; (c = exo_graph_class_at(i)) != NULL; i++) {
        exo_nearest_try(&nearest, c->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", c->name);
    }
    if (exo_nearest_name(&nearest))
        return exo_fail(err, EXO_NOT_FOUND, "there is no graph class '%.60s'; did you mean '%s'?", name, nearest.name);
    return exo_fail(err, EXO_NOT_FOUND, "there is no graph class '%.60s'; known are: %s", name, known);
}

static exo_status
fail_exists(const char *name, exo_err *err)
{
    return exo_fail(err, EXO_EXISTS, "there is already a graph class '%s'", name);
}

/* Ports that a graph could not tell apart, or that have no name. */
static exo_status
check_ports(const exo_graph_class *c, exo_err *err)
{
    for (size_t i = 0; i < c->num_ports; i++) {
        if (!c->ports[i].name || !*c->ports[i].name || !c->ports[i].type)
            return exo_fail(err, EXO_INVAL, "graph class '%s': a port needs a name and a type", c->name);
        for (size_t k = 0; k < i; k++)
            if (c->ports[i].direction == c->ports[k].direction && strcmp(c->ports[i].name, c->ports[k].name) == 0)
                return exo_fail(err, EXO_INVAL, "graph class '%s': two ports '%s' of one direction", c->name,
                                c->ports[i].name);
    }
    return EXO_OK;
}

exo_status
exo_graph_class_register(const exo_graph_class *graph_class, exo_err *err)
{
    const char *name = graph_class->name;
    if (!name || !*name || !graph_class->run)
        return exo_fail(err, EXO_INVAL, "a graph class needs a name and a run function");
    exo_status st = check_ports(graph_class, err);
    if (st != EXO_OK)
        return st;
    for (size_t i = 0; i < NUM_BUILTIN; i++)
        if (strcmp(builtin[i]->name, name) == 0)
            return fail_exists(name, err);
    struct entry *entry = exo_calloc(1, sizeof *entry);
    if (!entry)
        return exo_fail(err, EXO_NOMEM, "no memory to register the graph class '%s'", name);
    entry->graph_class = graph_class;

    struct entry *_Atomic *link = &registered;
    for (;;) {
        struct entry *next = NULL;
        if (atomic_compare_exchange_strong(link, &next, entry))
            return EXO_OK;
        if (strcmp(next->graph_class->name, name) == 0) {
            exo_free(entry);
            return fail_exists(name, err);
        }
        link = &next->next;
    }
}
