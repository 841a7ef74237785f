/* `exogym run` of a graph: runs its actors in this process or on workers, with progress, figures,
 * ledger and timeline. */
#ifndef EXO_PROGRAMS_RUN_GRAPH_H
#define EXO_PROGRAMS_RUN_GRAPH_H

#include <stdbool.h>

#include "graph/spec.h"
#include "programs/args.h"
#include "programs/local_cluster.h"

typedef struct exo_run_graph_opts {
    const exo_graph_spec *spec;
    const char *save_dir; /* NULL: "runs" */
    bool overwrite;       /* replace a finished run, too */
    bool resume;          /* continue the run in the folder */
    bool json;
    const exo_local_cluster *cluster; /* runtime NULL: in this process */
    const _Atomic int *stop;
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
} exo_run_graph_opts;

/* Checks, before anything is started, that the run's folder may be used. Errors: EXISTS, if it
 * holds a finished run, and neither `overwrite` nor `resume` is set; with `resume`, those of
 * exo_graph_folder_check_resume. */
exo_status exo_run_graph_check(const char *save_dir, const exo_graph_spec *spec, bool overwrite,
                               bool resume, exo_err *err);
/* Runs the graph and prints the results. Returns the exit status. */
int exo_run_graph(const exo_run_graph_opts *opts);

#endif
