/* The state of a generator, for generator.c, step.c and measure.c.
 *
 * Owner: the one thread that calls the generator at a time. Read next: generator.c, step.c. */
#ifndef EXO_GENERATE_GENERATOR_H
#define EXO_GENERATE_GENERATOR_H

#include <exogym/generate.h>

#include "nn/generate/forward.h"
#include "nn/generate/sampling.h"

/* A place for a sequence. The results of a taken sequence stay readable until the next submit. */
typedef struct exo_sequence {
    bool used;
    uint64_t id;
    int32_t *tokens;                    /* (context) */
    float *log_probs, *plain_log_probs; /* (context), of the new tokens */
    uint64_t *seen;                /* a bit for each token: it is in the prompt or the answer */
    size_t prompt, length, cached; /* tokens: of the prompt, of all, of those in the cache */
    size_t computed;               /* tokens that the step under way adds to the cache */
    exo_sampling sampling;
    int32_t stop_tokens[EXO_MAX_STOP_TOKENS];
    exo_finish finish;
    bool finite;       /* false: the step could not choose, because the logits are not finite */
    exo_choice choice; /* of the step under way */
} exo_sequence;

struct exo_generator {
    exo_generator_opts opts;
    exo_forward forward;
    exo_sequence *sequences; /* (opts.sequences); each has the cache of its number */
    size_t *order;           /* (used): the places in use, in order of submission */
    size_t used;
};

static inline exo_device *
exo_generator_device(const exo_generator *generator)
{
    return generator->forward.device;
}

static inline const exo_decoder_spec *
exo_generator_decoder(const exo_generator *generator)
{
    return &generator->forward.shape.spec;
}

/* Checks that exo_generator_swap_weights() would exchange the weights of these; writes nothing, so
 * that `generator` may be in a step. */
exo_status exo_generator_check_swap(const exo_generator *generator, const exo_generator *other,
                                    exo_err *err);

/* The first free place, or NULL. */
exo_sequence *exo_generator_free_place(const exo_generator *generator);

#endif
