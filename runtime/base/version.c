/* Versions: see version.h. No state. */
#include "base/version.h"

#include <string.h>

/* What programs replace by a text of their own (base/commit.c.in). */
__attribute__((weak)) const char exo_version[] = EXO_VERSION;

bool
exo_version_is_other(const char *a, const char *b)
{
    const char *commit_a = strstr(a, "-dev."), *commit_b = strstr(b, "-dev.");
    size_t length_a = commit_a ? (size_t)(commit_a - a) : strlen(a),
           length_b = commit_b ? (size_t)(commit_b - b) : strlen(b);
    if (length_a != length_b || strncmp(a, b, length_a) != 0)
        return true;
    return commit_a && commit_b && strcmp(commit_a, commit_b) != 0;
}
