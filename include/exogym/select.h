/* Selectors: which coordinates are exchanged at a round. The same on every node, a function of
 * (seed, round), never sent.
 *
 * Owner: the caller; one thread at a time. Who uses them: the strategy `sparta` and the codec
 * `sparse`.
 */
#ifndef EXOGYM_SELECT_H
#define EXOGYM_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* How the coordinates of a round are chosen. */
typedef enum exo_select_kind {
    EXO_SELECT_RANDOM,              /* Bernoulli(p) */
    EXO_SELECT_SHUFFLED_SEQUENTIAL, /* one permutation, ceil(1/p) chunks in turn */
    /* a random partition into min(ceil(1/p), numel) parts in turn, anew each cycle */
    EXO_SELECT_PARTITIONED,
} exo_select_kind;

/* its coordinates belong to it until the next round */
typedef struct exo_selector exo_selector;

/* p in (0, 1], numel below 2^32. Errors: INVAL, NOMEM. */
EXO_API exo_status exo_selector_new(exo_selector **out, exo_select_kind kind, double p,
                                    size_t numel, uint64_t seed, exo_err *err);
/* Frees it and sets *selector to NULL; accepts NULL in it. */
EXO_API void exo_selector_free(exo_selector **selector);
/* How many rounds of SHUFFLED_SEQUENTIAL and PARTITIONED go through all coordinates: min(ceil(1 /
 * p), numel), at least 1. Each round has numel / parts of them, the first numel mod parts rounds
 * one more. */
EXO_API uint32_t exo_selector_parts(double p, size_t numel);
/* The coordinates of round `round`, ascending; valid until the next call. Gives how many. */
EXO_API size_t exo_selector_round(exo_selector *selector, uint64_t round, const uint32_t **out);

EXO_DECLS_END

#endif
