/* The families of decoders that transformers has and exogym reads and writes; each is a file: gpt2.c, opt.c, bloom.c, llama.c. */
#ifndef EXO_PRETRAINED_FAMILY_H
#define EXO_PRETRAINED_FAMILY_H

#include "nn/pretrained/hf_config.h"
#include "nn/pretrained/places.h"

typedef struct exo_family {
    const char *name;         /* config.json's model_type          */
    const char *architecture; /* transformers' class               */
    const char *prefixes[4];  /* of tensors; the first is written. Ends with NULL */
    const char
        *harmless[16]; /* keys of config.json that do not change the computation. Ends with NULL */
    const char *buffers
        [4]; /* tensors that are no parameters, by a pattern in which # is a block's number. Ends with NULL */
    /* Fills in a zeroed spec; errors stick in the config. */
    void (*read)(exo_hf_config *config, exo_decoder_spec *spec);
    /* NULL, or what of the spec the family does not have. */
    const char *(*lacks)(const exo_decoder_spec *spec);
    /* The family's own keys of config.json. NULL: no memory. */
    json_t *(*write)(const exo_decoder_spec *spec);
    /* The tensors but the head of one that is not tied. */
    void (*places)(const exo_decoder_spec *spec, exo_tensor_places *places);
} exo_family;

/* NULL if there is none. */
const exo_family *exo_family_find(const char *name);
/* "gpt2, opt, bloom, llama" */
#define EXO_FAMILIES "gpt2, opt, bloom and llama"

/* All tensors of the spec in the family's order; the caller releases them, also after an error. NOMEM. */
exo_status exo_family_places(const exo_family *family, const exo_decoder_spec *spec,
                             exo_tensor_places *places, exo_err *err);
/* UNSUPPORTED: says what of the spec no directory of its family can express. */
exo_status exo_family_check(const exo_family **out, const exo_decoder_spec *spec, exo_err *err);
/* Is `tensor` (without prefix) one of the family's buffers? */
bool exo_family_is_buffer(const exo_family *family, const char *tensor);

extern const exo_family exo_family_gpt2, exo_family_opt, exo_family_bloom, exo_family_llama;

#endif
