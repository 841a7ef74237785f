/* A small problem that can be learned: random points around three centres. For tests of
 * training. */
#ifndef EXO_TEST_POINTS_H
#define EXO_TEST_POINTS_H

#include <exogym/data.h>
#include <exogym/model.h>

enum {
    POINTS_DIM = 8,
    POINTS_CLASSES = 3
};

/* `count` points with the fields "x" (8) and "label" (). Reading sample `bad` fails with IO, "the
 * disk is gone"; SIZE_MAX: no sample fails. */
exo_dataset *points_new(size_t count, uint64_t seed, size_t bad);

/* The model mlp with layers 8 - 16 - 3. */
exo_model *points_mlp(void);

#endif
