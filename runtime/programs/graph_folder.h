/* The folder of a graph's run. It holds one run, as the folders of training jobs do (run_folder.h).
 * No state. */
#ifndef EXO_PROGRAMS_GRAPH_FOLDER_H
#define EXO_PROGRAMS_GRAPH_FOLDER_H

#include <stdbool.h>

#include "graph/spec.h"

/* Errors: EXISTS, if the folder holds a finished run and `overwrite` is false. Finished means to
 * its end or to `until`. A stopped, failed or killed run is always replaced. */
exo_status exo_graph_folder_check_free(const char *folder, bool overwrite, exo_err *err);

/* Does a class of the graph write checkpoints that --resume goes on from? */
bool exo_graph_folder_can_resume(const exo_graph_spec *graph);

/* Whether the run in the folder can be resumed with this graph. Errors: NOT_FOUND: there is none;
 * INVAL: no class of the graph writes checkpoints, or the run was begun with another graph, whose
 * first difference is named; IO, NOMEM. */
exo_status exo_graph_folder_check_resume(const char *folder, const exo_graph_spec *graph,
                                         exo_err *err);

/* Removes the files of an earlier run, its result first. With `resume`, those of actors that
 * continue stay. The caller holds the folder's lock. Files that the next run replaces at once stay
 * until then. Errors: IO names what cannot be removed. */
exo_status exo_graph_folder_start_over(const char *folder, bool resume, exo_err *err);

/* The number of the run that begins in the folder, or continues there (exo_graph_run_number), from the
 * file `.graph.run`; new: draws it, unless the run is resumed. 0: the run began in one process. The
 * caller holds the folder's lock. Errors: IO, NOMEM; DAMAGED: the file is not what was written. */
exo_status exo_graph_folder_number(const char *folder, bool resume, bool draw, uint64_t *number,
                                   exo_err *err);

#endif
