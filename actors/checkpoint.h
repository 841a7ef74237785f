/* Checkpoints of a run: folders <run>/checkpoints/step_<k>. Each has one safetensors file a node, one
 * of the server of the strategy's communicator if it has one, a run.json with the settings, and a
 * manifest (manifest.h).
 *
 * A checkpoint is written under a hidden name, and renamed once every node's file is on the disk.
 * So a folder with the name step_<k> was complete when it got that name; the manifest shows whether
 * it still is. The newest two checkpoints are kept.
 *
 * No state. Read next: fit_events.c, which writes checkpoints, and fit_prepare.c, which resumes
 * from them. */
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

/* A key in the metadata of a run's model.safetensors. Its value is the SHA-256 of the parameters
 * followed by the buffers, as fp32: that of exo_fit_result. */
#define EXO_MODEL_SHA256 "sha256"

/* Writes the path <folder>/node_<rank>.safetensors, and guards the folder of the run (base/dir.h).
 * INVAL: the path is too long; NOMEM. Any thread. */
exo_status exo_checkpoint_node_path(char out[EXO_CHECKPOINT_PATH], const char *folder,
                                    uint32_t rank, exo_err *err);

/* The same for the file of the communicator's server, <folder>/server.safetensors. */
exo_status exo_checkpoint_server_path(char out[EXO_CHECKPOINT_PATH], const char *folder,
                                      exo_err *err);

/* Verifies that every file of the checkpoint is as it was written, and that the folder's name has
 * the manifest's step. INVAL names the damaged file; IO, NOMEM. */
exo_status exo_checkpoint_verify(const char *checkpoint, exo_err *err);

/* The checkpoints from which a run can resume. */
typedef struct exo_checkpoint_choice {
    bool found;                       /* there is a checkpoint, damaged or not */
    char newest[EXO_CHECKPOINT_PATH]; /* the newest one */
    exo_err damage;                   /* the damage of the newest one; EXO_OK: none */
    /* The newest undamaged one, which may be `newest`; "": all are damaged. */
    char intact[EXO_CHECKPOINT_PATH];
} exo_checkpoint_choice;

/* Finds the newest checkpoint of a run, damaged or not; false: there is none. */
bool exo_checkpoint_newest(const char *run_folder, char out[EXO_CHECKPOINT_PATH]);
/* Verifies checkpoints from the newest on, until one is undamaged. Damage is in *out and is no
 * error. Errors: INVAL: a path is too long; NOMEM. */
exo_status exo_checkpoint_choose(const char *run_folder, exo_checkpoint_choice *out, exo_err *err);
/* Renames the checkpoints that are newer than `kept`, which are damaged, to damaged_step_<k>, so
 * that they are not found again. INVAL: `kept` is not a checkpoint, or a path is too long; IO. */
exo_status exo_checkpoint_set_damaged_aside(const char *run_folder, const char *kept, exo_err *err);

/* Writes the file model.safetensors of a run: the parameters, and in its metadata the names of
 * model and strategy and the SHA-256. IO, NOMEM. */
exo_status exo_checkpoint_save_model(const exo_model *model, exo_params *params,
                                     const char *strategy, const char *sha256, const char *path,
                                     exo_err *err);

/* Makes an empty hidden folder for the nodes' files of step `step`. Files that a crash left there
 * are removed. */
exo_status exo_checkpoint_begin(const char *run_folder, uint64_t step,
                                char out[EXO_CHECKPOINT_PATH], exo_err *err);
/* Completes a checkpoint, once the nodes' files are in the hidden folder: writes run.json
 * (`settings`) and the manifest of all files of the folder, renames the folder, and removes all
 * checkpoints but the newest two, and hidden folders of earlier steps. sums[r] is the SHA-256 of node r's file. */
exo_status exo_checkpoint_commit(const char *run_folder, uint64_t step, const char *settings,
                                 const char (*sums)[65], uint32_t num_nodes, exo_err *err);
/* Removes the hidden folder of exo_checkpoint_begin. */
void exo_checkpoint_abort(const char *run_folder, uint64_t step);

/* Checks that a run with these settings (a JSON object of scalars) may resume from `checkpoint`.
 * INVAL names the first setting that differs from run.json, with both values.
 *
 * `options` is the setting "options" as a whole copy (config_edit.h). It is compared by meaning,
 * and the error names the first key that differs. NULL: that setting is compared as text, too. */
exo_status exo_checkpoint_check(const char *checkpoint, const char *settings,
                                const exo_config *options, exo_err *err);

/* Reads an integer setting from a checkpoint's run.json. INVAL: there is none of that name. */
exo_status exo_checkpoint_setting(const char *checkpoint, const char *key, uint64_t *value,
                                  exo_err *err);

/* Moves the checkpoints of an earlier run in this folder to checkpoints.<i>, so that a new run does
 * not replace them. `kept` gets their new path, or "" if there were none. EXISTS: 9,999 such
 * folders exist already; IO. */
exo_status exo_checkpoint_put_aside(const char *run_folder, char kept[EXO_CHECKPOINT_PATH],
                                    exo_err *err);
/* Removes all checkpoints except those that exo_checkpoint_put_aside moved. IO names the first
 * checkpoint that cannot be removed. */
exo_status exo_checkpoint_remove_all(const char *run_folder, exo_err *err);

#endif
