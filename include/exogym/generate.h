/* Generation: a decoder's weights prepared for inference, and the sequences that it goes on with,
 * each with a cache of keys and values.
 *
 * Sequences come and go one by one (continuous batching): a sequence is submitted with its prompt
 * and how it is sampled; a step gives every sequence whose prompt is through one more token; one
 * that has finished is taken, and its place is free.
 *
 *     exo_generator_new(&g, spec, params, &(exo_generator_opts){.sequences = 16}, err);
 *     while (there are prompts, or sequences in g) {
 *         while (exo_generator_room(g) > 0 && there is a prompt)
 *             exo_generator_submit(g, id, prompt, length, &sampling, err);
 *         exo_generator_step(g, err);
 *         while (exo_generator_take(g, &done))
 *             use(done.tokens, done.log_probs);
 *     }
 *
 * Tokens and log-probabilities are the same to the bit whatever other sequences there are, whatever
 * the limit of tokens a step, and with any number of threads; and logits are those of the whole
 * sequence computed anew, to the bit (docs/generation.md).
 *
 * Memory for sequences is allocated by exo_generator_new; submitting and steps allocate nothing.
 * Threads: a generator belongs to one thread at a time. */
#ifndef EXOGYM_GENERATE_H
#define EXOGYM_GENERATE_H

#include <exogym/decoder.h>

EXO_DECLS_BEGIN

/* How weights of matrices are kept; embeddings of positions, norms and biases are fp32. Groups are
 * 128 inputs of one output. */
typedef enum exo_weight_format {
    EXO_WEIGHTS_F32,
    EXO_WEIGHTS_INT8, /* w = s q, q in -127..127, s = max |w| / 127 of the group, fp32 */
    /* w = s q + m, q in 0..15, s and m fp32, of the group; embedding and head as INT8 */
    EXO_WEIGHTS_INT4,
} exo_weight_format;

/* "fp32", "int8", "int4" -> format; INVAL lists them. */
EXO_API exo_status exo_weight_format_named(const char *name, exo_weight_format *out, exo_err *err);

/* What a generator has room for. Zeroed: all defaults. */
typedef struct exo_generator_opts {
    exo_weight_format weights; /* how matrices are kept */
    size_t sequences;          /* at once, at most 65536; 0: 1 */
    /* tokens of a sequence, prompt and answer; 0: the decoder's, which is also the most */
    size_t context;
    /* tokens that one step computes, at least `sequences`; 0: 256, or `sequences` */
    size_t step_tokens;
} exo_generator_opts;

/* Weights for inference, and sequences with their caches. */
typedef struct exo_generator exo_generator;

/* Copies `params`, in the order and with the names of decoder.h, into the format; `spec` is copied
 * too. `opts` may be NULL: one sequence, fp32. Errors: INVAL (options, or parameters that are not
 * the spec's: names the first), UNSUPPORTED (a head wider than 512), NOMEM. */
EXO_API exo_status exo_generator_new(exo_generator **out, const exo_decoder_spec *spec,
                                     exo_params *params, const exo_generator_opts *opts,
                                     exo_err *err);
/* Frees it and sets *generator to NULL; accepts NULL in it. */
EXO_API void exo_generator_free(exo_generator **generator);

/* Takes other weights of the same spec, between steps. Sequences that are under way go on with what
 * is in their caches, computed with the weights of then. INVAL: the parameters are not the spec's;
 * the weights stay as they were. */
EXO_API exo_status exo_generator_set_weights(exo_generator *generator, exo_params *params,
                                             exo_err *err);

/* Its decoder. Lives as long as the generator. */
EXO_API const exo_decoder_spec *exo_generator_spec(const exo_generator *generator);
/* What was chosen, no 0 in it. */
EXO_API const exo_generator_opts *exo_generator_options(const exo_generator *generator);

/* Bytes of weights, scales and biases; bytes of the caches of all sequences: 4 sequences layers
 * kv_heads (K D + context D'), K the context rounded up to 16, D' the head's width rounded up to
 * 16. */
EXO_API size_t exo_generator_weight_bytes(const exo_generator *generator);
EXO_API size_t exo_generator_cache_bytes(const exo_generator *generator);

/* --- Sequences -------------------------------------------------------------------------------- */

