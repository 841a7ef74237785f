/* Pretrained decoders: Hugging Face directories, for the class "gpt". No state; any thread. */
#ifndef EXO_PRETRAINED_H
#define EXO_PRETRAINED_H

#include <exogym/decoder.h>

/* Reads the tensors of `folder` into the copy of a model that was built of `spec`. The folder's own spec must be the same in all that
 * shapes parameters or the computation. Errors: those of exo_decoder_load. */
exo_status exo_pretrained_read(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                               exo_err *err);
/* Are the tensors there that config.json claims? Asked before there is memory for them: a short file can claim much. `spec` is the folder's.
 * Errors likewise. */
exo_status exo_pretrained_check(const char *folder, const exo_decoder_spec *spec, exo_err *err);
/* exo_decoder_save of parameters of `spec`. */
exo_status exo_pretrained_write(const char *folder, const exo_decoder_spec *spec,
                                exo_params *params, exo_dtype dtype, size_t shard_bytes,
                                exo_err *err);

#endif
