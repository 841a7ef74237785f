/* The choice of a token from logits. No state. Read next: sampling.c. */
#ifndef EXO_GENERATE_SAMPLING_H
#define EXO_GENERATE_SAMPLING_H

#include <exogym/generate.h>

#include "nn/generate/forward.h"

/* Checks the options' ranges, and the stop tokens against the vocabulary. INVAL names the
 * option. */
exo_status exo_sampling_check(const exo_sampling *sampling, size_t vocabulary, exo_err *err);
/* The draw for the token at `position` of sequence `id`: uniform in [0, 1), with 53 bits. */
double exo_sampling_draw(uint64_t seed, uint64_t id, size_t position);
/* What the temperature multiplies logits by: 1 / temperature, and 1 at temperature 0. */
float exo_sampling_scale(const exo_sampling *sampling);
/* The options as a device reads them, with `draw`. */
exo_choice_rule exo_sampling_rule(const exo_sampling *sampling, double draw);
/* Chooses a token with `draw`, which temperature 0 ignores. seen: a bit for each token to which
 * the repetition penalty applies. false: no token can be chosen (exo_choice). */
bool exo_sampling_choose(const exo_sampling *sampling, const float *logits, size_t vocabulary,
                         const uint64_t *seen, double draw, const exo_logits_scratch *scratch,
                         exo_choice *out);
/* -log softmax(logits)[token]. NaN: a logit is NaN or +infinite, or all are -infinite. */
double exo_sampling_nll(const float *logits, size_t vocabulary, size_t token);

#endif
