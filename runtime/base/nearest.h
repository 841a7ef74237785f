/* Suggestions for misspelt words: the name that was probably meant. No state. */
#ifndef EXO_NEAREST_H
#define EXO_NEAREST_H

#include <stddef.h>

typedef struct exo_nearest {
    const char *word; /* the misspelt word; the caller sets it and zeroes the rest */
    const char *name; /* the best name so far, or NULL */
    size_t edits;     /* edit distance from the word to it */
} exo_nearest;

/* Compares `name` with the word; of equally near names the first is kept. */
void exo_nearest_try(exo_nearest *nearest, const char *name);
/* The nearest name, or NULL if none is near enough for a suggestion. */
const char *exo_nearest_name(const exo_nearest *nearest);

#endif
