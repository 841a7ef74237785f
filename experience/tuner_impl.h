/* The inside of a tuner: see tuner.h. Owner: the tuner's caller. */
#ifndef EXO_TUNER_IMPL_H
#define EXO_TUNER_IMPL_H

#include <exogym/optim.h>
#include <exogym/schedule.h>

#include "experience/named_device.h"
#include "experience/text_rows.h"
#include "experience/tuner.h"

struct exo_tuner {
    exo_tuner_kind kind;
    exo_model *model; /* held */
    char *folder;     /* from which it begins, or NULL. Freed by (free) */
    exo_optim_spec spec;
    exo_schedule *schedule;
    exo_named_device device; /* of the models, the optimizer and the passes */
    double max_norm, validation, smoothing, beta;
    uint64_t batch, rows_a_pass, epochs, steps;
    bool has_data;
    exo_texts *texts;
    exo_texts *references; /* of `ranking`; NULL: none */
    uint64_t seed;
    uint32_t rank, size;
    size_t samples, held_out;       /* trained on, the first ones; held out, the rest */
    exo_params *params, *reference; /* reference: of dpo, the parameters at the start */
    exo_optim *optim;
    exo_tape *tape;
    uint32_t *order; /* (samples) of the epoch `epoch` */
    uint64_t epoch;
    exo_text_rows rows;
    float *scratch; /* (rows.room) numbers of the rows of a pass */
    size_t scratch_room;
};

/* What the passes of a step add up. */
enum {
    EXO_TUNER_LOSS,  /* as a part of the mean */
    EXO_TUNER_RIGHT, /* comparisons */
    EXO_TUNER_MARGIN,
    EXO_TUNER_SCORE, /* of all answers, and their squares */
    EXO_TUNER_SQUARE,
    EXO_TUNER_SUMS
};

/* tuner_pass.c: the passes over this tuner's part of samples (count), which all tuners have in this
 * order. With `step`, adds the gradients of their mean loss. */
exo_status exo_tuner_pass(exo_tuner *t, const uint32_t *samples, size_t count, const uint64_t *step,
                          double sums[EXO_TUNER_SUMS], exo_err *err);
/* Mean and deviation of the scores of the reference answers. */
exo_status exo_tuner_score_references(exo_tuner *t, double *mean, double *deviation, exo_err *err);

#endif
