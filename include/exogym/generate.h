/* Generation: a decoder's weights prepared for inference, and the sequences that it continues, each
 * with a cache of keys and values.
 *
 * Sequences come and go independently (continuous batching). A sequence is submitted with its
 * prompt and its sampling options. A step gives one more token to every sequence whose prompt has
 * been processed. A finished sequence is taken out, which frees its place.
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
 * The tokens and log-probabilities of a sequence are the same to the bit whatever other sequences
 * there are, with any step_tokens, and with any number of threads. Logits have the bits of
 * computing the whole sequence anew (docs/generation.md).
 *
 * A generator computes on the device of its parameters: weights, caches and logits are arrays
 * there. A GPU also chooses the tokens; without one the host does. If the device fails, the call
 * that waits for it returns the device's reason; a step then leaves its sequences as they were.
 *
 * exo_generator_new allocates the memory of all sequences; submitting and steps allocate nothing.
 * Threads: a generator belongs to one thread at a time, and so does its device, unless it is the
 * CPU. */
#ifndef EXOGYM_GENERATE_H
#define EXOGYM_GENERATE_H

#include <exogym/comm.h>
#include <exogym/decoder.h>

EXO_DECLS_BEGIN

/* The format of weight matrices. Position embeddings, norms and biases are always fp32. A group is
 * 128 inputs of one output. */
typedef enum exo_weight_format {
    EXO_WEIGHTS_F32,
    EXO_WEIGHTS_INT8, /* w = s q with q in -127..127; s = max |w| / 127 of the group, fp32 */
    /* w = s q + m with q in 0..15; s and m of the group, fp32. Embedding and head are as in
     * INT8. */
    EXO_WEIGHTS_INT4,
} exo_weight_format;

/* The format of a name: "fp32", "int8" or "int4". INVAL lists the names. */
EXO_API exo_status exo_weight_format_named(const char *name, exo_weight_format *out, exo_err *err);

/* The capacity of a generator. Zeroed: all defaults. */
typedef struct exo_generator_opts {
    exo_weight_format weights; /* format of the matrices */
    size_t sequences;          /* most sequences at once, up to 65536; 0: 1 */
    /* Most tokens of a sequence, prompt and answer together; 0: the decoder's context, which is
     * also the maximum. */
    size_t context;
    /* Most tokens that one step computes, at least `sequences` and at most 262144; 0: 256, or
     * `sequences` if larger. */
    size_t step_tokens;
    /* The members that generate together, each with a part of the weights and of the caches (tensor
     * parallelism): the parameters are those of exo_model_output_part, and all members call the same
     * functions with the same arguments in the same order. Then all have the results of one generator
     * with the whole parameters, to the bit. An error of a collective ends the step, and further
     * steps. The caller's, of the thread that uses the generator; it closes the group after the
     * generator. NULL: none. */
    exo_group *group;
} exo_generator_opts;

/* A generator: weights for inference, and sequences with their caches. */
typedef struct exo_generator exo_generator;

/* Makes a generator on the device of `params`. Copies `spec`, and copies `params`, in the order and
 * with the names of decoder.h, into the format. `opts` may be NULL: one sequence, fp32. The caller
 * frees the generator, before it closes the device. Blocks until the device has the weights.
 * Errors: INVAL (options, or parameters that do not fit the spec; names the first), UNSUPPORTED (a
 * head wider than 512), NOMEM (also: the caches do not fit into the device's free memory), or the
 * device's. */
EXO_API exo_status exo_generator_new(exo_generator **out, const exo_decoder_spec *spec,
                                     exo_params *params, const exo_generator_opts *opts,
                                     exo_err *err);
/* Frees *generator and sets it to NULL; accepts NULL in it. */
EXO_API void exo_generator_free(exo_generator **generator);

