/* Compares spellings by edit distance (optimal string alignment). No state. */
#include "base/nearest.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum {
    /* longer words get no suggestion */
    MAX_LENGTH = 40
};

static size_t
min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of edits (insert, delete, replace, swap of neighbours) from `a` to `b`; SIZE_MAX if
 * either is too long. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t rows[3][MAX_LENGTH + 1];
    size_t length_a = strlen(a), length_b = strlen(b);
    if (length_a > MAX_LENGTH || length_b > MAX_LENGTH)
        return SIZE_MAX;
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= length_b; j++) {
        before[j] = 0;
        last[j] = j;
    }
    for (size_t i = 1; i <= length_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            row[j] =
                min_size(last[j - 1] + (a[i - 1] != b[j - 1]), min_size(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[length_b];
}

void
exo_nearest_try(exo_nearest *nearest, const char *name)
{
    size_t edits = strcasecmp(nearest->word, name) == 0 ? 0 : edit_distance(nearest->word, name);
    if (edits != SIZE_MAX && (!nearest->name || edits < nearest->edits)) {
        nearest->name = name;
        nearest->edits = edits;
    }
}

const char *
exo_nearest_name(const exo_nearest *nearest)
{
    /* Up to 1 + a third of the letters may be wrong, but not all of them. */
    size_t length = strlen(nearest->word);
    bool near = nearest->name && nearest->edits <= 1 + length / 3 && nearest->edits < length;
    return near ? nearest->name : NULL;
}
