/* Canaries: some tokens, generated greedily from fixed prompts, with their log-probabilities. They
 * prove that two generators have the same weights, and use them in the same way.
 *
 * The prompts follow from the model's fingerprint. The tokens come from the real path: the
 * generator's packed weights, its caches, its choice of tokens. The SHA-256 of the logits of some
 * positions covers all rows of the head. Owner of a canary: its user. Read next: canary.c. */
#ifndef EXO_UPDATES_CANARY_H
#define EXO_UPDATES_CANARY_H

#include <exogym/generate.h>

#include "nn/updates/bytes.h"

enum {
    EXO_CANARY_PROMPTS = 4,
    EXO_CANARY_TOKENS = 8,      /* the most new tokens of a prompt */
    EXO_CANARY_CONTEXT = 24,    /* the most tokens of a sequence */
    EXO_CANARY_ARITHMETIC = 24, /* bytes of the kind of arithmetic, padded with zeros */
    EXO_CANARY_BYTES = 4 + EXO_CANARY_ARITHMETIC + 4 + EXO_SHA +
                       8 * EXO_CANARY_PROMPTS * EXO_CANARY_TOKENS, /* on the wire */
};

typedef struct exo_canary {
    exo_weight_format format;
    char arithmetic[EXO_CANARY_ARITHMETIC];
    uint32_t count; /* new tokens of each prompt */
    uint8_t logits[EXO_SHA];
    int32_t tokens[EXO_CANARY_PROMPTS * EXO_CANARY_TOKENS]; /* (prompts, count) */
    /* (prompts, count), under log softmax of the logits */
    float log_probs[EXO_CANARY_PROMPTS * EXO_CANARY_TOKENS];
} exo_canary;

/* The options of a generator that computes canaries only. */
exo_generator_opts exo_canary_generator(const exo_decoder_spec *spec, exo_weight_format format);
/* Computes the canary of a generator made with these options, which has no sequences. Errors: those
 * of generation, FAILED (logits that are not finite). */
exo_status exo_canary_compute(exo_canary *out, exo_generator *generator,
                              const uint8_t fingerprint[EXO_SHA], exo_err *err);
/* Compares the receiver's canary with the sender's. Of equal arithmetic all bits must be equal.
 * Otherwise the log-probabilities of each prompt may differ by `tolerance`, up to the first token
 * that differs, whose log-probability must do so, too. FAILED: the text has the first difference.
 */
exo_status exo_canary_compare(const exo_canary *mine, const exo_canary *sent, double tolerance,
                              exo_err *err);

/* EXO_CANARY_BYTES bytes, and back. False: they are no canary. */
void exo_canary_write(const exo_canary *canary, uint8_t *out);
bool exo_canary_read(exo_byte_reader *reader, exo_canary *out);

#endif
