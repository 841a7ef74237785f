/* Removes temporary folders: see folder.h. */
#include "programs/folder.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exogym/clock.h>

#define TRIES_FOR (2 * EXO_SECOND)

static int
remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    remove(path); /* fails if another process has removed it */
    return 0;
}

void
exo_folder_remove(const char *path)
{
    exo_time deadline = exo_deadline(exo_clock_real(), TRIES_FOR);
    for (;;) {
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        if (access(path, F_OK) != 0 || exo_now(exo_clock_real()) >= deadline)
            return;
        usleep(2000);
    }
}
