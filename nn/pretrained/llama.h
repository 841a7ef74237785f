/* What LLaMA and the families that follow it have in common: RMS norms, rotary positions that turn the
 * halves of a head, gated MLPs, and the names of tensors. They differ in biases, in keys about windows
 * of attention, and in the sizes of a config.json that does not say them. No state; any thread. */
#ifndef EXO_PRETRAINED_LLAMA_H
#define EXO_PRETRAINED_LLAMA_H

#include "nn/pretrained/family.h"

/* Sizes that a family has where config.json has no key for them. */
typedef struct exo_llama_sizes {
    size_t vocabulary, context, width, layers, heads, inner;
    size_t kv_heads;   /* 0: as heads */
    size_t head_width; /* 0: width / heads */
} exo_llama_sizes;

/* Fills in all but the biases of a zeroed spec. */
void exo_llama_read(exo_hf_config *config, const exo_llama_sizes *missing, exo_decoder_spec *spec);
/* As exo_family's lacks, without the biases. */
const char *exo_llama_lacks(const exo_decoder_spec *spec);
/* The keys of all these families. NULL: no memory. */
json_t *exo_llama_write(const exo_decoder_spec *spec);
/* As exo_family's. */
void exo_llama_places(const exo_decoder_spec *spec, exo_tensor_places *places);

#endif
