/* Functions of data sets for the engine's own data sets. No state but the registry. Read next:
 * dataset.c. */
#ifndef EXO_DATASET_IMPL_H
#define EXO_DATASET_IMPL_H

#include <exogym/data.h>

#include "base/registry.h"

/* The first index of part `part`, if `length` things are cut into `num_parts` parts. It is
 * length * part / num_parts, rounded down, without overflow. */
static inline size_t
exo_split_point(size_t length, uint32_t part, uint32_t num_parts)
{
    return length / num_parts * part + length % num_parts * part / num_parts;
}

/* The bytes of a sample's field. */
size_t exo_field_bytes(const exo_field *field);
/* Reads sample `index` into one row of a batch. */
exo_status exo_batch_read_row(exo_batch *batch, size_t row, const exo_dataset *dataset,
                              size_t index, const exo_sample_key *key, exo_err *err);

const exo_dataset_class *exo_dataset_class_of(const exo_dataset *dataset);
void *exo_dataset_self(const exo_dataset *dataset);

/* Images over arrays that the data set takes over, also on failure. The last view frees them with
 * exo_free. */
exo_status exo_dataset_images_own(exo_dataset **out, size_t count, size_t rows, size_t columns,
                                  uint8_t *pixels, uint8_t *labels, const exo_image_opts *opts,
                                  exo_err *err);

/* The largest label; 0 also of a data set that is none of images. Reads all labels. */
int32_t exo_images_largest_label(const exo_dataset *dataset);

extern exo_registry exo_dataset_registry; /* of exo_named_data; named_data.c */

enum {
    EXO_NUM_IMAGE_SETS = 3
};

extern const exo_named_data exo_image_sets[EXO_NUM_IMAGE_SETS]; /* public_data.c */

#endif
