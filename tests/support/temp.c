/* Folders of a test's own: see temp.h. */
#include "support/temp.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"

void
temp_folder(char *out, size_t size)
{
    CHECK(snprintf(out, size, "/tmp/exo-XXXXXX") < (int)size);
    CHECK(mkdtemp(out) != NULL);
}

static int
remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

void
temp_remove(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
