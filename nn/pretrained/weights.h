/* The tensors of a Hugging Face directory, of one file or of shards. Owner: the caller; one thread. */
#ifndef EXO_PRETRAINED_WEIGHTS_H
#define EXO_PRETRAINED_WEIGHTS_H

#include "nn/pretrained/safetensors.h"

/* A tensor and whether it has found its place. */
typedef struct exo_weight {
    const exo_safetensor *tensor;
    const char *path; /* the file's, for messages */
    bool used;
} exo_weight;

typedef struct exo_weights {
    exo_safetensors **files;
    size_t num_files;
    exo_weight *all;
    size_t count;
} exo_weights;

/* model.safetensors, or the shards that model.safetensors.index.json names. NOT_FOUND, IO; DAMAGED: the index and the files differ, or what
 * exo_safetensors_open says; UNSUPPORTED: only weights of another format. */
exo_status exo_weights_open(exo_weights *weights, const char *folder, exo_err *err);
void exo_weights_close(exo_weights *weights);

/* By name, or NULL. */
exo_weight *exo_weights_find(const exo_weights *weights, const char *name);

#endif
