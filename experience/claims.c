/* Claims: see claims.h. */
#include "experience/claims.h"

#include <string.h>

#include <exogym/memory.h>

void
exo_claims_release(exo_claims *c)
{
    exo_free(c->bits);
    *c = (exo_claims){0};
}

/* Makes room for `number`. */
static exo_status
grow(exo_claims *c, uint64_t number, exo_err *err)
{
    size_t byte = (size_t)((number - c->first) / 8), bytes = 2 * byte + 64;
    if (byte < c->bytes)
        return EXO_OK;
    uint8_t *more = exo_realloc(c->bits, bytes, 1);
    if (!more)
        return exo_fail(err, EXO_NOMEM, "no memory for a list of %zu items", 8 * bytes);
    memset(more + c->bytes, 0, bytes - c->bytes);
    c->bits = more;
    c->bytes = bytes;
    return EXO_OK;
}

exo_status
exo_claims_claim(exo_claims *c, uint64_t number, bool *is_new, exo_err *err)
{
    const uint64_t window = EXO_CLAIMS_WINDOW;
    if (!c->bits) /* those before it may come later */
        c->first = c->end = number > window ? number - window : 0;
    if (number < c->first || number > c->end + 2 * window)
        return exo_fail(err, EXO_INVAL, "item %llu comes, but the others are from %llu to %llu",
                        (unsigned long long)number, (unsigned long long)c->first,
                        (unsigned long long)c->end);
    exo_status st = grow(c, number, err);
    if (st != EXO_OK)
        return st;
    uint8_t *byte = &c->bits[(number - c->first) / 8];
    uint8_t bit = (uint8_t)(1 << (number - c->first) % 8);
    *is_new = !(*byte & bit);
    *byte |= bit;
    c->end = number >= c->end ? number + 1 : c->end;
    return EXO_OK;
}
