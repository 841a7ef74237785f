/* What a training job takes of memory, before it takes it: what `exogym run --dry-run` prints. */
#ifndef EXO_FIT_MEMORY_H
#define EXO_FIT_MEMORY_H

#include <exogym/trainer.h>

/* Bytes; of all nodes in one process. */
typedef struct exo_fit_memory {
    uint32_t nodes;
    unsigned passes;       /* that run at once: nodes share their tapes              */
    size_t minibatch_size; /* samples of a pass                                      */
    uint64_t process;      /* the program, its libraries, and the data: what it has now */
    uint64_t parameters;   /* of all nodes, with statistics                          */
    uint64_t gradients;    /* of all nodes; none where steps are taken within backward */
    uint64_t optimizer;    /* of all nodes: moments, and what the strategy keeps     */
    uint64_t average;      /* of all nodes: the copies that are averaged             */
    uint64_t activations;  /* of a forward and backward pass, times `passes`         */
    uint64_t evaluation;   /* of the passes of an evaluation                         */
    uint64_t batches;      /* read ahead, and the orders of samples                  */
    uint64_t result;       /* the averaged model at the end                          */
    uint64_t peak;         /* the sum                                                */
} exo_fit_memory;

/* What this process has now, in bytes: ask before the first plan, which leaves something behind. 0: unknown. */
uint64_t exo_fit_memory_now(void);

/* Of a fit as exo_trainer_fit would do it, in this process, which had `now` bytes before. Rehearses passes and makes one strategy for few parameters; runs nothing.
 * Errors: those of the strategy's options, NOMEM. */
exo_status exo_fit_memory_plan(exo_model *model, exo_dataset *train, exo_dataset *val,
                               const char *strategy, exo_config *options, const exo_fit_opts *opts,
                               uint64_t now, exo_fit_memory *out, exo_err *err);

#endif