/* How tokens are chosen, in transformers' order: the repetition penalty, the temperature, top-k,
 * top-p; then a draw.
 *
 * repetition_penalty: p divides positive logits of tokens of prompt and answer, and multiplies
 * negative ones (Keskar et al., 2019). top_k: logits that are at least the k-th largest. top_p: the
 * fewest most probable tokens that hold at least p together (Holtzman et al., 2019), of equals
 * those with smaller numbers first. */
typedef struct exo_sampling {
    float repetition_penalty;   /* 0 or 1: none */
    float temperature;          /* divides the logits; 0: the first of the most probable, always */
    size_t top_k;               /* 0: all */
    float top_p;                /* 0 or 1: all */
    size_t vocabulary;          /* only tokens below it, where a head is padded; 0: all */
    size_t max_new_tokens;      /* 0: as many as the context has room for */
    const int32_t *stop_tokens; /* copied; the one that was met is the sequence's last */
    size_t num_stop_tokens;     /* at most EXO_MAX_STOP_TOKENS */
    uint64_t seed;              /* draws are from (seed, EXO_RNG_TOKEN, id, position) */
} exo_sampling;

/* The most stop tokens of one sequence. */
enum {
    EXO_MAX_STOP_TOKENS = 16
};

/* Why a sequence has ended. */
typedef enum exo_finish {
    EXO_FINISH_NONE,       /* it goes on */
    EXO_FINISH_STOP,       /* a stop token */
    EXO_FINISH_LENGTH,     /* max_new_tokens */
    EXO_FINISH_CONTEXT,    /* the context is full */
    EXO_FINISH_NOT_FINITE, /* a logit is infinite or no number: the weights are broken */
} exo_finish;
/* "not finished", "stop", "length", "context", "not finite". Static. */
EXO_API const char *exo_finish_text(exo_finish finish);

/* A sequence as it is. */
typedef struct exo_generated {
    uint64_t id;           /* that it was submitted with */
    const int32_t *tokens; /* (length), the prompt first */
    size_t prompt, length; /* tokens of the prompt; of all */
    /* (length - prompt): of each new token under the distribution it was drawn from, after
     * penalty, temperature, top-k and top-p; 0 at temperature 0 */
    const float *log_probs;
    const float *plain_log_probs; /* (length - prompt): under log softmax of the logits */
    exo_finish finish;            /* NONE while it goes on */
} exo_generated;

/* How many more sequences can be submitted. */
EXO_API size_t exo_generator_room(const exo_generator *generator);
/* How many have not finished. */
EXO_API size_t exo_generator_active(const exo_generator *generator);

/* Begins sequence `id` (below 2^56) with a prompt of 1 to context - 1 tokens, copied. Errors: FULL,
 * EXISTS (the id is in use), INVAL (names the numbers). */
EXO_API exo_status exo_generator_submit(exo_generator *generator, uint64_t id,
                                        const int32_t *prompt, size_t count,
                                        const exo_sampling *sampling, exo_err *err);
/* One step: a token for every sequence whose prompt is through; of other prompts as many tokens as
 * the step still has room for, the oldest first, and the first new token of those that come to
 * their end. Nothing to do is no error. Blocks while it computes. */
EXO_API exo_status exo_generator_step(exo_generator *generator, exo_err *err);
/* The index-th sequence in order of submission, finished or not; false after the last. Valid until
 * the next call that changes something. */
EXO_API bool exo_generator_at(const exo_generator *generator, size_t index, exo_generated *out);
/* Takes out the finished sequence that was submitted first; false: none has finished. *out is valid
 * until the next submit. */
EXO_API bool exo_generator_take(exo_generator *generator, exo_generated *out);
/* Forgets a sequence, finished or not. NOT_FOUND. */
EXO_API exo_status exo_generator_cancel(exo_generator *generator, uint64_t id, exo_err *err);

/* --- Measures --------------------------------------------------------------------------------- */

/* Logits (count, V) of a sequence of `count` tokens, count at most the context. Needs room for one
 * sequence: FULL. */
EXO_API exo_status exo_generator_logits(exo_generator *generator, const int32_t *tokens,
                                        size_t count, float *logits, exo_err *err);
/* The mean of -log softmax(logits)[next token] over a text: windows of `window` inputs (0: the
 * context) that do not overlap, each with the tokens that follow its inputs; the last may be
 * shorter. count at least 2. exp of it is the perplexity. Needs room for one sequence: FULL. */
EXO_API exo_status exo_generator_nll(exo_generator *generator, const int32_t *tokens, size_t count,
                                     size_t window, double *mean, exo_err *err);

EXO_DECLS_END

#endif
