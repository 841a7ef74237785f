/* A training job: the YAML file, presets and overrides applied, everything checked before anything
 * starts.
 *
 * docs/jobs.md has the keys. Owner: the command that loaded it; one thread. Read next: job.c,
 * run.c. */
#ifndef EXO_PROGRAMS_JOB_H
#define EXO_PROGRAMS_JOB_H

#include <exogym/trainer.h>

#include "graph/spec.h"
#include "programs/args.h"

enum {
    EXO_JOB_SEEDS = 64 /* at most */
};

/* One run of the job: a strategy with its options, and a seed. */
typedef struct exo_job_run {
    const char *group; /* the strategy's label: with seeds the runs of a group follow each other */
    const char *label; /* names the run and its folder: the group, with seeds GROUP-seedN         */
    char *own_label;   /* what `label` points to, where it is made here; or NULL                  */
    uint64_t seed;
    const char *strategy;   /* registered name              */
    exo_config *options;    /* its mapping, what all runs share included */
    exo_config_doc *config; /* a job of this run alone, with every default; owned */
    char *config_json;      /* the same as text                     */
    exo_graph_spec *graph;  /* the actors and edges that it stands for    */
} exo_job_run;

typedef struct exo_job {
    exo_config_doc *doc;
    char *folder; /* save_dir/name */
    const char *name;
    const char *save_dir;
    const char *model_name, *data_name;
    exo_config *model_config, *data_config; /* mappings */
    exo_fit_opts opts;                      /* what all runs share */
    const char *const *plugins;             /* absolute paths */
    size_t num_plugins;
    uint64_t *seeds; /* (num_seeds), at least one */
    size_t num_seeds;
    bool has_seeds;    /* the job says `seeds`      */
    exo_job_run *runs; /* each strategy with each seed */
    size_t num_runs;
    exo_model *model;
    exo_dataset *train, *val;
} exo_job;

typedef struct exo_job_opts {
    const char *preset;   /* NULL: none */
    exo_words sets;       /* KEY=VALUE  */
    const char *save_dir; /* NULL: the file's */
    const char *name;
} exo_job_opts;

/* Checks the document, which becomes the job's, loads its plugins, builds the model and opens the
 * data. Errors: INVAL (the job is wrong; names place or argument), anything else (something is
 * missing or failed). The caller releases the job, also after an error. */
exo_status exo_job_from(exo_job *job, exo_config_doc **doc, const exo_job_opts *opts, exo_err *err);
void exo_job_release(exo_job *job);

/* job_seeds.c: reads `seeds`, after `seed`; and names a run of a group by its index-th seed. */
exo_status exo_job_read_seeds(exo_config *root, exo_job *job, exo_err *err);
exo_status exo_job_label_seed(const exo_job *job, exo_job_run *run, size_t index, exo_err *err);

/* How many steps each node does: max_steps, or num_epochs over the smallest share of the data. */
uint64_t exo_job_steps(const exo_job *job);
/* job_config.c: fills in what each run's config.json says, once opts.minibatch_size is a number. */
exo_status exo_job_write_configs(exo_job *job, exo_err *err);

/* job_graph.c: fills in the graph of each run. */
exo_status exo_job_make_graphs(exo_job *job, exo_err *err);

#endif
