/* The folder of a graph's run: it holds one run, as those of training jobs do (run_folder.h). No
 * state. */
#ifndef EXO_PROGRAMS_GRAPH_FOLDER_H
#define EXO_PROGRAMS_GRAPH_FOLDER_H

#include <stdbool.h>

#include <exogym/status.h>

/* EXISTS, if the folder holds a finished run, to its end or to `until`, that may not be replaced.
 * One that was stopped, failed or was killed may be: a graph cannot go on. */
exo_status exo_graph_folder_check_free(const char *folder, bool overwrite, exo_err *err);

/* Removes what an earlier run left, its result first; the caller has the folder's lock. What the
 * next run writes over at once stays until then. IO names what cannot be removed. */
exo_status exo_graph_folder_start_over(const char *folder, exo_err *err);

#endif
