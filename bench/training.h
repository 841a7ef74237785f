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
    exo_autocast autocast;
    bool invariant; /* exo_pass.invariant; false after init */
    /* The loss of a batch; NULL, as after init: the model's objective. */
    exo_tensor *(*loss_of)(const exo_model *model, exo_tape *tape, const exo_batch *batch);
    float lr;
    float loss; /* of the latest step */
} bench_training;

/* Prepares training with AdamW on the device of that name. Takes over the model, also after an
 * error. The caller calls bench_training_release in either case. */
exo_status bench_training_init(bench_training *training, exo_model *model, const char *device,
                               exo_autocast autocast, float lr, exo_err *err);
void bench_training_release(bench_training *training);
/* Runs `warm_up` steps, and then `steps` (1 to 1,000) timed ones. *seconds is the median time of a
 * timed step. INVAL: `steps`. Blocks for the measurement. */
exo_status bench_training_run(bench_training *training, const exo_batch *batch, int warm_up,
                              int steps, double *seconds, exo_err *err);

/* A batch of a decoder and of bench_policy_loss: (size, block) tokens and targets below `vocabulary`, and
 * old log-probabilities and advantages of targets, drawn. Release it in either case. NOMEM. */
exo_status bench_policy_batch(exo_batch *out, size_t size, size_t block, size_t vocabulary,
                              exo_err *err);
void bench_policy_batch_release(exo_batch *batch);
/* PPO's loss of the targets as actions, for bench_training.loss_of. */
exo_tensor *bench_policy_loss(const exo_model *model, exo_tape *tape, const exo_batch *batch);

#endif
