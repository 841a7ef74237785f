/* What the engine's own data sets need to know of others. */
#ifndef EXO_DATASET_IMPL_H
#define EXO_DATASET_IMPL_H

#include <exogym/data.h>

#include "base/registry.h"

/* Where part `part` of `num_parts` parts of `length` things begins: (length * part) / num_parts,
 * rounded down. */
static inline size_t
exo_split_point(size_t length, uint32_t part, uint32_t num_parts)
{
    return length / num_parts * part + length % num_parts * part / num_parts;
}

/* Reads sample `index` into one row of a batch. */
exo_status exo_batch_read_row(exo_batch *batch, size_t row, const exo_dataset *dataset,
                              size_t index, const exo_sample_key *key, exo_err *err);

const exo_dataset_class *exo_dataset_class_of(const exo_dataset *dataset);
void *exo_dataset_self(const exo_dataset *dataset);

/* Images over arrays that are handed over (exo_free'd with the last view). */
exo_status exo_dataset_images_own(exo_dataset **out, size_t count, size_t rows, size_t columns,
                                  uint8_t *pixels, uint8_t *labels, const exo_image_opts *opts,
                                  exo_err *err);

/* A data set with a name: reads its options from `config` (may be NULL) and makes both halves;
 * `val` may be NULL. What it has made when it fails, the caller drops. */
typedef struct exo_named_data {
    const char *name, *help;
    exo_status (*load)(exo_config *config, exo_dataset **train, exo_dataset **val, exo_err *err);
} exo_named_data;

extern exo_registry exo_dataset_registry; /* of exo_named_data; named_data.c */

enum {
    EXO_NUM_IMAGE_SETS = 3
};

extern const exo_named_data exo_image_sets[EXO_NUM_IMAGE_SETS]; /* public_data.c */

#endif
