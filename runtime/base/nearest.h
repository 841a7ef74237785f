/* The name that a misspelt word probably means. No state. */
#ifndef EXO_NEAREST_H
#define EXO_NEAREST_H

#include <stddef.h>

typedef struct exo_nearest {
    const char *word; /* what was written; the caller sets it, the rest is zero */
    const char *name; /* the best so far, or NULL */
    size_t edits;     /* from the word to it      */
} exo_nearest;

/* Holds `name` against the word; of equally near names the first stays. */
void exo_nearest_try(exo_nearest *nearest, const char *name);
/* The nearest of the names, or NULL if none is near enough to be worth a question. */
const char *exo_nearest_name(const exo_nearest *nearest);

#endif
