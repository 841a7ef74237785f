/* Folders of clusters that one command starts: see cluster_folder.h. */
#include "programs/cluster_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/file.h"
#include "programs/folder.h"

#define NAME "exogym-run-"
#define LOCK "lock"

enum {
    LONGEST_TMPDIR = 40 /* a socket's path must be short */
};

static const char *
parent(void)
{
    const char *named = getenv("TMPDIR");
    return named && named[0] == '/' && strlen(named) < LONGEST_TMPDIR ? named : "/tmp";
}

/* The file has its name only once it is locked, so nobody takes a new folder for a dead one's. */
static exo_status
lock_folder(const char *path, int *lock, exo_err *err)
{
    char fresh[PATH_MAX], named[PATH_MAX];
    snprintf(fresh, sizeof fresh, "%s/" LOCK ".new", path);
    snprintf(named, sizeof named, "%s/" LOCK, path);
    *lock = exo_dir_open(fresh, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (*lock >= 0 && exo_file_lock(*lock) && exo_dir_rename(fresh, named, 0) == 0)
        return EXO_OK;
    const exo_status st =
        exo_fail(err, EXO_IO, "%s: the folder cannot be locked: %s", path, strerror(errno));
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
    return st;
}

exo_status
exo_cluster_folder_make(char *path, size_t size, int *lock, exo_err *err)
{
    snprintf(path, size, "%s/" NAME "XXXXXX", parent());
    if (!mkdtemp(path)) {
        const exo_status st =
            exo_fail(err, EXO_IO,
                     "%s: no folder can be made: %s (TMPDIR: an absolute path of less than %d "
                     "characters where you may write)",
                     path, strerror(errno), LONGEST_TMPDIR);
        path[0] = 0;
        return st;
    }
    const exo_status st = lock_folder(path, lock, err);
    if (st != EXO_OK) {
        exo_folder_remove(path);
        path[0] = 0;
    }
    return st;
}

/* Whether it is a folder of this user that no living command holds. *lock: its file, locked now. */
static bool
is_left(const char *path, int *lock)
{
    char named[PATH_MAX];
    struct stat folder, file;
    *lock = -1;
    if (lstat(path, &folder) != 0 || !S_ISDIR(folder.st_mode) || folder.st_uid != geteuid() ||
        (folder.st_mode & 077) != 0)
        return false;
    snprintf(named, sizeof named, "%s/" LOCK, path);
    *lock = exo_dir_open(named, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (*lock >= 0 && fstat(*lock, &file) == 0 && S_ISREG(file.st_mode) && exo_file_lock(*lock))
        return true;
    if (*lock >= 0)
        close(*lock);
    return false;
}

unsigned
exo_cluster_folder_sweep(bool removes)
{
    char path[PATH_MAX];
    unsigned found = 0;
    int lock;
    DIR *all = exo_dir_list(parent());
    for (struct dirent *e; all && (e = readdir(all));) {
        if (strncmp(e->d_name, NAME, strlen(NAME)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", parent(), e->d_name) >= PATH_MAX ||
            !is_left(path, &lock))
            continue;
        found++;
        if (removes)
            exo_folder_remove(path);
        close(lock);
    }
    if (all)
        closedir(all);
    return found;
}
