/* The memory that a training job will need, as `exogym run --dry-run` prints it. No state. */
#ifndef EXO_FIT_MEMORY_H
#define EXO_FIT_MEMORY_H

#include <exogym/trainer.h>

/* In bytes, for all nodes in one process. */
typedef struct exo_fit_memory {
    uint32_t nodes;
    unsigned passes;       /* passes at once; they share the tapes */
    unsigned evaluations;  /* evaluations at once; at least 1 */
    size_t minibatch_size; /* samples of a pass */
    uint64_t process;      /* of the process now: the program, its libraries and the data */
    uint64_t parameters;   /* of all nodes, with statistics */
    uint64_t gradients;    /* of all nodes; 0 if steps are taken within backward */
    uint64_t optimizer;    /* of all nodes: moments, and the strategy's state */
    /* of all nodes: the copies that are averaged, beyond what a step has closed */
    uint64_t average;
    uint64_t activations; /* of a forward and backward pass, times `passes` */
    uint64_t evaluation;  /* of the passes of an evaluation */
    uint64_t padding; /* of a node's passes: what the node saves as a worker (exo_pass_memory) */
    uint64_t batches; /* batches that are read ahead, and the orders of samples */
    uint64_t result;  /* the average model at the end, beyond what a step has closed */
    uint64_t alone;   /* of the first node in a worker: beyond its share of `optimizer` */
    uint64_t node;    /* of a node, or one with the largest stage, in a worker, without `process` */
    uint64_t closed;  /* of all nodes' parameters and gradients: units that only a step has open */
    uint64_t open;    /* of all nodes: units that are open while the average is made or read */
    uint64_t reply;   /* of the first node, if it is in a worker: to send the average away */
    uint64_t peak;    /* the sum */
} exo_fit_memory;

/* The resident memory of this process now, in bytes. Call it before the first plan, which leaves
 * some memory allocated. 0: unknown. */
uint64_t exo_fit_memory_now(void);

/* Plans the memory of a fit by exo_trainer_fit in this process, which had `now` bytes before. It
 * rehearses passes and starts the strategy for a few million parameters; it trains nothing. Errors:
 * those of the options, NOMEM. */
exo_status exo_fit_memory_plan(exo_model *model, exo_dataset *train, exo_dataset *val,
                               const char *strategy, exo_config *options, const exo_fit_opts *opts,
                               uint64_t now, exo_fit_memory *out, exo_err *err);
/* Plans again for another size of minibatches, or for a model that differs only in what a pass keeps.
 * *out is a plan with the same strategy, options and nodes; its costly part, `optimizer` and `alone`, stays.
 * Otherwise as exo_fit_memory_plan. */
exo_status exo_fit_memory_replan(exo_model *model, exo_dataset *train, exo_dataset *val,
                                 const char *strategy, exo_config *options,
                                 const exo_fit_opts *opts, uint64_t now, exo_fit_memory *out,
                                 exo_err *err);
/* The peak of a node that is alone in a worker, in bytes: of the first one, which also sends the average
 * to the process of the run. That process has the model at the end. */
uint64_t exo_fit_memory_of_node(const exo_fit_memory *m);

#endif
