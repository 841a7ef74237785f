/* Checkpoints of a run: folders <run>/checkpoints/step_<k>, one safetensors file a node, a run.json and a manifest (manifest.h) beside them.
 *
 * A checkpoint is written under a hidden name and renamed when every node's file is on the disk: what has the name step_<k>
 * was whole then, and the manifest says whether it still is. The newest two are kept.
 */
#ifndef EXO_CHECKPOINT_H
#define EXO_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <exogym/config.h>
#include <exogym/model.h>
#include <exogym/status.h>

enum {
    EXO_CHECKPOINT_PATH = 4096
};

/* The key in the metadata of a run's model.safetensors that has the SHA-256 of its parameters, then its buffers, as fp32: exo_fit_result's. */
#define EXO_MODEL_SHA256 "sha256"

/* <folder>/node_<rank>.safetensors. INVAL if it is too long. */
exo_status exo_checkpoint_node_path(char out[EXO_CHECKPOINT_PATH], const char *folder,
                                    uint32_t rank, exo_err *err);

/* Every file of the checkpoint is as it was written. INVAL names the one that is not. */
exo_status exo_checkpoint_verify(const char *checkpoint, exo_err *err);

/* What a run's folder holds to go on from. */
typedef struct exo_checkpoint_choice {
    bool found;                       /* a checkpoint, damaged or not                     */
    char newest[EXO_CHECKPOINT_PATH]; /* the newest one                                   */
    exo_err damage;                   /* what is wrong with it; EXO_OK: nothing           */
    char intact
        [EXO_CHECKPOINT_PATH]; /* the newest that is intact, itself or an older one; "": none is */
} exo_checkpoint_choice;

/* The newest checkpoint of a run, damaged or not; false: there is none. */
bool exo_checkpoint_newest(const char *run_folder, char out[EXO_CHECKPOINT_PATH]);
/* Verifies checkpoints, the newest first, until one is intact. Errors: NOMEM; damage is none. */
exo_status exo_checkpoint_choose(const char *run_folder, exo_checkpoint_choice *out, exo_err *err);
/* Gives the checkpoints that are newer than `kept`, which are damaged, another name: they are not found again. IO. */
exo_status exo_checkpoint_set_damaged_aside(const char *run_folder, const char *kept, exo_err *err);

/* Writes parameters as model.safetensors of a run has them, with what they are of and their SHA-256. IO, NOMEM. */
exo_status exo_checkpoint_save_model(const exo_model *model, exo_params *params,
                                     const char *strategy, const char *sha256, const char *path,
                                     exo_err *err);

/* Makes an empty hidden folder for the nodes' files of step `step`; what a crash left there is removed. */
exo_status exo_checkpoint_begin(const char *run_folder, uint64_t step,
                                char out[EXO_CHECKPOINT_PATH], exo_err *err);
/* Writes run.json (`settings`) and the manifest of all that is in the folder by now, gives the folder its name and removes all but the newest two. sums[r] is the SHA-256 of
 * node r's file. */
exo_status exo_checkpoint_commit(const char *run_folder, uint64_t step, const char *settings,
                                 const char (*sums)[65], uint32_t num_nodes, exo_err *err);
/* Removes what begin made. */
void exo_checkpoint_abort(const char *run_folder, uint64_t step);

/* Refuses to go on from `checkpoint` with settings (JSON objects of scalars) that differ from those in its run.json; names
 * the first that does, with both values. `options`: the setting of that name as a whole copy (config_edit.h), compared by what it means; NULL:
 * as text. */
exo_status exo_checkpoint_check(const char *checkpoint, const char *settings,
                                const exo_config *options, exo_err *err);

/* An integer among the settings in a checkpoint's run.json. INVAL if there is none. */
exo_status exo_checkpoint_setting(const char *checkpoint, const char *key, uint64_t *value,
                                  exo_err *err);

/* Moves the checkpoints of an earlier run of that name out of the way of a new one: they would be lost. Gives their new place in `kept`,
 * or "" if there was nothing. */
exo_status exo_checkpoint_put_aside(const char *run_folder, char kept[EXO_CHECKPOINT_PATH],
                                    exo_err *err);
/* Removes all checkpoints, but for those that were put aside. IO names what is left. */
exo_status exo_checkpoint_remove_all(const char *run_folder, exo_err *err);

#endif
