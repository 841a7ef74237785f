/* How a Hugging Face directory wants its texts to be generated: generation_config.json. No
 * state. */
#ifndef EXO_PROGRAMS_GENERATION_CONFIG_H
#define EXO_PROGRAMS_GENERATION_CONFIG_H

#include <jansson.h>

#include <exogym/generate.h>

/* The folder's generation_config.json; without one, what its config.json says of it, as older
 * directories do. *out NULL: neither says anything; the caller drops it. `*own`: it is a
 * generation_config.json. Errors: IO, NOMEM; DAMAGED names file and place. */
exo_status exo_generation_config_read(const char *folder, json_t **out, bool *own, exo_err *err);

/* What it says; `has` members tell what it does not. */
typedef struct exo_generation_defaults {
    bool has_temperature, has_top_k, has_top_p, has_penalty, has_most;
    double temperature, top_p, repetition_penalty;
    uint64_t top_k, max_new_tokens;
    bool greedy;      /* do_sample is false */
    const char *file; /* that says all this: its name in the folder; NULL: none does */
    int32_t begin;    /* bos_token_id, or -1 */
    int32_t ends[EXO_MAX_STOP_TOKENS]; /* eos_token_id */
    size_t num_ends;
} exo_generation_defaults;

/* Reads the folder's; without a file all is unsaid. Says on standard error which of its keys would
 * change the text and are not done here. DAMAGED: a value of another type or range; names file and
 * key. */
exo_status exo_generation_defaults_read(exo_generation_defaults *out, const char *folder,
                                        exo_err *err);

#endif
