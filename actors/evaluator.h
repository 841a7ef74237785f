/* Evaluations of a policy while it learns, and the best policy among those evaluated.
 *
 * PPO's last policy need not be its best one. So the trainer lets an evaluator look at versions of
 * its policy. Each look plays the same episodes, with random numbers of its own, and learning does
 * not change by it. The best policy is the one with the highest mean return, of several with the
 * same mean the first; it is in the folder as soon as it is found. The mean by which it was selected
 * is too high in expectation, because it is a maximum: report that of other episodes.
 *
 * Files, if there is a folder: evaluations_ACTOR.csv has a line for each look (update, samples, mean,
 * deviation), best_ACTOR.safetensors the best policy (policy_file.h).
 *
 * Owner: the caller, one thread at a time. Read next: player.h (exo_evaluate), policy_trainer.c. */
#ifndef EXO_EVALUATOR_H
#define EXO_EVALUATOR_H

#include "actors/player.h"

typedef struct exo_evaluator_opts {
    const exo_environment_spec *spec; /* borrowed */
    uint64_t episodes;                /* of each look, from 1 */
    bool likeliest;                   /* the most probable actions, otherwise they are drawn */
    double threshold;                 /* a mean return; -INFINITY: none */
    uint64_t seed;                    /* of the episodes and actions */
    const char *folder, *actor;       /* borrowed; folder NULL: no files */
} exo_evaluator_opts;

/* A version of a policy, and what its evaluation was. */
typedef struct exo_evaluated {
    uint64_t update;  /* number of updates that made it */
    uint64_t samples; /* steps of environments that it has learned from */
    exo_evaluation evaluation;
} exo_evaluated;

typedef struct exo_evaluator exo_evaluator;

/* Makes an evaluator of policies of that shape; the caller frees it. IO, NOMEM, INVAL: a path is too
 * long. */
exo_status exo_evaluator_new(exo_evaluator **out, const exo_evaluator_opts *opts,
                             const exo_policy_shape *shape, exo_err *err);
/* Frees *evaluator and sets it to NULL; accepts NULL in it. */
void exo_evaluator_free(exo_evaluator **evaluator);

/* Evaluates a version of the policy, and copies and saves it if it is the best so far. Does nothing
 * if the newest look was at the same update. Errors: as exo_evaluate and exo_policy_save; IO. */
exo_status exo_evaluator_look(exo_evaluator *evaluator, const exo_policy *policy, uint64_t update,
                              uint64_t samples, exo_err *err);

/* The newest look; the best one, the first of several; the first one whose mean reached the threshold.
 * NULL: there is none. Borrowed, until the next look. */
const exo_evaluated *exo_evaluator_newest(const exo_evaluator *evaluator);
const exo_evaluated *exo_evaluator_best(const exo_evaluator *evaluator);
const exo_evaluated *exo_evaluator_reached(const exo_evaluator *evaluator);
/* The best policy, if there is one. Borrowed, until the next look. */
const exo_policy *exo_evaluator_policy(const exo_evaluator *evaluator);

#endif
