/* Training steps, and the median of their times, for the benchmarks of training. */
#ifndef BENCH_TRAINING_H
#define BENCH_TRAINING_H

#include <exogym/clock.h>
#include <exogym/model.h>
#include <exogym/optim.h>

/* A model in training. Owner: one thread. */
typedef struct bench_training {
    exo_model *model;
    exo_params *params;
    exo_tape *tape;
    exo_optim *optim;
    exo_device *device;
    bool bf16;
    bool invariant; /* exo_pass.invariant; false after init */
    /* The loss of a batch; NULL, as after init: the model's objective. */
    exo_tensor *(*loss_of)(const exo_model *model, exo_tape *tape, const exo_batch *batch);
    float lr;
    float loss; /* of the latest step */
} bench_training;

/* Prepares training with AdamW on the device of that name. Takes over the model, also after an
 * error. The caller calls bench_training_release in either case. */
exo_status bench_training_init(bench_training *training, exo_model *model, const char *device,
                               bool bf16, float lr, exo_err *err);
void bench_training_release(bench_training *training);
/* Runs `warm_up` steps, and then `steps` (1 to 1,000) timed ones. *seconds is the median time of a
 * timed step. INVAL: `steps`. Blocks for the measurement. */
exo_status bench_training_run(bench_training *training, const exo_batch *batch, int warm_up,
                              int steps, double *seconds, exo_err *err);

#endif
