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
/* --- Adapters: LoRA parameters in PEFT's format (adapter_config.json, adapter_model.safetensors) */

typedef struct exo_adapter {
    size_t rank;
    float alpha;
    /* The layers that it has A and B for, by their number in exo_decoder_layer_at: (`layers`).
     * The caller frees it (exo_free). */
    bool *chosen;
    size_t layers;
} exo_adapter;

/* Reads which layers of `spec` an adapter has, and checks its tensors' names and shapes. Errors:
 * NOT_FOUND, IO, NOMEM; DAMAGED (names file and tensor); UNSUPPORTED: a key of adapter_config.json
 * selects another computation. */
exo_status exo_adapter_open(const char *folder, const exo_decoder_spec *spec, exo_adapter *out,
                            exo_err *err);
/* Reads A and B into `params`, of a model with `spec` and the adapter's layers. Errors: as above. */
exo_status exo_adapter_read(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                            exo_err *err);
/* Writes the LoRA parameters of `params`. `base`: the directory of the base model, for
 * base_model_name_or_path. INVAL: the folder has a model already; UNSUPPORTED: the spec has no
 * family. */
exo_status exo_adapter_write(const char *folder, const exo_decoder_spec *spec, exo_params *params,
                             const char *base, exo_err *err);

/* --- Writing ---------------------------------------------------------------------------------- */

/* Checks that a directory can express `spec`, so that a model that it cannot is refused before it is
 * trained. UNSUPPORTED: names the first reason. */
exo_status exo_pretrained_can_write(const exo_decoder_spec *spec, exo_err *err);
/* Like exo_decoder_save_until, for the parameters of `spec`, without LoRA. */
exo_status exo_pretrained_write(const char *folder, const exo_decoder_spec *spec,
                                exo_params *params, exo_dtype dtype, size_t shard_bytes,
                                const _Atomic int *stop, exo_err *err);
/* exo_decoder_save that ends soon after *stop is not 0 (NULL: never): CANCELLED, without the file that
 * it was writing. A signal handler or any thread may set it. decoder_files.c. */
exo_status exo_decoder_save_until(const char *folder, const exo_model *model, exo_params *params,
                                  exo_dtype dtype, size_t shard_bytes, const _Atomic int *stop,
                                  exo_err *err);

/* --- Value heads, which the families do not have: a file of their own beside the weights. ------ */

#define EXO_VALUE_HEAD_FILE "value_head.safetensors"

/* True: the parameter belongs to a value head. */
bool exo_value_head_has(const char *param);
/* True: the folder has the file. */
bool exo_value_head_exists(const char *folder);
/* Reads the head of a model that has one; without the file, it keeps its values. INVAL: another
 * shape (names file and entry); IO, NOMEM. */
exo_status exo_value_head_read(const char *folder, exo_params *params, exo_err *err);
/* Writes the head of a model that has one, else removes the file of an earlier save. IO, NOMEM. */
exo_status exo_value_head_write(const char *folder, exo_params *params, exo_err *err);

#endif
