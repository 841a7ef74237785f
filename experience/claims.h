/* Claims: which numbers were seen before, a bit for each. Numbers come about in their order: one that is
 * far beyond the others is refused, so that no message makes the set large.
 *
 * Owner: the caller, one thread at a time. */
#ifndef EXO_CLAIMS_H
#define EXO_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <exogym/status.h>

enum {
    EXO_CLAIMS_WINDOW = 1 << 24 /* how far a number may be from the others */
};

/* Zeroed: nothing was claimed. */
typedef struct exo_claims {
    uint64_t first, end; /* claimed numbers are in [first, end) */
    uint8_t *bits;       /* (bytes) of first, first + 1, ... */
    size_t bytes;
} exo_claims;

void exo_claims_release(exo_claims *claims);
/* Whether a number is new; if so, it is no longer. INVAL: it is far from the others; NOMEM. */
exo_status exo_claims_claim(exo_claims *claims, uint64_t number, bool *is_new, exo_err *err);

#endif
