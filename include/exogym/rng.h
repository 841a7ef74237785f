/* Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as
 * easy as 1, 2, 3").
 *
 * A stream is keyed by (seed, purpose, node, step). A number therefore does not depend on threads,
 * on other streams, or on numbers that were drawn before a checkpoint. A stream holds 2^34 numbers
 * of 32 bits.
 */
#ifndef EXOGYM_RNG_H
#define EXOGYM_RNG_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/export.h>

EXO_DECLS_BEGIN

/* The purpose of a stream, a part of its key. Numbers never change their meaning. User code takes
 * EXO_RNG_USER and above. */
typedef enum exo_purpose {
    EXO_RNG_INIT = 1,     /* initial parameters */
    EXO_RNG_SHUFFLE = 2,  /* order of samples */
    EXO_RNG_AUGMENT = 3,  /* data augmentation */
    EXO_RNG_DROPOUT = 4,  /* dropout masks */
    EXO_RNG_SELECT = 5,   /* the coordinates that are shared */
    EXO_RNG_ISLAND = 6,   /* the groups of nodes that meet */
    EXO_RNG_EVAL = 7,     /* the samples of evaluations */
    EXO_RNG_GOSSIP = 8,   /* the receivers of gossip */
    EXO_RNG_LINK = 9,     /* jitter of emulated links */
    EXO_RNG_FACTORS = 10, /* the first factors of low-rank gradients */
    EXO_RNG_FAILURE = 11, /* failures of the hosts of a simulated run */
    EXO_RNG_RESET = 16,   /* the initial state of an episode */
    EXO_RNG_ACTION = 17,  /* the actions of a policy */
    EXO_RNG_TOKEN = 18,   /* the tokens of a decoder */
    EXO_RNG_TOOL = 19,    /* the replies of a tool */
    EXO_RNG_USER = 128,
} exo_purpose;

/* One stream: a plain value, copied freely. Owner: the caller; one thread at a time. */
typedef struct exo_rng {
    uint32_t key[2];     /* from the seed */
    uint32_t counter[4]; /* purpose, node, step, next block */
    uint32_t block[4];   /* numbers of the current block */
    uint32_t used;       /* numbers of the block that were returned */
} exo_rng;

/* Places `rng` at the first number of the stream (seed, purpose, node, step). purpose < 256, node <
 * 2^24. */
EXO_API void exo_rng_init(exo_rng *rng, uint64_t seed, exo_purpose purpose, uint32_t node,
                          uint64_t step);

/* The next number, uniform in 32 bits. */
EXO_API uint32_t exo_rng_u32(exo_rng *rng);
/* Uniform in [0, 1), a multiple of 2^-24. */
EXO_API float exo_rng_uniform(exo_rng *rng);
/* Standard normal (Box-Muller; one number of each pair is used). */
EXO_API float exo_rng_normal(exo_rng *rng);
/* Uniform in [0, n) without bias (Lemire, 2019, arXiv:1805.10941). n > 0. */
EXO_API uint32_t exo_rng_below(exo_rng *rng, uint32_t n);

/* Writes the 4 numbers of block `index` of the stream: random access for kernels. `rng` does not
 * change. */
EXO_API void exo_rng_block(const exo_rng *rng, uint32_t index, uint32_t out[4]);

/* Writes a uniform permutation of 0..n-1 to `out` (n), by Fisher-Yates. */
EXO_API void exo_rng_permutation(exo_rng *rng, uint32_t *out, uint32_t n);

EXO_DECLS_END

#endif
