/* A source of experience: it generates answers to prompts with a version of a model's weights, scores them, and
 * makes items of experience. It is independent of actors; maker.c is the actor that samples.
 *
 * The answers to a draw depend on the run's seed, the draw and the weights, to the bit: not on the
 * maker, the batch, or the answers before. Answer a of draw d is sequence d A + a of the generator,
 * whose random numbers have the key (seed, TOKEN, sequence, position).
 *
 * Owner: the caller, one thread at a time. Read next: experience.h. */
#ifndef EXO_EXPERIENCE_SOURCE_H
#define EXO_EXPERIENCE_SOURCE_H

#include "experience/experience.h"
#include "experience/prompts.h"

typedef struct exo_experience_source exo_experience_source;

/* Reads a source from the keys model, prompts, reward, answers, batch, generate and weights of a
 * config. Draws the weights of version 0 only in exo_experience_source_start. The caller frees it. INVAL (with its
 * place), IO, NOMEM. */
exo_status exo_experience_source_read(exo_experience_source **out, exo_config *config,
                                      exo_err *err);
void exo_experience_source_free(exo_experience_source **source);

/* Prepares the generator with the weights that `seed` draws, which are version 0. NOMEM. */
exo_status exo_experience_source_start(exo_experience_source *source, uint64_t seed, exo_err *err);

/* The number of prompts; the most draws of a batch; the number of learned parameters. */
size_t exo_experience_source_prompts(const exo_experience_source *source);
size_t exo_experience_source_batch(const exo_experience_source *source);
size_t exo_experience_source_numel(const exo_experience_source *source);
/* The learned parameters (numel), for the caller to write; then exo_experience_source_use makes them the
 * weights of a version. NOMEM. */
float *exo_experience_source_values(exo_experience_source *source);
exo_status exo_experience_source_use(exo_experience_source *source, uint64_t version, exo_err *err);
uint64_t exo_experience_source_version(const exo_experience_source *source);

/* Makes one item for each of the draws first, first + stride, ... (count, at most the batch), which
 * the caller drops. After an error there are none. FAILED: the weights give logits that are not
 * finite; NOMEM; the reward's. */
exo_status exo_experience_source_make(exo_experience_source *source, uint64_t maker, uint64_t first,
                                      uint64_t stride, size_t count, exo_item **items,
                                      exo_err *err);

#endif
