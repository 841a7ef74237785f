/* Checkpoints of a run: folders <run>/checkpoints/step_<k>, one safetensors file a node and a run.json beside them.
 *
 * A checkpoint is written under a hidden name and renamed when every node's file is on the disk: what has the name step_<k>
 * is whole. The newest two are kept.
 */
#ifndef EXO_CHECKPOINT_H
#define EXO_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_CHECKPOINT_PATH = 4096
};

/* <folder>/node_<rank>.safetensors. INVAL if it is too long. */
exo_status exo_checkpoint_node_path(char out[EXO_CHECKPOINT_PATH], const char *folder, uint32_t rank, exo_err *err);

/* The newest whole checkpoint of a run; *found is false if there is none. */
exo_status exo_checkpoint_newest(const char *run_folder, char out[EXO_CHECKPOINT_PATH], bool *found, exo_err *err);

/* Makes an empty hidden folder for the nodes' files of step `step`; what a crash left there is removed. */
exo_status exo_checkpoint_begin(const char *run_folder, uint64_t step, char out[EXO_CHECKPOINT_PATH], exo_err *err);
/* Writes run.json (`settings`), gives the folder its name and removes all but the newest two. */
exo_status exo_checkpoint_commit(const char *run_folder, uint64_t step, const char *settings, exo_err *err);
/* Removes what begin made. */
void exo_checkpoint_abort(const char *run_folder, uint64_t step);

/* Refuses to go on from `checkpoint` with settings (JSON objects of scalars) that differ from those in its run.json; names
 * the first that does, with both values. */
exo_status exo_checkpoint_check(const char *checkpoint, const char *settings, exo_err *err);

/* Moves the checkpoints of an earlier run of that name, one that did not finish, out of the way of a new one: they would be
 * lost. Gives their new place in `kept`, or "" if there was nothing. */
exo_status exo_checkpoint_put_aside(const char *run_folder, char kept[EXO_CHECKPOINT_PATH], exo_err *err);

#endif
