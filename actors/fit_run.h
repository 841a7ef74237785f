/* One fit from beginning to end. */
#ifndef EXO_FIT_RUN_H
#define EXO_FIT_RUN_H

#include <exogym/actor.h>
#include <exogym/trainer.h>

#include "graph/spec.h"

/* Nodes on the workers of a cluster instead of in this process. Texts are YAML in flow style; borrowed for the length of the fit. */
typedef struct exo_fit_far {
    exo_runtime *runtime; /* joined to the cluster */
    const char *run;      /* namespace of the nodes: one that no other run has */
    const char *model, *data;
    const char *const *plugins; /* absolute paths */
    size_t num_plugins;
    /* Writes why the actor of that name is dead, "" if that is not known; may be NULL. */
    void (*explain)(void *context, const char *space, const char *name, char *out, size_t size);
    void *context;
} exo_fit_far;

/* Changes while it trains: asked for between two segments, when all nodes are idle. */
typedef struct exo_fit_live {
    void *context;
    /* A graph to go over to after so many steps (checked by exo_graph_check_job_change against `now`; it lives until the fit is over), or false. */
    bool (*next)(void *context, uint64_t step, const exo_graph_spec *now,
                 const exo_graph_spec **graph, const char **text);
    /* After which step `next` has one for sure: it is asked then, not later. UINT64_MAX: none. May be NULL. */
    uint64_t (*due)(void *context);
    /* What came of it, after so many steps, at that time of the run's clock. */
    void (*changed)(void *context, uint64_t step, exo_time at, exo_status status,
                    const char *reason);
    /* The run has come to its end, its nodes are gone, and its folder is still locked: what else belongs there is written now. An error is
     * the run's. May be NULL. */
    exo_status (*finished)(void *context, const exo_fit_result *result, const exo_meters *meters,
                           exo_err *err);
} exo_fit_live;

/* exo_trainer_fit's work. `train` and `val` may be NULL if opts->factory makes them. far: NULL for nodes in this process; else `train`
 * and `val` are those that its texts name. graph: of the job, whose first actor is the node: its clock, hosts, links, edges and declared
 * costs; NULL: the real clock, and nothing emulated. live: may be NULL. */
exo_status exo_fit_run(exo_model *model, exo_dataset *train, exo_dataset *val, const char *strategy,
                       exo_config *options, const exo_fit_opts *opts, const exo_fit_far *far,
                       const exo_graph_spec *graph, const exo_fit_live *live,
                       exo_fit_result *result, exo_err *err);

#endif
