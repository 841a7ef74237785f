/* Inside of a generator: what generator.c, step.c and measure.c share. */
#ifndef EXO_GENERATE_GENERATOR_H
#define EXO_GENERATE_GENERATOR_H

#include <exogym/generate.h>

#include "nn/generate/forward.h"
#include "nn/generate/sampling.h"

/* A place for a sequence. What has been taken stays readable until another is submitted here. */
typedef struct exo_sequence {
    bool used;
    uint64_t id;
    int32_t *tokens;                    /* (context) */
    float *log_probs, *plain_log_probs; /* (context) */
    uint64_t *seen;                     /* a bit for each token of the vocabulary */
    float *cache;
    size_t prompt, length, cached; /* cached: tokens whose keys and values are in the cache */
    exo_sampling sampling;
    int32_t stop_tokens[EXO_MAX_STOP_TOKENS];
    exo_finish finish;
    bool finite; /* of the step's choice */
    exo_choice choice;
} exo_sequence;

struct exo_generator {
    exo_generator_opts opts;
    exo_decoder_weights weights;
    exo_forward forward;
    exo_sequence *sequences; /* (opts.sequences) */
    size_t *order;           /* places in use, in order of submission */
    size_t used;
};

/* A place that is free, or NULL. */
exo_sequence *exo_generator_free_place(const exo_generator *generator);

#endif
