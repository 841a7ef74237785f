/* Inside of the class "gpt": what is built of a spec. The spec's rules stand in ../decoder_spec.c,
 * a job's options in decoder_options.c, the parameters in decoder.c, the pass in decoder_forward.c.
 * Read-only after build; any thread. */
#ifndef EXO_MODELS_DECODER_H
#define EXO_MODELS_DECODER_H

#include <exogym/decoder.h>

/* A parameter that the spec may do without. */
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

/* The class's state. `spec` alone is there before build when the model is made by
 * exo_decoder_new. */
typedef struct exo_decoder {
    exo_decoder_spec spec;
    char *folder; /* the initial values are in this Hugging Face directory; NULL: they are drawn */
    exo_param embedding, position;
    exo_decoder_norm embedding_norm, norm;
    exo_decoder_param head;
    exo_decoder_block *blocks; /* (layers) */
    exo_rotary_opts rotary;
    float *scaled; /* (head_width / 2): factors of the rotary frequencies, or NULL */
} exo_decoder;

/* Reads a job's options into the spec and, with `path`, the folder. */
exo_status exo_decoder_read_options(exo_decoder *decoder, exo_config *config, exo_err *err);

/* The class's `forward`, of batches with a field "tokens" (N, T): hidden (R, W), and logits (R, V)
 * as its product with the head. */
void exo_decoder_forward(const void *self, exo_tape *tape, const exo_batch *batch,
                         exo_outputs *outputs);

#endif
