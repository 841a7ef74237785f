/* The plan of a job: each composition (parallelism.h) with the memory of a node and the time of a step,
 * best first. Memory is that of `exogym run --dry-run`. Times are those of the virtual clock, on which
 * the job's nodes rehearse a few steps (exo_fit_rehearse).
 *
 * Owner: the command that makes the plan; one thread. Read next: planner.c; plan.c (the command);
 * job_parallel.c (the job's key `parallel`). */
#ifndef EXO_PROGRAMS_PLANNER_H
#define EXO_PROGRAMS_PLANNER_H

#include <exogym/clock.h>

#include "base/config_edit.h"
#include "base/config_units.h"
#include "programs/parallelism.h"

typedef struct exo_job_plan_opts {
    uint32_t nodes;     /* 0: the job's */
    uint64_t memory;    /* bytes that a node may take; 0: any number */
    exo_time step_time; /* computation of a step on a host of speed 1; -1: the job's, or measured */
    const char *subject; /* of messages: "plan", "parallel" */
} exo_job_plan_opts;

typedef struct exo_job_plan_entry {
    exo_parallelism composition;
    exo_config_doc *options; /* the strategy's mapping; owned */
    size_t minibatch_size;   /* the largest with which the composition fits, else the smallest */
    uint64_t memory;         /* of a node, bytes */
    bool fits;
    double seconds;   /* of a step; only of compositions that fit */
    uint64_t traffic; /* bytes that a node sends in a step, in the mean; likewise */
} exo_job_plan_entry;

/* Where the cost of a step comes from. */
typedef enum exo_job_plan_cost {
    EXO_JOB_PLAN_DECLARED, /* the job's `compute` */
    EXO_JOB_PLAN_GIVEN,    /* exo_job_plan_opts */
    EXO_JOB_PLAN_MEASURED  /* steps of one node in this process */
} exo_job_plan_cost;

typedef struct exo_job_plan {
    uint32_t nodes;
    uint64_t memory_limit; /* 0: none */
    exo_time step_cost;    /* ns, on a host of speed 1 */
    exo_job_plan_cost cost;
    bool linked;                 /* the job declares links or rates: messages take time */
    char *model;                 /* its name; owned */
    size_t numel;                /* its parameters */
    size_t batch_size;           /* samples of a node in a step */
    exo_job_plan_entry *entries; /* (count) those that fit first, best first; else by memory */
    size_t count, num_fitting;
    /* compositions that the job refuses, such as parts with correlations, and the first one's reason */
    size_t num_refused;
    char refusal[EXO_ERR_TEXT];
    /* of the job, for assignments */
    size_t job_minibatch; /* 0: auto */
    bool job_checkpoint, job_parallel, model_is_name;
} exo_job_plan;

enum {
    EXO_JOB_PLAN_SETS = 6 /* most assignments of a composition */
};

/* Plans a job, which needs ddp or fsdp as its only strategy. The document has presets and overrides
 * applied; the plan takes it over. A plan in which nothing fits is no error. The caller releases *plan,
 * also after an error. Errors: those of exo_job_from, of exo_fit_rehearse, and of measured steps. */
exo_status exo_job_plan_make(exo_job_plan *plan, exo_config_doc **doc,
                             const exo_job_plan_opts *opts, exo_err *err);
void exo_job_plan_release(exo_job_plan *plan);

/* Writes the assignments (as of --set) that turn the job into this composition, without the number of
 * nodes. sets (EXO_JOB_PLAN_SETS) get *count texts, which the caller frees. NOMEM. */
exo_status exo_job_plan_assignments(const exo_job_plan *plan, const exo_job_plan_entry *entry,
                                    char *sets[EXO_JOB_PLAN_SETS], size_t *count, exo_err *err);
/* Fails with FAILED: nothing fits; the message has the smallest composition. */
exo_status exo_job_plan_fail_none(const exo_job_plan *plan, const char *subject, exo_err *err);
/* "60 ms", "1.23 s". Returns `out`. */
const char *exo_job_plan_seconds(double seconds, char out[EXO_UNIT_TEXT]);

#endif
