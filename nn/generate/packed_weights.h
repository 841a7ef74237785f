/* A decoder's weights as inference reads them. Owner: the generator; changes between passes only. Read next: forward.h. */
#ifndef EXO_GENERATE_WEIGHTS_H
#define EXO_GENERATE_WEIGHTS_H

#include <exogym/generate.h>

#include "nn/cpu/decode.h"

/* A norm: bias NULL if it has none. Vectors are zero up to a multiple of EXO_DECODE_PANEL. */
typedef struct exo_norm_weights {
    float *weight, *bias;
} exo_norm_weights;

typedef struct exo_linear_weights {
    exo_decode_matrix matrix;
    float *bias; /* NULL: none */
} exo_linear_weights;

typedef struct exo_block_weights {
    exo_norm_weights norm1, norm2;
    exo_linear_weights qkv, out;
    exo_linear_weights gate; /* of a gated MLP */
    exo_linear_weights up, down;
} exo_block_weights;

typedef struct exo_decoder_weights {
    exo_decoder_spec spec;
    exo_weight_format format;
    exo_linear_weights embedding, head; /* head: unless tied */
    float *position;                    /* (context + position_offset, W), or NULL */
    exo_norm_weights embedding_norm, norm;
    exo_block_weights *blocks;       /* (layers) */
    struct exo_weight_place *places; /* where each parameter goes, in the parameters' order */
    size_t num_places, cap_places;
    size_t bytes;
} exo_decoder_weights;

/* Allocates for `spec`, which must be a whole one. `out` is zero before; the caller releases it, also after an error. */
exo_status exo_decoder_weights_init(exo_decoder_weights *out, const exo_decoder_spec *spec,
                                    exo_weight_format format, exo_err *err);
void exo_decoder_weights_release(exo_decoder_weights *weights);
/* Copies parameters in; INVAL, before anything is changed, if they are not the spec's. */
exo_status exo_decoder_weights_fill(exo_decoder_weights *weights, exo_params *params, exo_err *err);
/* The matrix that gives logits. */
const exo_decode_matrix *exo_decoder_weights_head(const exo_decoder_weights *weights);

/* Elements of a row of activations `width` wide: a multiple of EXO_DECODE_PANEL. */
size_t exo_decode_stride(size_t width);

#endif
