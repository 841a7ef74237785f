/* The trainer: N nodes train one model under a strategy.
 *
 *     exo_trainer_new(&trainer, model, train, val, err);
 *     exo_strategy_parse(&strategy, "diloco", "{H: 20, optimizer: {name: adamw, lr: 3e-4}}", err);
 *     exo_fit_opts opts = exo_fit_opts_init();
 *     opts.num_nodes = 4; opts.max_steps = 150; opts.batch_size = 256;
 *     exo_trainer_fit(trainer, "diloco", options, &opts, &result, err);
 *
 * Each node is an actor of the class train_node. The result is the average of the nodes' models.
 */
#ifndef EXOGYM_TRAINER_H
#define EXOGYM_TRAINER_H

#include <exogym/actor.h>
#include <exogym/data.h>
#include <exogym/meter.h>
#include <exogym/model.h>
#include <exogym/strategy.h>
#include <exogym/traffic.h>

EXO_DECLS_BEGIN

/* A model with its data, to be trained again and again from the same beginning. */
typedef struct exo_trainer exo_trainer;

/* One figure line of a running fit, for whoever shows progress. Pointers are valid during the
 * call. */
typedef struct exo_progress {
    uint64_t step, max_steps;               /* steps done by all nodes */
    float train_loss;                       /* node 0's, of its last step; NaN before the first */
    float lr;                               /* of that step */
    double samples_per_second;              /* over all nodes, of the last steps */
    double elapsed, eta;                    /* seconds */
    uint64_t bytes_sent;                    /* by the strategy, mean over the nodes, since step 0 */
    bool evaluated;                         /* the fields below are new */
    double local_loss, global_loss;         /* of node 0's model; of the average of all */
    double local_accuracy, global_accuracy; /* NaN if the model reports none */
    const char *edge;    /* the strategy's, as its graph calls it; always there */
    exo_traffic traffic; /* over it so far, all nodes together; likewise */
    /* of the run and its nodes, as they are now: to be walked (meter.h) */
    const exo_meters *meters;
} exo_progress;

/* How a fit runs. Each comment begins with the value that exo_fit_opts_init gives, where it is
 * none of the type's zeroes. */
typedef struct exo_fit_opts {
    uint32_t num_nodes; /* 1 */
    const char *device; /* "cpu"; NULL counts as that */
    /* of the strategy's collectives (engine.h); NULL: "auto", the library's */
    const char *engine;
    /* false: the engine must promise the bits of every other (EXO_ENGINE_ORDERED) */
    bool any_bits;
    uint64_t num_epochs;          /* 1; counts if max_steps is 0 */
    uint64_t max_steps;           /* 0: num_epochs decide */
    size_t batch_size;            /* 16; per node and step */
    size_t minibatch_size;        /* 0: batch_size. Must divide it. EXO_MINIBATCH_AUTO: what fits */
    bool shuffle;                 /* true */
    size_t val_size;              /* 64 samples; 0: the whole set. EXO_VAL_NONE: no evaluation */
    uint64_t val_interval;        /* 100 steps; 0: at the end only */
    bool autocast;                /* bf16 */
    uint64_t checkpoint_interval; /* steps; 0: none but at an interrupt and at the end */
    /* true: one at the end, so that the run can go on with a larger max_steps */
    bool final_checkpoint;
    uint64_t correlation_interval; /* steps; 0: none */
    const char *save_dir;          /* "runs"; files go to save_dir/run_name. NULL: no files */
    const char *run_name;          /* NULL: the strategy's name */
    uint64_t seed;                 /* 42 */
    bool overwrite; /* false: save_dir/run_name may not hold a finished run (EXISTS) */
    bool resume;    /* go on from the newest checkpoint in save_dir/run_name */
    /* with resume: if that is damaged, from the newest that is not, rather than INVAL */
    bool resume_older;
    exo_time timeout;            /* a node waits so long for the others; 0 counts as 10 minutes */
    exo_dataset_factory factory; /* make != NULL: instead of the trainer's data sets */
    /* written to config.json instead of the options above; may be NULL */
    const char *config_json;
    /* may be NULL; on the caller's thread */
    void (*progress)(void *context, const exo_progress *progress);
    void *context; /* what progress gets */
    /* set to non-zero from anywhere, also a signal handler: saves a checkpoint and ends with
     * CANCELLED. May be NULL */
    const EXO_ATOMIC(int) * stop;
} exo_fit_opts;

/* For minibatch_size and val_size of exo_fit_opts. */
#define EXO_MINIBATCH_AUTO SIZE_MAX
#define EXO_VAL_NONE                                                                               \
    SIZE_MAX /* losses and accuracies of the result are NaN, no figure is written */

/* The defaults. */
EXO_API exo_fit_opts exo_fit_opts_init(void);

/* What a fit has come to. */
typedef struct exo_fit_result {
    /* the averaged model, parameters and buffers; the caller frees it before the model */
    exo_params *params;
    uint64_t steps;
    /* at the end; NaN: not evaluated */
    double local_loss, global_loss, local_accuracy, global_accuracy;
    double seconds;            /* wall-clock of training and evaluation */
    double train_seconds;      /* of the steps alone */
    double samples_per_second; /* over all nodes, of the steps alone */
    uint64_t bytes_sent;       /* by the strategy, mean over the nodes, rounded to the nearest */
    exo_traffic traffic;       /* over the strategy's edge, all nodes together */
    bool is_virtual;           /* the times above are of the virtual clock: a prediction */
    /* that it took here; `seconds` on the real clock, but for what came before a resume */
    double wall_seconds;
    char sha256[65]; /* of the averaged parameters and buffers, little-endian fp32 */
} exo_fit_result;

/* Holds model and data sets; `train` may be NULL if every fit brings a factory. Without `val`
 * nothing is evaluated. UNSUPPORTED: the model has no objective. */
EXO_API exo_status exo_trainer_new(exo_trainer **out, exo_model *model, exo_dataset *train,
                                   exo_dataset *val, exo_err *err);
/* Frees it and sets *trainer to NULL; accepts NULL in it. */
EXO_API void exo_trainer_free(exo_trainer **trainer);

/* Trains. `strategy` is a registered name, `options` its mapping (NULL: defaults). Blocks until
 * done; a trainer fits one run at a time, from any thread. Errors: INVAL names the option;
 * PEER_LOST the node that died and why; CANCELLED after `stop`; IO the file. */
EXO_API exo_status exo_trainer_fit(exo_trainer *trainer, const char *strategy, exo_config *options,
                                   const exo_fit_opts *opts, exo_fit_result *result, exo_err *err);
/* The same with the strategy's options as YAML text, "{H: 20}"; NULL or "" for the defaults. */
EXO_API exo_status exo_trainer_fit_text(exo_trainer *trainer, const char *strategy,
                                        const char *options, const exo_fit_opts *opts,
                                        exo_fit_result *result, exo_err *err);

EXO_DECLS_END

#endif
