/* A run of training in this process, with the model and the data that it owns. */
#ifndef EXO_TEST_RUN_H
#define EXO_TEST_RUN_H

#include <exogym/exogym.h>

enum {
    RUN_STEPS = 16
};

struct run {
    exo_model *model;
    exo_dataset *train, *val;
    exo_trainer *trainer;
    exo_fit_opts opts;
    exo_fit_result result;     /* of the last fit */
    float loss[RUN_STEPS + 1]; /* of node 0 by step, of those that are reported */
    exo_err err;
};

/* Takes over the data sets. `model` and `options` are those of a job. Nothing is saved, and opts are as
 * exo_fit_opts_init leaves them. */
void run_init(struct run *r, const char *model, const char *options, exo_dataset *train,
              exo_dataset *val);

void run_release(struct run *r);

/* Another fit. Error: r->err. */
exo_status run_fit(struct run *r, const char *strategy, const char *options);

void run_must_fit(struct run *r, const char *strategy, const char *options);

/* Fits to the end, and again with a stop after `stop` steps: it has the same bits and bytes. `count`, if not
 * NULL, is a number within r->opts that a checkpoint fixes: with 1 instead the run does not go on. */
void run_expect_resume(struct run *r, const char *strategy, const char *options, uint64_t stop,
                       uint32_t *count);

#endif
