/* Pretrained decoders: Hugging Face directories, read and written for models of the class "gpt".
 * No state; any thread; each function blocks for the files. Read next: load.c, save.c. */
#ifndef EXO_PRETRAINED_H
#define EXO_PRETRAINED_H

#include <exogym/decoder.h>

/* Reads the tensors of `folder` into `params`, of a model with `spec`. The folder's own spec must
 * be equal in everything that shapes parameters or the computation; else INVAL. Other errors:
 * those of exo_decoder_load. */
exo_status exo_pretrained_read(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                               exo_err *err);
/* Checks that the folder has each tensor of `spec`, the folder's own, with its shape. Call it
 * before you allocate parameters: a short config.json can claim large ones. Errors: those of
 * exo_decoder_load. */
exo_status exo_pretrained_check(const char *folder, const exo_decoder_spec *spec, exo_err *err);
/* Like exo_decoder_save, for the parameters of `spec`. */
exo_status exo_pretrained_write(const char *folder, const exo_decoder_spec *spec,
                                exo_params *params, exo_dtype dtype, size_t shard_bytes,
                                exo_err *err);

#endif
