/* Models that a config names: `model: NAME` or `model: {name: NAME, ...}`. Pure functions, any
 * thread. */
#ifndef EXO_NAMED_MODEL_H
#define EXO_NAMED_MODEL_H

#include <exogym/config.h>
#include <exogym/model.h>

/* Makes the model under `key`; *out is NULL if the key is missing. The caller drops it. INVAL (with
 * its place), NOT_FOUND, NOMEM. */
exo_status exo_named_model_read(exo_model **out, exo_config *config, const char *key, exo_err *err);

/* Checks that `model`, under `key`, is a language model that a trainer can write as a Hugging Face
 * directory when it ends. INVAL, with its place. */
exo_status exo_named_model_check_saved(const exo_model *model, exo_config *config, const char *key,
                                       exo_err *err);

/* True: the model has a value head. */
bool exo_named_model_gives_values(const exo_model *model);

/* The directory that a mapping `key` of LoRA has as `path`: the base that PEFT loads. *out is NULL
 * without one, and of a model without LoRA. The caller frees it by `(free)`. INVAL, IO. */
exo_status exo_named_model_base(char **out, const exo_model *model, exo_config *config,
                                const char *key, exo_err *err);

#endif
