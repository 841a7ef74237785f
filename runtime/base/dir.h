/* Names below folders that somebody else may have made. Any thread.
 *
 * A run writes into a folder that may have come from elsewhere, with links where the run has files
 * and folders. A folder that is guarded is where a path that leads into it stops to follow links:
 * every name beneath is looked up by openat from the folder above, without following, so that a
 * link is an error (ELOOP), be it put there this moment. The way to a guarded folder may have
 * links: that is the user's. Of two that lie in each other, the outer one counts. Paths are
 * compared as they are written.
 *
 * Everything that changes what is on a disk goes through here or through file.h, which does so too;
 * tools/check_files.sh has the few places that may do otherwise, each with its reason. Functions
 * have the results of the calls that they are named after, and errno. */
#ifndef EXO_BASE_DIR_H
#define EXO_BASE_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

#include <exogym/status.h>

/* From now on, for the rest of the process. Twice is fine. NOMEM. */
exo_status exo_dir_guard(const char *folder, exo_err *err);

/* open(2), always with O_CLOEXEC. */
int exo_dir_open(const char *path, int flags, mode_t mode);
int exo_dir_unlink(const char *path);
int exo_dir_mkdir(const char *path, mode_t mode);
int exo_dir_rmdir(const char *path);
/* As renameat2(2). */
int exo_dir_rename(const char *from, const char *to, unsigned flags);
DIR *exo_dir_list(const char *path);
/* mkstemp(3), but with the mode that the umask leaves of 0666. `path` ends in XXXXXX, which becomes
 * the name. */
int exo_dir_temporary(char *path);
/* The same for a folder, with what the umask leaves of 0777: 0, or -1. */
int exo_dir_temporary_folder(char *path);
/* strerror, and what ELOOP means here. */
const char *exo_dir_reason(int number);

#endif
