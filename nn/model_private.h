/* A model's own structure, shared by model.c (building, passes) and params.c (copies of its
 * numbers). It is read-only once built, except for the reference count. Read next: model.c. */
#ifndef EXO_MODEL_PRIVATE_H
#define EXO_MODEL_PRIVATE_H

#include <stdatomic.h>

#include <exogym/parallel.h>

#include "nn/model_impl.h"

struct exo_builder {
    exo_param_info *infos;
    exo_init *inits;
    exo_param_cut *cuts; /* one for each info; without bands if the parameter is whole */
    size_t *numbers;     /* one for each info; of the stream of its initial values */
    size_t absent;       /* parameters of the whole model that this one lacks, so far */
    size_t count, cap;
    size_t numel, buffer_numel; /* frozen parameters are the last ones of the buffers */
    size_t frozen_numel;
    exo_unit_info *units; /* while building, also units without elements */
    size_t num_units;
    size_t stage_width;  /* of what a stage of a pipeline hands on; 0: the model is none */
    size_t stage_shares; /* the nodes of a stage among which its tokens are divided */
    bool stage_follows;  /* the stage begins with what another one hands on */
    exo_err error;
};

struct exo_model {
    atomic_uint references;
    const exo_model_class *model_class;
    void *self;
    struct exo_builder built;
};

#endif
