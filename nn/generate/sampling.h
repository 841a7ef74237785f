/* Choosing a token from logits. No state. */
#ifndef EXO_GENERATE_SAMPLING_H
#define EXO_GENERATE_SAMPLING_H

#include <exogym/generate.h>

#include "nn/generate/forward.h"

typedef struct exo_choice {
    int32_t token;
    float log_prob, plain_log_prob;
} exo_choice;

/* Checks the numbers of `sampling` against the vocabulary. INVAL names the one. */
exo_status exo_sampling_check(const exo_sampling *sampling, size_t vocabulary, exo_err *err);
/* A number of [0, 1) with 53 bits for the token at `position` of sequence `id`. */
double exo_sampling_draw(uint64_t seed, uint64_t id, size_t position);
/* Chooses by `draw`. seen: a bit for each token, which the repetition penalty is about. false: the largest logit is not finite. */
bool exo_sampling_choose(const exo_sampling *sampling, const float *logits, size_t vocabulary,
                         const uint64_t *seen, double draw, const exo_logits_scratch *scratch,
                         exo_choice *out);
/* -log softmax(logits)[token]; NaN if the largest logit is not finite. */
double exo_sampling_nll(const float *logits, size_t vocabulary, size_t token);

#endif
