/* What the engine's own data sets need to know of others. */
#ifndef EXO_DATASET_IMPL_H
#define EXO_DATASET_IMPL_H

#include <exogym/data.h>

const exo_dataset_class *exo_dataset_class_of(const exo_dataset *dataset);
void *exo_dataset_self(const exo_dataset *dataset);

/* Images over arrays that are handed over (exo_free'd with the last view). */
exo_status exo_dataset_images_own(exo_dataset **out, size_t count, size_t rows, size_t columns, uint8_t *pixels,
                                  uint8_t *labels, const exo_image_opts *opts, exo_err *err);

#endif