/* Replaces the weights by others of the same spec, between steps. The parameters may be on any
 * device; those of another one than the generator's are copied through the host. Sequences under
 * way continue with their caches, which the old weights computed. INVAL: the parameters do not fit
 * the spec; NOMEM; after both the weights are unchanged. A device's error: the weights are not
 * usable. */
EXO_API exo_status exo_generator_set_weights(exo_generator *generator, exo_params *params,
                                             exo_err *err);

/* Exchanges the weights of two generators of one spec, format and device, between steps, without a
 * copy. Sequences stay where they are, with their caches. So `other` can pack new weights while
 * `generator` generates. INVAL: they differ in spec, format or device. */
EXO_API exo_status exo_generator_swap_weights(exo_generator *generator, exo_generator *other,
                                              exo_err *err);

/* The kind of arithmetic, for instance "cpu avx512". Generators of equal kind, with equal spec,
 * format and parameters, compute equal bits. Static. */
EXO_API const char *exo_generator_arithmetic(const exo_generator *generator);

/* The spec of the decoder. Lives as long as the generator. */
EXO_API const exo_decoder_spec *exo_generator_spec(const exo_generator *generator);
/* The options in effect, with the defaults filled in. */
EXO_API const exo_generator_opts *exo_generator_options(const exo_generator *generator);

/* exo_generator_weight_bytes: bytes of weights, scales and biases. exo_generator_cache_bytes: bytes
 * of the caches of all sequences; on the CPU 4 sequences layers kv_heads (K D + context D'), with D
 * the head's width, and K and D' the context and D rounded up to 16. */
EXO_API size_t exo_generator_weight_bytes(const exo_generator *generator);
EXO_API size_t exo_generator_cache_bytes(const exo_generator *generator);

/* --- Sequences -------------------------------------------------------------------------------- */

/* Sampling options. They apply in transformers' order: repetition penalty, temperature, top-k,
 * top-p, and then the draw.
 *
 * repetition_penalty: divides the positive logits of tokens of prompt and answer, and multiplies
 * the negative ones (Keskar et al., 2019, arXiv:1909.05858). top_k: keeps the logits that are at
 * least the k-th largest. top_p: keeps the fewest most probable tokens whose probabilities sum to
 * at least p (Holtzman et al., 2019, arXiv:1904.09751); of equally probable tokens, those with
 * smaller numbers come first. */
typedef struct exo_sampling {
    float repetition_penalty; /* 0 or 1: none */
    /* 1 / temperature multiplies the logits; 0: always the first of the most probable tokens */
    float temperature;
    size_t top_k;               /* 0: all */
    float top_p;                /* 0 or 1: all */
    size_t vocabulary;          /* only tokens below it, for a padded head; 0: all */
    size_t max_new_tokens;      /* 0: as many as the context has room for */
    const int32_t *stop_tokens; /* copied; the stop token that occurs is the sequence's last one */
    size_t num_stop_tokens;     /* at most EXO_MAX_STOP_TOKENS */
    uint64_t seed;              /* draws use (seed, EXO_RNG_TOKEN, id, position) */
} exo_sampling;

/* The most stop tokens of one sequence. */
enum {
    EXO_MAX_STOP_TOKENS = 16
};

/* The reason that a sequence has ended. */
typedef enum exo_finish {
    EXO_FINISH_NONE,       /* it has not ended */
    EXO_FINISH_STOP,       /* a stop token occurred */
    EXO_FINISH_LENGTH,     /* max_new_tokens are reached */
    EXO_FINISH_CONTEXT,    /* the context is full */
    EXO_FINISH_NOT_FINITE, /* a logit is NaN or +inf, or all are -inf: the weights are broken */
} exo_finish;
/* The text of a reason: "not finished", "stop", "length", "context" or "not finite". Static. */
EXO_API const char *exo_finish_text(exo_finish finish);

