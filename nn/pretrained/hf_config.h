/* Strict reading of config.json. Each key is asked for, must have a given value, or is known not
 * to change the model's computation. Any other key is an error.
 *
 * The first error is recorded in the config; later ones are ignored. Owner: the caller; one
 * thread. Read next: hf_config.c; family.h. */
#ifndef EXO_PRETRAINED_HF_CONFIG_H
#define EXO_PRETRAINED_HF_CONFIG_H

#include <jansson.h>

#include <exogym/decoder.h>

#include "nn/pretrained/paths.h"

enum {
    EXO_HF_KEYS = 64 /* different keys that can be asked for */
};

typedef struct exo_hf_config {
    char path[EXO_PRETRAINED_PATH];
    json_t *root;
    const char *asked[EXO_HF_KEYS];
    size_t num_asked;
    exo_err error;
} exo_hf_config;

/* Reads config.json in a folder. The caller closes the config, also after an error. NOT_FOUND, IO,
 * NOMEM; DAMAGED: no JSON object. */
exo_status exo_hf_config_open(exo_hf_config *config, const char *folder, exo_err *err);
/* The same for another file of the folder, `name`. */
exo_status exo_hf_config_open_file(exo_hf_config *config, const char *folder, const char *name,
                                   exo_err *err);
void exo_hf_config_close(exo_hf_config *config);
/* The recorded error, if any. Else refuses each key that was not asked for, unless it is null or
 * in one of two lists: the general one in hf_config.c, and `harmless`, which ends with NULL. */
exo_status exo_hf_config_finish(exo_hf_config *config, const char *const *harmless, exo_err *err);

/* The value under `key`; NULL: it is missing or null. `key` must be static. */
const json_t *exo_hf_get(exo_hf_config *config, const char *key);
/* An integer of at least 1. The key is required if `fallback` is 0. After an error: 1. */
size_t exo_hf_size(exo_hf_config *config, const char *key, size_t fallback);
/* A number that a float can hold. */
float exo_hf_float(exo_hf_config *config, const char *key, float fallback);
/* A missing key is `fallback`, null is false. */
bool exo_hf_bool(exo_hf_config *config, const char *key, bool fallback);
/* Requires that a boolean has this value. A missing key counts as this value. */
void exo_hf_must(exo_hf_config *config, const char *key, bool value);
/* Requires that an option is off: missing, null, false, 0, or empty. */
void exo_hf_must_be_off(exo_hf_config *config, const char *key, const char *reason);
exo_activation exo_hf_activation(exo_hf_config *config, const char *key, exo_activation fallback);
/* Records UNSUPPORTED, with the text `path: "key": value is not supported: reason`. */
void exo_hf_refuse(exo_hf_config *config, const char *key, const char *reason);
/* The same for `part`, a key in the mapping under `key`. `value` is its text, or NULL. The text:
 * `path: "key.part": "value" is not supported: reason`. */
void exo_hf_refuse_part(exo_hf_config *config, const char *key, const char *part, const char *value,
                        const char *reason);
/* Records DAMAGED: `path: "key": value is wrong: expected`. */
void exo_hf_wrong(exo_hf_config *config, const char *key, const char *expected);

/* A JSON number with no more digits than the float needs: 1e-5f becomes 1e-05. NULL: no memory. */
json_t *exo_hf_real(float value);
/* The name of an activation in transformers. Static. */
const char *exo_hf_activation_name(exo_activation activation);

#endif
