/* The families of decoders, of those in transformers, that exogym reads and writes. Each is a
 * file: gpt2.c, opt.c, bloom.c, llama.c, mistral.c, qwen2.c, qwen3.c. No state. Read next: gpt2.c; load.c, save.c. */
#ifndef EXO_PRETRAINED_FAMILY_H
#define EXO_PRETRAINED_FAMILY_H

#include "nn/pretrained/hf_config.h"
#include "nn/pretrained/places.h"

typedef struct exo_family {
    const char *name;         /* model_type in config.json */
    const char *architecture; /* the class in transformers */
    /* The following lists end with NULL. */
    const char *prefixes[4];  /* of the tensors' names; the first is written */
    const char *harmless[16]; /* keys of config.json that do not change the computation */
    const char *buffers[4];   /* patterns of tensors that are no parameters; #: a block's number */
    /* Fills in a zeroed spec. Errors are recorded in the config. */
    void (*read)(exo_hf_config *config, exo_decoder_spec *spec);
    /* A property of the family that the spec does not have, as text for an error; NULL: none. */
    const char *(*lacks)(const exo_decoder_spec *spec);
    /* The family's own keys of config.json, a new object. NULL: no memory. */
    json_t *(*write)(const exo_decoder_spec *spec);
    /* Adds the places of all tensors except a head that is not tied. NOMEM is recorded in
     * `places`. */
    void (*places)(const exo_decoder_spec *spec, exo_tensor_places *places);
} exo_family;

/* The family of this model_type, or NULL. */
const exo_family *exo_family_find(const char *name);
/* The families' names, for errors. */
#define EXO_FAMILIES "gpt2, opt, bloom, llama, mistral, qwen2 and qwen3"

/* The places of all tensors of the spec, in the family's order. The caller releases them, also
 * after an error. NOMEM. */
exo_status exo_family_places(const exo_family *family, const exo_decoder_spec *spec,
                             exo_tensor_places *places, exo_err *err);
/* Finds the spec's family. UNSUPPORTED: there is none, or its config.json cannot express the spec
 * (names the first reason). */
exo_status exo_family_check(const exo_family **out, const exo_decoder_spec *spec, exo_err *err);
/* True: `tensor` (without prefix) is one of the family's buffers. */
bool exo_family_is_buffer(const exo_family *family, const char *tensor);

extern const exo_family exo_family_gpt2, exo_family_opt, exo_family_bloom, exo_family_llama,
    exo_family_mistral, exo_family_qwen2, exo_family_qwen3;

#endif
