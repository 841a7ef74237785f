/* Checkpoints of a ppo_trainer (checkpoints.h). One holds the learner's state, the trainer's position
 * among its draws, and how long the files of learned.h were, so that the lines of updates that are
 * undone can be cut off. It is written between two updates. Items that wait in the trainer are not in
 * it: no draw from the position on counts as learned from, but for those that are listed as ahead of it
 * (oversampling), so the makers make these again.
 *
 * Owner: the trainer's thread. Read next: trainer.c. */
#ifndef EXO_CHECKPOINT_H
#define EXO_CHECKPOINT_H

#include "experience/checkpoints.h"
#include "experience/learned.h"

/* What a checkpoint has, in the trainer's memory. */
typedef struct exo_trainer_state {
    exo_checkpoints files;
    exo_learner *learner;
    exo_learned **learned;        /* opened by exo_trainer_load and exo_trainer_resume */
    exo_learner_figures *figures; /* of the last update */
    uint64_t *position;           /* the trainer's draws that it has learned from */
    uint8_t *ahead;               /* (ahead_bytes) exo_stock_save; none without oversampling */
    size_t ahead_bytes;
    uint64_t *used, *repeated;
} exo_trainer_state;

/* Writes the checkpoint of the learner's present version, and removes all but the newest ones. IO,
 * NOMEM. */
exo_status exo_trainer_save(const exo_trainer_state *state, exo_err *err);
/* Reads the checkpoint of a version, or begins at version 0; removes all newer checkpoints, whose
 * updates are undone, and cuts off their lines. INVAL: the checkpoint is of another model, optimizer
 * or seed; DAMAGED: it is of another trainer, or the files of learned.h are not those that it was
 * written with; IO, NOMEM. After an error no file has changed. */
exo_status exo_trainer_load(const exo_trainer_state *state, uint64_t version, exo_err *err);
/* Continues from the newest version of which all trainers have an intact checkpoint; where a trainer
 * has no checkpoint at all, all begin at version 0. All trainers call this together. Errors: as
 * exo_checkpoints_agree and exo_trainer_load. */
exo_status exo_trainer_resume(const exo_trainer_state *state, exo_err *err);

#endif
