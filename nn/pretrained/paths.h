/* Names of files in a Hugging Face directory. No state. */
#ifndef EXO_PRETRAINED_PATHS_H
#define EXO_PRETRAINED_PATHS_H

#include <exogym/status.h>

enum {
    EXO_PRETRAINED_PATH = 4096 /* bytes of a path, with its 0 */
};

#define EXO_CONFIG_FILE     "config.json"
#define EXO_WEIGHTS_FILE    "model.safetensors"
#define EXO_WEIGHTS_INDEX   "model.safetensors.index.json"
#define EXO_ADAPTER_CONFIG  "adapter_config.json"
#define EXO_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* Writes folder/name to `out`. INVAL: it does not fit into EXO_PRETRAINED_PATH bytes. */
exo_status exo_pretrained_path(char out[EXO_PRETRAINED_PATH], const char *folder, const char *name,
                               exo_err *err);

/* Fails with `code` and "FOLDER/adapter_config.json: why" if there is such a file: then the folder
 * is read as an adapter, or is another model without it. */
exo_status exo_pretrained_check_adapter(const char *folder, exo_status code, const char *why,
                                        exo_err *err);

#endif