/* The state of a sequence. */
typedef struct exo_generated {
    uint64_t id;           /* the id of exo_generator_submit */
    const int32_t *tokens; /* (length), the prompt first */
    size_t prompt, length; /* tokens of the prompt; of prompt and answer */
    /* (length - prompt) log-probability of each new token under the distribution of its draw, after
     * penalty, temperature, top-k and top-p; 0 at temperature 0. With temperature alone, in fp32,
     * it equals exo_log_probs of a pass that is `invariant` (exo_pass) to the bit. */
    const float *log_probs;
    /* (length - prompt) under log softmax of the logits: exo_log_probs at temperature 1 */
    const float *plain_log_probs;
    exo_finish finish; /* NONE until the sequence has ended */
} exo_generated;

/* The number of sequences that can still be submitted. */
EXO_API size_t exo_generator_room(const exo_generator *generator);
/* The number of sequences that have not finished. */
EXO_API size_t exo_generator_active(const exo_generator *generator);

/* Starts sequence `id` (below 2^56) with a prompt of 1 to context - 1 tokens, which is copied.
 * Errors: FULL, EXISTS (the id is in use), INVAL (the text has the wrong numbers). */
EXO_API exo_status exo_generator_submit(exo_generator *generator, uint64_t id,
                                        const int32_t *prompt, size_t count,
                                        const exo_sampling *sampling, exo_err *err);
/* Continues a finished sequence that was not taken out: appends tokens (count, may be 0), which
 * are copied, for instance the reply of a tool, and gives up to max_new_tokens further tokens (0: as
 * many as the context has room for) with the sampling options of before. The cache is kept; all
 * tokens so far become the prompt, and log_probs begin with the next token. The bits are those of a
 * new sequence of this id that is submitted with all these tokens. Errors: NOT_FOUND; INVAL (it has
 * not finished, or a token is wrong, or their number leaves no room in the context). */
EXO_API exo_status exo_generator_extend(exo_generator *generator, uint64_t id,
                                        const int32_t *tokens, size_t count, size_t max_new_tokens,
                                        exo_err *err);
/* Computes one step. Every sequence whose prompt is processed gets one token. The rest of
 * step_tokens goes to the other prompts, the oldest first; a prompt that is completed by this gets
 * its first new token. Does nothing without sequences. Blocks while the device computes. Errors:
 * the device's, also in a step that only takes a part of a prompt; every sequence is then as it was
 * before the step. */
EXO_API exo_status exo_generator_step(exo_generator *generator, exo_err *err);
/* The sequence of an index in the order of submission, finished or not; false after the last. *out
 * is valid until the next call that changes the generator. */
EXO_API bool exo_generator_at(const exo_generator *generator, size_t index, exo_generated *out);
/* Takes out the finished sequence that was submitted first; false: none has finished. *out is valid
 * until the next submit. */
EXO_API bool exo_generator_take(exo_generator *generator, exo_generated *out);
/* Removes a sequence, finished or not. NOT_FOUND: no sequence has the id. */
EXO_API exo_status exo_generator_cancel(exo_generator *generator, uint64_t id, exo_err *err);

/* --- Measures --------------------------------------------------------------------------------- */

/* Computes the logits (count, V) of a sequence of `count` tokens, at most the context, and copies
 * them to the host. Errors: FULL (there is no room for one more sequence), INVAL (tokens or their
 * number), or the device's. */
EXO_API exo_status exo_generator_logits(exo_generator *generator, const int32_t *tokens,
                                        size_t count, float *logits, exo_err *err);
/* The mean of -log softmax(logits)[next token] over a text of at least 2 tokens; exp of it is the
 * perplexity. The text is cut into windows of `window` inputs (0: the context) that do not overlap;
 * the targets of a window are the tokens that follow its inputs. The last window may be shorter.
 * Errors: FULL (there is no room for one more sequence), INVAL (tokens or their number), FAILED
 * (the logits are not finite), or the device's. */
EXO_API exo_status exo_generator_nll(exo_generator *generator, const int32_t *tokens, size_t count,
                                     size_t window, double *mean, exo_err *err);

EXO_DECLS_END

#endif
