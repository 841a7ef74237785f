/* The folder of a run: who writes into it, whether its run has finished, and how another begins there. A folder holds one run. */
#ifndef EXO_RUN_FOLDER_H
#define EXO_RUN_FOLDER_H

#include <stdbool.h>

#include <exogym/status.h>

/* Takes the folder for this process: the caller closes *lock. EXISTS: another run writes into it. IO. */
exo_status exo_run_lock(const char *folder, int *lock, exo_err *err);

/* Whether its run has finished: there is its model. */
bool exo_run_is_finished(const char *folder);
/* EXISTS, if it has and may not be replaced. */
exo_status exo_run_check_free(const char *folder, bool overwrite, exo_err *err);

/* Makes room for another run; the caller has the lock. Checkpoints of one that did not finish are put aside (and logged), unless `overwrite`;
 * everything else that a run writes is removed, the model and the result first. IO names what cannot be. */
exo_status exo_run_start_over(const char *folder, bool overwrite, exo_err *err);
/* A finished run goes on: it has no model and no result any more, until it finishes again. */
exo_status exo_run_reopen(const char *folder, exo_err *err);

#endif
