/* Identities: see identity.h. */
#include "base/identity.h"

#include <stdio.h>
#include <string.h>

#include <exogym/memory.h>

exo_identity *
exo_identity_new(const exo_identity *from)
{
    exo_identity *copy = exo_calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *from;
    atomic_init(&copy->references, 1);
    return copy;
}

exo_identity *
exo_identity_hold(const exo_identity *identity)
{
    exo_identity *i = (exo_identity *)(uintptr_t)identity;
    if (i)
        atomic_fetch_add(&i->references, 1);
    return i;
}

void
exo_identity_drop(exo_identity **identity)
{
    exo_identity *i = *identity;
    *identity = NULL;
    if (i && atomic_fetch_sub(&i->references, 1) == 1)
        exo_free(i);
}

bool
exo_identity_is_same(const exo_identity *a, const exo_identity *b)
{
    if (a->key[0] || b->key[0])
        return strcmp(a->key, b->key) == 0;
    if (!a->pid || !b->pid)
        return true;
    return a->pid == b->pid && (a->start == b->start || !a->start || !b->start);
}

void
exo_identity_describe(const exo_identity *identity, char *out, size_t size)
{
    if (!identity)
        snprintf(out, size, "this process");
    else if (identity->name[0])
        snprintf(out, size, "%s", identity->name);
    else if (identity->key[0])
        snprintf(out, size, "the key %.8s...", identity->key);
    else if (identity->pid)
        snprintf(out, size, "process %u", identity->pid);
    else
        snprintf(out, size, "somebody");
}
