/* The inside of models, for classes that offer more than a loss. Read next: model_private.h;
 * model.c. */
#ifndef EXO_MODEL_IMPL_H
#define EXO_MODEL_IMPL_H

#include <exogym/model.h>

/* A model whose state starts as a copy of `state`, the class's state_size bytes. Its build gets
 * config NULL. The caller drops it. */
exo_status exo_model_new_from(exo_model **out, const exo_model_class *model_class,
                              const void *state, exo_err *err);
/* The state of a model of this class. NULL: it is of another class, or model is NULL. */
const void *exo_model_state_of(const exo_model *model, const exo_model_class *model_class);
/* A new copy of the numbers, all zero, for a caller that fills it at once. `learns`: with
 * gradients. The caller frees it. Errors: NOMEM. */
exo_status exo_model_params_blank(const exo_model *model, bool learns, exo_params **out,
                                  exo_err *err);

#endif
