/* Checkpoints of a graph's trainers: checkpoint_ACTOR_VERSION.safetensors in the run's folder. Each has
 * the seed, the trainer's rank, the version, and what the trainer lists. It is sealed, so that a damaged
 * one is passed over; and it says in which life of which run it was written, so that one of another run of
 * that name is, and one of an earlier life that the other trainers did not go on from.
 *
 * No state. Read next: checkpoint.h and text_trainer.c, whose checkpoints these are. */
#ifndef EXO_CHECKPOINTS_H
#define EXO_CHECKPOINTS_H

#include <exogym/comm.h>
#include <exogym/graph.h>
#include <exogym/state.h>

#include "base/table.h"

/* Whose checkpoints. */
typedef struct exo_checkpoints {
    const char *folder, *actor; /* folder NULL: there are none */
    uint32_t rank, size;        /* of the trainer */
    uint32_t life;              /* of the trainer (exo_graph_life) */
    uint64_t seed;              /* of the run */
    uint64_t run;               /* exo_graph_run_number */
    exo_group *group;           /* of the trainers, to agree on a version; NULL: there is one */
} exo_checkpoints;

/* Reads the key `checkpoint`: {every: N}. *every: `fallback` without it. INVAL with its place. */
exo_status exo_checkpoints_read(exo_config *config, uint64_t fallback, uint64_t *every,
                                exo_err *err);
/* The checkpoints of an actor. */
exo_checkpoints exo_checkpoints_of(exo_graph_actor *actor, exo_group *group);
/* Writes the checkpoint of a version, and removes all but the newest four. `state` has the trainer's
 * entries, and is used up: it can only be freed. FAILED: another life has taken over the trainer's
 * `table`, and there is no checkpoint, if that life has called exo_checkpoints_remove_after since; IO,
 * NOMEM. */
exo_status exo_checkpoints_save(const exo_checkpoints *c, const exo_table *table, uint64_t version,
                                exo_state *state, exo_err *err);
/* Finds the newest version of which all trainers have an intact checkpoint that this run wrote, in one life
 * of the trainers; 0: a trainer has none at all. All trainers call this together. DAMAGED: all of this
 * trainer's are damaged; IO, NOMEM, those of the group. */
exo_status exo_checkpoints_agree(const exo_checkpoints *c, uint64_t *version, exo_err *err);
/* Reads the checkpoint of a version, which is intact, into the entries of `state`, which is used up.
 * INVAL: it has other entries, or another seed; DAMAGED: it is of another trainer or version; IO,
 * NOMEM. */
exo_status exo_checkpoints_load(const exo_checkpoints *c, uint64_t version, exo_state *state,
                                exo_err *err);
/* Removes the checkpoints after a version, and those that were not completed. A life calls it once it has
 * opened its table. IO. */
exo_status exo_checkpoints_remove_after(const exo_checkpoints *c, uint64_t version, exo_err *err);

#endif
