/* The trainer: N nodes train one model under a strategy.
 *
 *     exo_trainer_new(&trainer, model, train, val, err);
 *     exo_fit_opts opts = exo_fit_opts_init();
 *     opts.num_nodes = 4; opts.max_steps = 150; opts.batch_size = 256;
 *     exo_trainer_fit_text(trainer, "diloco", "{H: 20, optimizer: {name: adamw, lr: 3e-4}}", &opts,
 *                          &result, err);
 *
 * Each node is an actor of the class train_node. The result is the average of the nodes' models.
 * docs/architecture.md follows a run from the YAML to the table.
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

/* A trainer: a model with its data. Every fit starts from the same beginning. */
typedef struct exo_trainer exo_trainer;

/* The state of a running fit, for a display of progress. Pointers are valid during the call. */
typedef struct exo_progress {
    uint64_t step, max_steps;               /* steps that all nodes have done; steps of the run */
    float train_loss;                       /* node 0's last step; NaN before the first */
    float lr;                               /* learning rate of that step */
    double samples_per_second;              /* all nodes, over the last steps */
    double elapsed, eta;                    /* seconds */
    uint64_t bytes_sent;                    /* by the strategy since step 0, mean over the nodes */
    bool evaluated;                         /* the losses and accuracies below are new */
    double local_loss, global_loss;         /* of node 0's model; of the average model */
    double local_accuracy, global_accuracy; /* NaN if the model reports none */
    uint32_t num_nodes, num_present;        /* nodes of the run; those that train now */
    const char *edge;    /* name of the strategy's edge in its graph; never NULL */
    exo_traffic traffic; /* over this edge so far, all nodes together */
    /* The current meters of the run and its nodes, to be walked (meter.h). */
    const exo_meters *meters;
} exo_progress;

/* An elastic run goes on when nodes die, and takes nodes back (docs/elastic.md). */
typedef struct exo_elastic {
    uint32_t min_nodes; /* 0: the run is not elastic. Fewer nodes than that wait for others */
    exo_time grace;     /* the wait for min_nodes nodes; 0 counts as 10 s */
    exo_time silence;   /* a node without an answer for that long is left out; 0 counts as 10 s */
    /* Compare the hashes of the nodes' parameters after every step in which they communicate, under
     * a strategy that leaves them equal; a difference ends the run. */
    bool verify;
} exo_elastic;

/* Failures of the hosts of a run on the virtual clock (docs/elastic.md). Each host fails at random
 * times, which follow from the seed alone, and is back after `repair`. */
typedef struct exo_failures {
    exo_time
        mean_time_between; /* of one host, from its repair to its next failure; 0: no failures */
    exo_time repair;       /* from a failure until the host is back */
    exo_time detection;    /* until the nodes that wait for the lost one know of it */
    exo_time restart;      /* of a run that is not elastic, once all hosts are back */
    uint64_t seed;
} exo_failures;

/* Options of a fit. A comment begins with the default (exo_fit_opts_init) if the default is not
 * zero. */
typedef struct exo_fit_opts {
    uint32_t num_nodes; /* 1; at most 65,536 */
    /* Nodes that share a copy of the model, consecutive ranks, each with a part of its layers
     * (exo_model_part); 0 and 1: every node has the whole model. A divisor of num_nodes. The strategy
     * is that of the nodes with the same part. */
    uint32_t tensor;
    /* With `tensor`: norms and residuals of a row are computed by one of these nodes, and not by all
     * of them (exo_model_sequence_part). */
    bool sequence;
    /* Nodes that share a copy of the model, consecutive ranks, each with some of its layers
     * (exo_model_stage); 0 and 1: every node has the whole model. A divisor of num_nodes. Minibatches
     * pass through the stages one after another (1F1B), so there should be several. */
    uint32_t pipeline;
    /* Nodes that share each sequence, consecutive ranks, each with the whole model and a part of the
     * tokens (exo_model_context_part); 0 and 1: every node has whole sequences. A divisor of num_nodes;
     * twice as many must divide the tokens of a sequence. */
    uint32_t context_parallel;
    const char *device; /* "cpu"; NULL counts as "cpu" */
    /* (num_resources) what each node takes of its worker, of a run on workers only; NULL: nothing */
    const exo_resource *resources;
    size_t num_resources; /* entries of `resources` */
    /* The engine of the strategy's collectives (engine.h); NULL: "auto", the library's choice. */
    const char *engine;
    /* False: the engine must promise the same bits as every other (EXO_ENGINE_ORDERED). */
    bool any_bits;
    /* Between two exchanges the engine gives back the memory of devices that it holds
     * (exo_group_suspend). Only for an engine with EXO_ENGINE_SUSPEND, and a strategy without rounds in
     * the background, and not in an elastic run. */
    bool engine_suspends;
    /* Which messages the strategy's collectives consist of: "direct", "tree", "ring", "halving",
     * "hierarchical" or "auto" (docs/collectives.md); NULL: direct. Those that sum in another order
     * than that of ranks need any_bits. */
    const char *collectives;
    /* The links that the ways auto, ring and hierarchical follow: "measured" by nodes on workers
     * when the training begins, or the path of the links.json of an earlier run; NULL: the declared
     * ones (docs/collectives.md). */
    const char *links;
    uint64_t num_epochs; /* 1; used if max_steps is 0 */
    uint64_t max_steps;  /* 0: num_epochs decides */
    size_t batch_size;   /* 16; samples of a node in a step */
    /* 0: batch_size. A divisor of it, or EXO_MINIBATCH_AUTO: what fits */
    size_t minibatch_size;
    bool shuffle;                 /* true */
    size_t val_size;              /* 64 samples; 0: the whole set. EXO_VAL_NONE: no evaluation */
    uint64_t val_interval;        /* 100 steps; 0: at the end only */
    exo_autocast autocast;        /* the operands of products (exo_pass) */
    uint64_t checkpoint_interval; /* steps; 0: only at an interrupt and at the end */
    /* True: a checkpoint at the end, so that a larger max_steps can continue the run. */
    bool final_checkpoint;
    uint64_t correlation_interval; /* steps; 0: none */
    const char *save_dir;          /* "runs"; files are in save_dir/run_name. NULL: no files */
    const char *run_name;          /* NULL: the strategy's name */
    uint64_t seed;                 /* 42 */
    bool overwrite;                /* false: EXISTS if save_dir/run_name holds a finished run */
    bool resume;                   /* continues from the newest checkpoint in save_dir/run_name */
    /* With resume: a damaged checkpoint is skipped for the newest undamaged one, instead of
     * INVAL. */
    bool resume_older;
    /* Wait of a node for the others, from 1 ms to 1,000,000 s; 0 counts as 10 minutes. */
    exo_time timeout;
    exo_elastic elastic;         /* zeroed: the death of a node ends the run */
    exo_failures failures;       /* zeroed: no host fails */
    exo_dataset_factory factory; /* make != NULL: used instead of the trainer's data sets */
    /* Written to config.json instead of these options; may be NULL. */
    const char *config_json;
    /* Called on the thread of the caller of fit; may be NULL. */
    void (*progress)(void *context, const exo_progress *progress);
    void *context; /* the first argument of progress */
    /* Set to non-zero by any thread or a signal handler: the fit saves a checkpoint and ends with
     * CANCELLED; without one if its nodes are still being made on workers. May be NULL. */
    const EXO_ATOMIC(int) * stop;
} exo_fit_opts;

