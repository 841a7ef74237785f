/* A decoder's weights in the layouts that inference reads. They are in one block of memory, whose
 * size and layout follow from the spec and the format.
 *
 * Owner: a decoder's plan (decoder_plan.h). Read next: decoder_weights.c, decode.h. */
#ifndef EXO_CPU_DECODER_WEIGHTS_H
#define EXO_CPU_DECODER_WEIGHTS_H

#include "nn/cpu/decode.h"
#include "nn/device/device_impl.h"

/* bias is NULL if the norm has none. Vectors, here and below, are padded with zeros to a multiple
 * of EXO_DECODE_PANEL. */
typedef struct exo_norm_weights {
    float *weight, *bias;
} exo_norm_weights;

typedef struct exo_linear_weights {
    exo_decode_matrix matrix;
    float *bias; /* (outputs), or NULL */
} exo_linear_weights;

typedef struct exo_block_weights {
    exo_norm_weights norm1, norm2;
    exo_norm_weights q_norm, k_norm; /* over heads; zero if the spec has none */
    exo_linear_weights qkv, out;
    exo_linear_weights gate; /* of a gated MLP; else zero */
    exo_linear_weights up, down;
} exo_block_weights;

/* All pointers to numbers point into `memory`. */
typedef struct exo_decoder_weights {
    exo_decoder_spec spec;
    exo_weight_format format;
    exo_linear_weights embedding, head; /* head is zero if the embedding is also the head */
    float *position;                    /* (context + position_offset, W), or NULL */
    exo_norm_weights embedding_norm, norm;
    exo_block_weights *blocks;       /* (layers) */
    struct exo_weight_place *places; /* of each parameter, in the parameters' order */
    size_t num_places;
    size_t bytes;       /* of the memory */
    const void *memory; /* the memory that was bound last */
} exo_decoder_weights;

/* Sets the layout of a shape, or of its part, without memory. `out` must be zero. The caller releases it, also after an error.
 * NOMEM, or INVAL: a matrix too large to count its bytes. */
exo_status exo_decoder_weights_init(exo_decoder_weights *out, const exo_decoder_shape *shape,
                                    exo_err *err);
void exo_decoder_weights_release(exo_decoder_weights *weights);
/* Lets all pointers point into `memory`, which is aligned to 64 bytes. */
void exo_decoder_weights_bind(exo_decoder_weights *weights, const void *memory);
/* Writes a parameter's values to the bound memory, in the format. The memory was zero before the
 * first parameter. */
void exo_decoder_weights_pack(exo_decoder_weights *weights, size_t parameter, const float *values);
/* The matrix whose product gives the logits: the head, or the embedding if tied. */
const exo_decode_matrix *exo_decoder_weights_head(const exo_decoder_weights *weights);

#endif
