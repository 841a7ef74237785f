/* What benchmarks of training steps share: one step, and medians of their times. */
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
    bool bf16;
    float lr;
    float loss; /* of the last step */
} bench_training;

/* Takes over the model, also after an error; AdamW. */
exo_status bench_training_init(bench_training *training, exo_model *model, bool bf16, float lr,
                               exo_err *err);
void bench_training_release(bench_training *training);
/* `warm_up` steps, and then `steps` (1 to 1,000) of which *seconds is the median. */
exo_status bench_training_run(bench_training *training, const exo_batch *batch, int warm_up,
                              int steps, double *seconds, exo_err *err);

#endif
