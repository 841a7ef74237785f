/* Models from the inside, for classes that offer more than a loss. */
#ifndef EXO_MODEL_IMPL_H
#define EXO_MODEL_IMPL_H

#include <exogym/model.h>

/* A model whose state begins as a copy of `state`, the class's state_size bytes. Its build gets no
 * config: NULL. */
exo_status exo_model_new_from(exo_model **out, const exo_model_class *model_class,
                              const void *state, exo_err *err);
/* The state, if the model is of that class; else NULL. */
const void *exo_model_state_of(const exo_model *model, const exo_model_class *model_class);
/* A new copy of the numbers, all zero, for whoever fills it at once; with gradients if it
 * learns. */
exo_status exo_model_params_blank(const exo_model *model, bool learns, exo_params **out,
                                  exo_err *err);
/* One that is nowhere (phantom.h), for rehearsals. */
exo_status exo_model_params_phantom(const exo_model *model, exo_params **out, exo_err *err);

#endif
