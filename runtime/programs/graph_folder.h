/* The folder of a graph's run. It holds one run, as the folders of training jobs do (run_folder.h).
 * No state. */
#ifndef EXO_PROGRAMS_GRAPH_FOLDER_H
#define EXO_PROGRAMS_GRAPH_FOLDER_H

#include <stdbool.h>

#include <exogym/status.h>

/* Errors: EXISTS, if the folder holds a finished run and `overwrite` is false. Finished means to
 * its end or to `until`. A stopped, failed or killed run is always replaced, because a graph cannot
 * be resumed. */
exo_status exo_graph_folder_check_free(const char *folder, bool overwrite, exo_err *err);

/* Removes the files of an earlier run, its result first. The caller holds the folder's lock. Files
 * that the next run replaces at once stay until then. Errors: IO names what cannot be removed. */
exo_status exo_graph_folder_start_over(const char *folder, exo_err *err);

#endif
