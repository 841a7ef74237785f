/* The tensors of a Hugging Face directory, from one file or from shards. Owner: the caller; one
 * thread. Read next: weights.c, load.c. */
#ifndef EXO_PRETRAINED_WEIGHTS_H
#define EXO_PRETRAINED_WEIGHTS_H

#include "nn/pretrained/safetensors.h"

typedef struct exo_weight {
    const exo_safetensor *tensor;
    const char *path; /* of its file, for errors */
    bool used;        /* a parameter has been planned for it */
} exo_weight;

typedef struct exo_weights {
    exo_safetensors **files;
    size_t num_files;
    exo_weight *all; /* (count), by name */
    size_t count;
} exo_weights;

/* Opens model.safetensors, or the shards in model.safetensors.index.json. After an error there is
 * nothing to close. NOT_FOUND, IO, NOMEM. DAMAGED: the index and the files differ, or an error of
 * exo_safetensors_open. UNSUPPORTED: the folder has only weights of another format. */
exo_status exo_weights_open(exo_weights *weights, const char *folder, exo_err *err);
void exo_weights_close(exo_weights *weights);

/* The tensor of this name, or NULL. */
exo_weight *exo_weights_find(const exo_weights *weights, const char *name);

#endif
