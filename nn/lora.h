/* LoRA parameters among a decoder's: their names, places and shapes. No state; any thread. Read
 * next: nn/models/decoder_lora.c, nn/generate/forward.c. */
#ifndef EXO_NN_LORA_H
#define EXO_NN_LORA_H

#include <exogym/decoder.h>

#include "nn/device/device_impl.h"

enum {
    EXO_LORA_NAME = 80 /* bytes of a parameter's name, with its 0 */
};

#define EXO_LORA_A ".lora_a"
#define EXO_LORA_B ".lora_b"

/* A layer with its two parameters. */
typedef struct exo_lora_pair {
    exo_decoder_layer layer;
    size_t a, b; /* indices of parameters: (rank, columns) and (rows, rank) */
    size_t rank;
} exo_lora_pair;

/* The index-th layer of the spec that has LoRA parameters, from layer *from of
 * exo_decoder_layer_at on; *from moves behind it. False: no further one. */
bool exo_lora_pair_next(const exo_decoder_spec *spec, const exo_params *params, size_t *from,
                        exo_lora_pair *out);

/* Checks that the parameters from index `first` on are pairs of LoRA parameters with the right
 * shapes, and that there are some exactly if the spec has a lora_scale. INVAL names the first. */
exo_status exo_lora_check_params(const exo_decoder_spec *spec, const exo_params *params,
                                 size_t first, exo_err *err);

#endif
