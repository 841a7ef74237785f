/* The inside of the class "gpt": a spec, and what is built from it. decoder_spec.c has the rules of
 * specs, decoder_options.c a job's options, decoder.c the parameters, decoder_forward.c the pass.
 * It is read-only once built, for any thread. */
#ifndef EXO_MODELS_DECODER_H
#define EXO_MODELS_DECODER_H

#include <exogym/decoder.h>

/* A parameter that some specs do not have. */
typedef struct exo_decoder_param {
    exo_param param;
    bool there;
} exo_decoder_param;

typedef struct exo_decoder_norm {
    exo_param weight;
    exo_decoder_param bias;
} exo_decoder_norm;

typedef struct exo_decoder_linear {
    exo_param weight;
    exo_decoder_param bias;
} exo_decoder_linear;

typedef struct exo_decoder_block {
    exo_decoder_norm norm1, norm2;
    exo_decoder_linear qkv, out, up, down;
} exo_decoder_block;

/* The class's state. In exo_decoder_new, only `spec` is set before build. */
typedef struct exo_decoder {
    exo_decoder_spec spec;
    /* The Hugging Face directory of the initial values. NULL: they are drawn. */
    char *folder;
    exo_param embedding, position;
    exo_decoder_norm embedding_norm, norm;
    exo_decoder_param head;
    bool values; /* it has a value head: a row of weights and a bias */
    exo_param value_weight, value_bias;
    exo_decoder_block *blocks; /* (layers) */
    exo_rotary_opts rotary;
    float *scaled; /* (head_width / 2): factors of the rotary frequencies, or NULL */
} exo_decoder;

/* Reads a job's options into the spec and, for the option `path`, the folder. */
exo_status exo_decoder_read_options(exo_decoder *decoder, exo_config *config, exo_err *err);

/* The class's `forward`, for batches with a field "tokens" (N, T); R is N T. Gives hidden (R, W),
 * logits (R, V) as the product of hidden and the head, and with a value head values (R). */
void exo_decoder_forward(const void *self, exo_tape *tape, const exo_batch *batch,
                         exo_outputs *outputs);

#endif
