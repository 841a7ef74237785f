/* Snapshots: copies of the parameters of a version on the host, as receivers have them, with the
 * hashes of all tensors and the canaries. References are counted.
 *
 * Owner: the sender, and its updates. Read next: snapshot.c, sender.c. */
#ifndef EXO_UPDATES_SNAPSHOT_H
#define EXO_UPDATES_SNAPSHOT_H

#include "nn/updates/body.h"

typedef struct exo_snapshot {
    unsigned references;
    exo_state_id id;
    char state[65]; /* id.digest in hexadecimal */
    exo_params *params;
    size_t count;               /* tensors */
    uint8_t (*hashes)[EXO_SHA]; /* (count) */
    /* (count): the encodings of the pieces of matrices, in the form INT8; else NULL */
    uint8_t **coded;
    size_t num_canaries;
    exo_canary canaries[EXO_CANARY_MAX];
    /* The values in memory of the trainer's device, tensor after tensor; NULL: they are not there. */
    exo_ipc_array *shared;
    exo_ipc_handle handle;
    uint64_t place; /* of this memory (exo_ipc_place) */
} exo_snapshot;

/* How values become those of the receivers. */
typedef struct exo_rounding {
    exo_update_form form;
    size_t piece; /* elements; a multiple of the codec's block */
    exo_codec *bf16, *int8;
    uint8_t *room; /* for the encoding of a piece */
} exo_rounding;

/* Whether a tensor of this form is sent in the encoding of the codec int8. */
bool exo_is_int8(exo_update_form form, const exo_param_info *info);

/* Makes a snapshot without values. The caller drops it. NOMEM. */
exo_status exo_snapshot_new(exo_snapshot **out, exo_model *model, exo_err *err);
exo_snapshot *exo_snapshot_hold(exo_snapshot *snapshot);
/* Sets *snapshot to NULL; accepts NULL in it. */
void exo_snapshot_drop(exo_snapshot **snapshot);
/* Copies tensor `index` of `params`, of any device, and rounds it. Errors: INVAL (a value that is
 * not finite cannot be int8), NOMEM, or the device's. */
exo_status exo_snapshot_copy(exo_snapshot *snapshot, exo_params *params, size_t index,
                             const exo_rounding *rounding, exo_err *err);
/* Copies all tensors of `params`, which the snapshot has been made of, into memory of their device that
 * other processes read; rounded: the snapshot's own values. Without room for it `shared` stays NULL.
 * Errors: the device's. */
exo_status exo_snapshot_share(exo_snapshot *snapshot, exo_params *params,
                              const exo_rounding *rounding, exo_err *err);
/* Hashes all tensors, on all threads. FAILED: libcrypto. */
exo_status exo_snapshot_hash(exo_snapshot *snapshot, exo_err *err);

#endif