/* For minibatch_size and val_size of exo_fit_opts. With EXO_VAL_NONE nothing is evaluated: losses
 * and accuracies of the result are NaN, and no validation figures are written. */
#define EXO_MINIBATCH_AUTO SIZE_MAX
#define EXO_VAL_NONE       SIZE_MAX

/* The default options. */
EXO_API exo_fit_opts exo_fit_opts_init(void);

/* The result of a fit. */
typedef struct exo_fit_result {
    /* The average model, parameters and buffers. The caller frees it before the model. */
    exo_params *params;
    uint64_t steps;
    /* At the end of the fit; NaN: not evaluated. */
    double local_loss, global_loss, local_accuracy, global_accuracy;
    double seconds;            /* wall-clock of training and evaluation */
    double train_seconds;      /* wall-clock of the steps alone */
    double samples_per_second; /* all nodes, over the steps alone */
    uint64_t bytes_sent;       /* by the strategy, mean over the nodes, rounded to the nearest */
    exo_traffic traffic;       /* over the strategy's edge, all nodes together */
    bool is_virtual;           /* the times above are predictions on the virtual clock */
    /* With `failures`: the useful samples a second, as a part of those without failures. Else
     * NaN. */
    double goodput;
    /* The time that the fit really took. On the real clock it is `seconds` without the time before
     * a resume. */
    double wall_seconds;
    char sha256[65]; /* of the average parameters and buffers as little-endian fp32 */
} exo_fit_result;

/* Makes a trainer, which holds the model and the data sets. `train` may be NULL if every fit has a
 * factory. Without `val` there is no evaluation; a fit refuses an empty one. The caller frees the
 * trainer. UNSUPPORTED: the model has no objective. */
EXO_API exo_status exo_trainer_new(exo_trainer **out, exo_model *model, exo_dataset *train,
                                   exo_dataset *val, exo_err *err);
/* Frees *trainer and sets it to NULL; accepts NULL in it. */
EXO_API void exo_trainer_free(exo_trainer **trainer);

/* Trains. `strategy` is a registered name, `options` its mapping (NULL: defaults). Blocks until the
 * end. A trainer runs one fit at a time, from any thread; several trainers fit at once, also with the
 * same model and data. The fit computes in the default floating-point environment, whatever the
 * caller's, and so does `progress`. The caller frees result->params. Errors: EXISTS (the trainer runs
 * a fit already), INVAL (names the option), PEER_LOST (names the node that died, and the cause),
 * CANCELLED (after `stop`), IO (names the file). */
EXO_API exo_status exo_trainer_fit(exo_trainer *trainer, const char *strategy, exo_config *options,
                                   const exo_fit_opts *opts, exo_fit_result *result, exo_err *err);
/* The same with the strategy's options as YAML text, "{H: 20}"; NULL or "": defaults. */
EXO_API exo_status exo_trainer_fit_text(exo_trainer *trainer, const char *strategy,
                                        const char *options, const exo_fit_opts *opts,
                                        exo_fit_result *result, exo_err *err);

EXO_DECLS_END

#endif
