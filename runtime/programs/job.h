/* A training job: the YAML file with presets and overrides applied. All of it is checked before
 * anything starts.
 *
 * docs/jobs.md has the keys. Owner: the command that loaded the job; one thread. Read next: job.c,
 * run.c. */
#ifndef EXO_PROGRAMS_JOB_H
#define EXO_PROGRAMS_JOB_H

#include <exogym/engine.h>
#include <exogym/trainer.h>

#include "base/config_maker.h"
#include "graph/spec.h"
#include "programs/args.h"

enum {
    EXO_JOB_SEEDS = 64 /* the largest number of seeds */
};

/* One run of the job: a strategy with its options, and a seed. */
typedef struct exo_job_run {
    const char *group; /* the strategy's label; the runs of a group's seeds are adjacent */
    const char *label; /* names the run and its folder: the group or, with seeds, GROUP-seedN */
    char *own_label;   /* memory of `label` if it was made for this run; or NULL */
    uint64_t seed;
    const char *strategy;   /* registered name */
    exo_config *options;    /* the strategy's mapping, including what all runs share */
    exo_config_doc *config; /* a job of this run alone, with all defaults; owned */
    char *config_json;      /* `config` as text */
    exo_graph_spec *graph;  /* the equivalent graph of actors and edges */
} exo_job_run;

typedef struct exo_job {
    exo_config_doc *doc;
    char *folder; /* save_dir/name */
    const char *name;
    const char *suffix; /* of exo_job_opts */
    const char *save_dir;
    const char *model_name, *data_name;
    exo_config *model_config, *data_config; /* mappings */
    exo_fit_opts opts;                      /* shared by all runs */
    const char *const *plugins;             /* absolute paths */
    size_t num_plugins;
    uint64_t *seeds; /* (num_seeds), at least one */
    size_t num_seeds;
    bool has_seeds;    /* the job has the key `seeds` */
    exo_job_run *runs; /* each strategy with each seed */
    size_t num_runs;
    exo_model *model;
    exo_dataset *train, *val;
    char *chosen; /* what `parallel` has chosen, for people; NULL: the job has no such key */
} exo_job;

typedef struct exo_job_opts {
    const char *preset;   /* NULL: none */
    exo_words sets;       /* KEY=VALUE */
    const char *save_dir; /* NULL: as in the file */
    const char *name;
    const char *suffix; /* added to the label of each strategy; NULL: none */
} exo_job_opts;

/* Takes over the document and checks it, loads its plugins, builds the model and opens the data.
 * Errors: INVAL (the job is wrong; names the place or argument); other codes if a file is missing
 * or an operation failed. The caller releases the job, also after an error. */
exo_status exo_job_from(exo_job *job, exo_config_doc **doc, const exo_job_opts *opts, exo_err *err);
void exo_job_release(exo_job *job);

/* job_seeds.c: the first reads `seeds`, and is called after `seed` was read; the second labels a
 * run by its index-th seed. */
exo_status exo_job_read_seeds(exo_config *root, exo_job *job, exo_err *err);
exo_status exo_job_label_seed(const exo_job *job, exo_job_run *run, size_t index, exo_err *err);

/* job_wrap.c: moves what `parallel` says of data parallelism (use_fsdp, sharding_strategy, cpu_offload,
 * sync_module_states) to `strategy`, before the job is read. INVAL, with the place; NOMEM. */
exo_status exo_job_take_wrapping(exo_config_doc *doc, exo_err *err);
/* Marks these keys of `parallel` as known. */
void exo_job_know_wrapping(exo_config *parallel);
/* job_parallel.c: reads the key, once the nodes are known; checks it against the whole job. INVAL. */
exo_status exo_job_read_parallel(exo_config *root, exo_job *job, exo_err *err);
/* Sets the minibatch from the key `microbatches`, once `train` is known. INVAL. */
exo_status exo_job_cut_batch(exo_config *root, exo_job *job, exo_err *err);
exo_status exo_job_check_parallel(const exo_job *job, exo_err *err);
/* job_parallel.c: whether the key leaves the choice to a plan; *how: its mapping of `auto`, or NULL. INVAL. */
exo_status exo_job_asks_plan(exo_config *root, bool *asks, exo_config **how, exo_err *err);
/* job_auto.c: if so, replaces the key by what the job's plan says, in the document. It reads the job, its
 * data and its model. Errors: those of exo_job_plan_make; FAILED: nothing fits. */
exo_status exo_job_choose_parallel(exo_job *job, exo_err *err);

/* job_collectives.c: reads the key; checks it, once the engine is known; writes it into a run's
 * config. INVAL. */
exo_status exo_job_read_collectives(exo_config *root, exo_job *job, exo_err *err);
exo_status exo_job_check_collectives(exo_config *root, const exo_job *job,
                                     const exo_engine_class *engine, exo_err *err);
void exo_job_write_collectives(exo_config_maker *maker, exo_config *root, const exo_job *job);

/* The number of steps of each node: max_steps, or num_epochs over the smallest share of the
 * data. */
uint64_t exo_job_steps(const exo_job *job);
/* job_config.c: writes each run's config and config_json. opts.minibatch_size must be a number by
 * then. */
exo_status exo_job_write_configs(exo_job *job, exo_err *err);

/* job_graph.c: makes the graph of each run. */
exo_status exo_job_make_graphs(exo_job *job, exo_err *err);
/* Checks that the nodes of a job can run every strategy: they have one edge. The graph of a job may
 * have more, so those who print it do not ask. INVAL. */
exo_status exo_job_check_edges(const exo_job *job, exo_err *err);

#endif
