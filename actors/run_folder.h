/* The folder of a run: its lock, whether its run has finished, and how a new run begins in it. A
 * folder holds one run. No state. Read next: checkpoint.h. */
#ifndef EXO_RUN_FOLDER_H
#define EXO_RUN_FOLDER_H

#include <stdbool.h>

#include <exogym/status.h>

/* Locks the folder for this process; the caller closes *lock, a descriptor. Removes the temporary
 * files of killed writers. EXISTS: another run writes into the folder; INVAL, IO, NOMEM. */
exo_status exo_run_lock(const char *folder, int *lock, exo_err *err);

/* Whether the folder's run has finished: its model or its result exists. */
bool exo_run_is_finished(const char *folder);
/* EXISTS: the folder's run has finished, and `overwrite` is false. */
exo_status exo_run_check_free(const char *folder, bool overwrite, exo_err *err);

/* Clears the folder for another run; the caller holds the lock. Checkpoints of an unfinished run
 * are moved aside, and this is logged; `overwrite` removes them instead. All other files of a run
 * are removed, the result and the model first. IO names a file that cannot be removed. */
exo_status exo_run_start_over(const char *folder, bool overwrite, exo_err *err);
/* Removes the result and the model of a finished run, which is then unfinished and can continue. */
exo_status exo_run_reopen(const char *folder, exo_err *err);

#endif
