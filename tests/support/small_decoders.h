/* Small decoders of each kind with random weights, and their logits by plain loops in double. For
 * tests with Criterion. */
#ifndef EXO_TEST_SMALL_DECODERS_H
#define EXO_TEST_SMALL_DECODERS_H

#include <exogym/decoder.h>

enum {
    SMALL_DECODERS = 7
};

typedef struct small_decoder {
    exo_model *model;
    exo_params *params;
    exo_decoder_spec spec;
} small_decoder;

/* Kinds: GPT-2, OPT, BLOOM, LLaMA, LLaMA with few key-value heads and LLaMA 3's frequencies, one
 * with odd sizes, and Qwen3, with norms of heads. */
exo_decoder_spec small_decoder_spec(int kind);
/* Makes a decoder. The seed determines the weights, whose size makes the logits differ clearly. */
void small_decoder_new(small_decoder *d, const exo_decoder_spec *spec, uint64_t seed);
void small_decoder_free(small_decoder *d);
/* Writes other weights for the same spec. */
void small_decoder_refill(small_decoder *d, uint64_t seed);
/* Draws `count` tokens of the vocabulary. */
void small_decoder_tokens(const exo_decoder_spec *spec, uint64_t seed, size_t count,
                          int32_t *tokens);
/* Computes the logits (count, V) as exogym/decoder.h defines them. The caller frees them with
 * free(). */
double *small_decoder_logits(small_decoder *d, const int32_t *tokens, size_t count);

#endif
