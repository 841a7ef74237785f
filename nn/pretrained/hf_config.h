/* A config.json, read strictly: each key is asked for, must be a given value, or is known not to change what a model computes; any other is
 * an error. Errors stick. Owner: the caller; one thread. */
#ifndef EXO_PRETRAINED_HF_CONFIG_H
#define EXO_PRETRAINED_HF_CONFIG_H

#include <jansson.h>

#include <exogym/decoder.h>

#include "nn/pretrained/paths.h"

enum {
    EXO_HF_KEYS = 64
};

typedef struct exo_hf_config {
    char path[EXO_PRETRAINED_PATH];
    json_t *root;
    const char *asked[EXO_HF_KEYS];
    size_t num_asked;
    exo_err error;
} exo_hf_config;

/* NOT_FOUND, IO; DAMAGED: no JSON object. */
exo_status exo_hf_config_open(exo_hf_config *config, const char *folder, exo_err *err);
void exo_hf_config_close(exo_hf_config *config);
/* The first error; else refuses what was not asked for and is neither null nor in exo_hf_harmless nor in the list, which ends with NULL. */
exo_status exo_hf_config_finish(exo_hf_config *config, const char *const *harmless, exo_err *err);

/* The value under `key`, NULL if it is missing or null. */
const json_t *exo_hf_get(exo_hf_config *config, const char *key);
/* An integer from 1. `fallback` 0: it must be there. */
size_t exo_hf_size(exo_hf_config *config, const char *key, size_t fallback);
float exo_hf_float(exo_hf_config *config, const char *key, float fallback);
bool exo_hf_bool(exo_hf_config *config, const char *key, bool fallback);
/* A boolean that must have this value, which it has where the key is missing. */
void exo_hf_must(exo_hf_config *config, const char *key, bool value);
exo_activation exo_hf_activation(exo_hf_config *config, const char *key, exo_activation fallback);
/* Records UNSUPPORTED: "path: "key": value is not supported: reason". */
void exo_hf_refuse(exo_hf_config *config, const char *key, const char *reason);
/* The same of a key in the mapping under `key`, with its value if it is a text: "path: "key.part": "value" is not supported: reason". */
void exo_hf_refuse_part(exo_hf_config *config, const char *key, const char *part, const char *value,
                        const char *reason);
/* Records DAMAGED likewise. */
void exo_hf_wrong(exo_hf_config *config, const char *key, const char *expected);

/* A JSON number with no more digits than the float needs: 1e-5 is 1e-05 again. NULL: no memory. */
json_t *exo_hf_real(float value);
/* transformers' name of an activation. */
const char *exo_hf_activation_name(exo_activation activation);

#endif
