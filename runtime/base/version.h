/* The version of this exogym. A program of a build from git that is no release also has the commit:
 * "0.1.0-dev.b05a561b12", and ".changed" if files differed from it. A library has none. The text is one
 * object of each program (cmake/commit.cmake), so a commit compiles nothing else anew. */
#ifndef EXO_BASE_VERSION_H
#define EXO_BASE_VERSION_H

#include <stdbool.h>

extern const char exo_version[];

/* Whether these are versions of two builds. A version without a commit, of a library or of a build
 * without git, may be that of any commit. */
bool exo_version_is_other(const char *a, const char *b);

#endif
