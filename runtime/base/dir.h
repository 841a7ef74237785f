/* Access to names below folders that others may have made. Any thread.
 *
 * A run writes into a folder that may come from elsewhere, with links in place of the run's files
 * and folders. A guarded folder prevents that such links are followed: every name below it is
 * looked up by openat from the folder above, without following links, so a link is an error
 * (ELOOP), even if it was put there a moment ago. The path to a guarded folder may contain links,
 * which are the user's own. Of two nested guarded folders the outer one counts. Paths are compared
 * as they are written.
 *
 * Every change on a disk goes through this file or through file.h, which uses it.
 * tools/check_files.sh lists the few exceptions with their reasons. Each function returns the
 * result, and sets the errno, of the call that it is named after. */
#ifndef EXO_BASE_DIR_H
#define EXO_BASE_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

#include <exogym/status.h>

/* Guards a folder for the rest of the process; guarding it twice is allowed. Errors: NOMEM. */
exo_status exo_dir_guard(const char *folder, exo_err *err);

/* open(2), always with O_CLOEXEC. */
int exo_dir_open(const char *path, int flags, mode_t mode);
int exo_dir_unlink(const char *path);
int exo_dir_mkdir(const char *path, mode_t mode);
int exo_dir_rmdir(const char *path);
/* renameat2(2). */
int exo_dir_rename(const char *from, const char *to, unsigned flags);
DIR *exo_dir_list(const char *path);
/* mkstemp(3), but with mode 0666 less the umask. `path` ends in XXXXXX, which becomes the name. */
int exo_dir_temporary(char *path);
/* The same for a folder, with mode 0777 less the umask: 0, or -1. */
int exo_dir_temporary_folder(char *path);
/* strerror, except that ELOOP gives its meaning here, and limits of descriptors what to raise. */
const char *exo_dir_reason(int number);

#endif
