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

/* The directory that a mapping `key` has as `path`, from which the model begins. *out is NULL without
 * one. The caller frees it by `(free)`. INVAL, IO. */
exo_status exo_named_model_folder(char **out, exo_config *config, const char *key, exo_err *err);
/* True: the model has LoRA, so that the directory is the base that PEFT loads. */
bool exo_named_model_has_lora(const exo_model *model);
/* Writes the tokenizer of the directory `from`, with what is beside it, to the model in `folder`.
 * Nothing if `from` is NULL or has none; one that cannot be read is recorded and left out. IO,
 * NOMEM. */
exo_status exo_named_model_save_tokenizer(const char *from, const char *folder, exo_err *err);

#endif
