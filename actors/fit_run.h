/* Runs one fit from beginning to end. The caller's thread owns its state. Read next: fit_impl.h. */
#ifndef EXO_FIT_RUN_H
#define EXO_FIT_RUN_H

#include <exogym/actor.h>
#include <exogym/trainer.h>

#include "graph/spec.h"

/* For nodes on the workers of a cluster instead of in this process. The texts are YAML in flow
 * style and are borrowed for the duration of the fit. */
typedef struct exo_fit_far {
    exo_runtime *runtime; /* joined to the cluster */
    const char *run;      /* namespace of the nodes, unique to this run */
    const char *model, *data;
    const char *const *plugins; /* absolute paths */
    size_t num_plugins;
    /* Writes why the actor of that name died, "" if the cause is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    void *context;
} exo_fit_far;

/* Callbacks for changes of the graph during training. `next`, `due` and `changed` are called between
 * two segments, when all nodes are idle. They run on the caller's thread. */
typedef struct exo_fit_live {
    void *context;
    /* Gives a new graph for the steps after `step`, and its text; false: there is none. The graph
     * has passed exo_graph_check_job_change against `now`, and it lives until the fit ends. */
    bool (*next)(void *context, uint64_t step, const exo_graph_spec *now,
                 const exo_graph_spec **graph, const char **text);
    /* The step after which `next` certainly has a graph; `next` is asked no later than then.
     * UINT64_MAX: none. May be NULL. */
    uint64_t (*due)(void *context);
    /* Receives the result of a change after `step` steps, at the time `at` of the run's clock. */
    void (*changed)(void *context, uint64_t step, exo_time at, exo_status status,
                    const char *reason);
    /* Receives a line for the user, before the first step. May be NULL. */
    void (*note)(void *context, const char *line);
    /* Called at the end of a complete run to write further files. The nodes are gone, and the
     * folder is still locked. An error is the run's. May be NULL. */
    exo_status (*finished)(void *context, const exo_fit_result *result, const exo_meters *meters,
                           exo_err *err);
    /* Becomes true if the run is stopped while its nodes are made or set up: it has no state of its own
     * yet. May be NULL. */
    bool *unbegun;
} exo_fit_live;

/* Does the work of exo_trainer_fit. `train` and `val` may be NULL if opts->factory makes them.
 *
 * far: NULL for nodes in this process; else `train` and `val` are the data sets that its texts
 * name.
 *
 * graph: the job's graph, whose first actor is the node, with clock, hosts, links, edges and
 * declared costs. NULL: the real clock, and nothing is emulated.
 *
 * live: may be NULL. */
exo_status exo_fit_run(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
                       exo_config *options, const exo_fit_opts *opts, const exo_fit_far *far,
                       const exo_graph_spec *graph, const exo_fit_live *live,
                       exo_fit_result *result, exo_err *err);

/* Lets the time of a fit pass without the fit: its nodes take their steps on the virtual clock, where
 * a step costs `step_cost` ns on a host of speed 1 and messages take the time of the graph's links;
 * but nothing is computed, no data moves, and no files are written. A copy of the model takes
 * addresses and hardly any memory. The result has times and traffic alone, which are those of a run
 * with that declared cost, for strategies whose messages do not depend on values, such as ddp and
 * fsdp. opts: evaluations, checkpoints, elastic runs and failures do not count. Errors: INVAL (the
 * graph is not on the virtual clock), those of exo_fit_run. */
exo_status exo_fit_rehearse(exo_model *model, exo_dataset *train, const char *strategy,
                            exo_config *options, const exo_fit_opts *opts,
                            const exo_graph_spec *graph, exo_time step_cost, exo_fit_result *result,
                            exo_err *err);

#endif
