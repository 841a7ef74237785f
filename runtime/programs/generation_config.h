/* The generation settings of a Hugging Face directory: generation_config.json. No state. */
#ifndef EXO_PROGRAMS_GENERATION_CONFIG_H
#define EXO_PROGRAMS_GENERATION_CONFIG_H

#include <jansson.h>

#include <exogym/generate.h>

/* Reads the folder's generation_config.json or, in older directories without it, the settings in
 * config.json. *out is NULL if neither has any; the caller drops it. *own: the settings are from
 * generation_config.json. Errors: IO, NOMEM; DAMAGED names file and place. */
exo_status exo_generation_config_read(const char *folder, json_t **out, bool *own, exo_err *err);

/* The settings. A `has` member is false if its setting is absent. */
typedef struct exo_generation_defaults {
    bool has_temperature, has_top_k, has_top_p, has_penalty, has_most;
    double temperature, top_p, repetition_penalty;
    uint64_t top_k, max_new_tokens;
    bool greedy;      /* do_sample is false */
    const char *file; /* name of the file that the settings are from, in the folder; NULL: none */
    int32_t begin;    /* bos_token_id, or -1 */
    int32_t ends[EXO_MAX_STOP_TOKENS]; /* eos_token_id */
    size_t num_ends;
} exo_generation_defaults;

/* Reads the folder's settings; all are absent if there is no file. Warns on standard error of keys
 * that would change the text but are not supported. Errors: DAMAGED (a value of a wrong type or
 * range; names file and key). */
exo_status exo_generation_defaults_read(exo_generation_defaults *out, const char *folder,
                                        exo_err *err);

#endif
