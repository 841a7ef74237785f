/* The folders of clusters that one command starts (local_cluster.h): exogym-run-XXXXXX below $TMPDIR. A living
 * command holds a lock on the file `lock` in its folder; the kernel ends the lock with the process, however that
 * dies. So a folder whose file can be locked belongs to nobody. No state; any thread. */
#ifndef EXO_PROGRAMS_CLUSTER_FOLDER_H
#define EXO_PROGRAMS_CLUSTER_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include <exogym/status.h>

/* Makes a folder that is locked until *lock is closed, and writes its path. Errors: IO, with `path` empty. */
exo_status exo_cluster_folder_make(char *path, size_t size, int *lock, exo_err *err);
/* Looks for this user's folders without a living command, and with `removes` removes them. Others stay: those of
 * other users, and those without the file. Returns their number. */
unsigned exo_cluster_folder_sweep(bool removes);

#endif
