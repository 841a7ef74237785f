/* Selectors choose the coordinates that are exchanged in a round. Every node computes the same
 * choice from (seed, round), so the choice is never sent.
 *
 * Owner: the caller; one thread at a time. The strategy `sparta` and the codec `sparse` use
 * selectors.
 */
#ifndef EXOGYM_SELECT_H
#define EXOGYM_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

EXO_DECLS_BEGIN

/* The rule that chooses the coordinates of a round. */
typedef enum exo_select_kind {
    EXO_SELECT_RANDOM, /* each coordinate independently, with probability p */
    /* one permutation, of which each round takes the next of ceil(1/p) chunks */
    EXO_SELECT_SHUFFLED_SEQUENTIAL,
    /* Rounds go through a random partition into min(ceil(1/p), numel) parts, drawn anew each
     * cycle. */
    EXO_SELECT_PARTITIONED,
} exo_select_kind;

/* A selector. It owns the coordinates of its current round. */
typedef struct exo_selector exo_selector;

/* Makes a selector of numel coordinates: p in (0, 1], numel below 2^32. The caller frees it.
 * Errors: INVAL, NOMEM. */
EXO_API exo_status exo_selector_new(exo_selector **out, exo_select_kind kind, double p,
                                    size_t numel, uint64_t seed, exo_err *err);
/* Frees *selector and sets it to NULL; accepts NULL in it. */
EXO_API void exo_selector_free(exo_selector **selector);
/* The rounds that SHUFFLED_SEQUENTIAL and PARTITIONED need for all coordinates: parts = min(ceil(1
 * / p), numel), at least 1. Each round has numel / parts coordinates; the first numel mod parts
 * rounds have one more. */
EXO_API uint32_t exo_selector_parts(double p, size_t numel);
/* Gives the coordinates of a round, ascending, and returns their number. *out is valid until the
 * next call. */
EXO_API size_t exo_selector_round(exo_selector *selector, uint64_t round, const uint32_t **out);

EXO_DECLS_END

#endif
